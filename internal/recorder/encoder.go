package recorder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/klauspost/compress/zstd"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// windowSize is how far back the compression looks, in bytes: pods of one workload are close together. Larger windows take more
// memory.
const windowSize = 1 << 20

// encoder writes parts of passes as compressed lines. It leaves out what the frames since the last keyframe have.
type encoder struct {
	zstd *zstd.Encoder
	// types and lists are the hashes that were written since the last keyframe.
	types, lists map[string]bool
	// last are hashes of the last lines of other kinds, by kind.
	last map[string]string
	// pools caches what was written for each pool, by its name.
	pools map[string]poolTypes
}

// poolTypes is a list of instance types with its hash, and the hashes of the types.
type poolTypes struct {
	list   []*catalog.InstanceType
	hashes []string
	hash   string
}

// same reports whether it is the same slice.
func (p *poolTypes) same(list []*catalog.InstanceType) bool {
	return p.hash != "" && len(p.list) == len(list) && (len(list) == 0 || &p.list[0] == &list[0])
}

// byName returns the places of the types by their names.
func (p *poolTypes) byName() map[string]int {
	out := make(map[string]int, len(p.list))
	for i, t := range p.list {
		out[t.Name] = i
	}
	return out
}

func newEncoder() (*encoder, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowSize), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return nil, err
	}
	e := &encoder{zstd: z}
	e.forget()
	return e, nil
}

// forget makes the next part complete.
func (e *encoder) forget() {
	e.types, e.lists, e.last, e.pools = map[string]bool{}, map[string]bool{}, map[string]string{}, map[string]poolTypes{}
}

// part is a part of a pass that is to be written.
type part struct {
	pass passLine
	// number counts the parts of the pass; only that of number 0 has changes, objects and facts.
	number  int
	changes changes
	objects *cluster.Objects
	facts   *cluster.Facts
	calls   []call
	// nodeClasses are recorded with the objects.
	nodeClasses []*awsv1.EC2NodeClass
}

// call is a call of the engine: plain data that JSON can have.
type call struct {
	name    string
	in, out any
}

// encode returns the payload of a frame.
func (e *encoder) encode(p *part) ([]byte, error) {
	var out bytes.Buffer
	e.zstd.Reset(&out)
	defer e.zstd.Reset(nil) // it would keep the payload until the next part: 13 MB after a keyframe of 100,000 pods
	lines := json.NewEncoder(e.zstd)
	lines.SetEscapeHTML(false)
	w := &lineWriter{lines: lines}
	w.write(line{Pass: &p.pass})
	if p.number == 0 {
		e.writeState(w, p)
	}
	for _, c := range p.calls {
		e.writeCall(w, c, p.number == 0)
	}
	if w.err != nil {
		return nil, w.err
	}
	if err := e.zstd.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// lineWriter writes lines until the first error.
type lineWriter struct {
	lines *json.Encoder
	err   error
}

func (w *lineWriter) write(l line) {
	if w.err == nil {
		w.err = w.lines.Encode(l)
	}
}

func (w *lineWriter) marshal(v any) json.RawMessage {
	if w.err != nil {
		return nil
	}
	data, err := json.Marshal(v)
	w.err = err
	return data
}

func (e *encoder) writeState(w *lineWriter, p *part) {
	if p.changes.keyframe {
		e.forget()
	}
	config := recordConfig(p.objects, p.facts)
	if e.isNew(w, "config", config) {
		w.write(line{Config: &config})
	}
	if marks := recordMarks(p.facts); e.isNew(w, "marks", marks) {
		w.write(line{Marks: &marks})
	}
	for i := range p.changes.changed {
		c := &p.changes.changed[i]
		r := c.reduced()
		w.write(line{Object: &objectLine{objectKey: r.key, Version: r.version, Object: w.marshal(r.object)}})
		*c = changedObject{} // nothing holds it any longer
	}
	for i := range p.changes.gone {
		w.write(line{Gone: &p.changes.gone[i]})
	}
	e.writePools(w, p.objects.Pools)
	if buffers := recordBuffers(p.objects.Buffers); e.isNew(w, "buffers", buffers) {
		w.write(line{Buffers: &buffers})
	}
}

// isNew reports whether the value differs from the last one of its kind.
func (e *encoder) isNew(w *lineWriter, kind string, v any) bool {
	hash := hashOf(w.marshal(v))
	if w.err != nil || e.last[kind] == hash {
		return false
	}
	e.last[kind] = hash
	return true
}

// writePools writes what the pools may launch: types and lists only if they are new.
func (e *encoder) writePools(w *lineWriter, pools []cluster.Pool) {
	out := make([]poolLine, 0, len(pools))
	for i := range pools {
		p := &pools[i]
		out = append(out, poolLine{Name: p.Name, NodeClassLabel: p.NodeClassLabel, List: e.writeTypes(w, p)})
	}
	if e.isNew(w, "pools", out) {
		w.write(line{Pools: &out})
	}
}

// writeTypes returns the hash of the pool's list. A list that is the same slice as in the pass before is not hashed again, and of
// another one only the types that differ: it takes 3 µs to compare a type, and 37 µs to encode one (BenchmarkTypes).
func (e *encoder) writeTypes(w *lineWriter, p *cluster.Pool) string {
	if p.InstanceTypes == nil {
		return ""
	}
	before := e.pools[p.Name]
	for _, known := range e.pools { // pools of one class share their list
		if known.same(p.InstanceTypes) {
			before = known
		}
	}
	if !before.same(p.InstanceTypes) {
		before = e.writeChangedTypes(w, p.InstanceTypes, &before)
	}
	if w.err != nil {
		return ""
	}
	e.pools[p.Name] = before
	return before.hash
}

// writeChangedTypes writes a list, and those of its types that are new.
func (e *encoder) writeChangedTypes(w *lineWriter, list []*catalog.InstanceType, before *poolTypes) poolTypes {
	out := poolTypes{list: list, hashes: make([]string, len(list))}
	at := before.byName()
	for i, t := range list {
		if k, known := at[t.Name]; known && sameType(before.list[k], t) {
			out.hashes[i] = before.hashes[k]
			continue
		}
		data, hash, err := encodeType(t)
		if err != nil {
			w.err = fmt.Errorf("record instance type %s: %w", t.Name, err)
			return out
		}
		out.hashes[i] = hash
		if !e.types[hash] {
			e.types[hash] = true
			w.write(line{Type: &typeLine{hash, data}})
		}
	}
	out.hash = hashOf([]byte(strings.Join(out.hashes, "\n")))
	if !e.lists[out.hash] {
		e.lists[out.hash] = true
		w.write(line{List: &listLine{out.hash, out.hashes}})
	}
	return out
}

// writeCall leaves out what equals that of the last call of the name: pods that cannot be scheduled make every pass the same.
func (e *encoder) writeCall(w *lineWriter, c call, first bool) {
	out := callLine{Name: c.name, In: w.marshal(c.in), Out: w.marshal(c.out)}
	if w.err != nil {
		return
	}
	if (c.name == CallSolve || c.name == CallPass) && first { // other parts can be read without the frames before them
		out.Out = e.unlessKnown(c.name, out.Out)
		if c.name == CallPass {
			out.In = e.unlessKnown(c.name+" input", out.In)
		}
	}
	w.write(line{Call: &out})
}

// unlessKnown returns the data; nil if it equals the last of the kind.
func (e *encoder) unlessKnown(kind string, data json.RawMessage) json.RawMessage {
	hash := hashOf(data)
	if e.last[kind] == hash {
		return nil
	}
	e.last[kind] = hash
	return data
}
