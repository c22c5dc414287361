package recorder

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

const (
	// maxText is how large the text of a frame may be in bytes, maxLine one line of it. 100,000 pods take about 150 MiB, 10,000
	// rejected pods in a plan about 10 MiB.
	maxText = 1 << 30
	maxLine = 1 << 26
	// maxRatio is how often the payload fits into the text at most, beside a mebibyte. Each pod has a name and a UID, which take some
	// 30 bytes of its 1,200 whatever the compression.
	maxRatio = 200
)

func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8*windowSize),
		zstd.WithDecoderMaxMemory(maxLine))
}

// Range selects passes; the zero value selects all.
type Range struct {
	// From and To are inclusive; zero means no bound.
	From, To time.Time
	// Last is true if only the last pass of the range counts.
	Last bool
	// Pass is the ID of one pass; empty for any.
	Pass string
	// Progress is called with the share of frames that have been read; nil if nobody queries.
	Progress func(done, total int)
}

func (g *Range) has(f *frame) bool {
	at := f.time()
	return (g.From.IsZero() || !at.Before(g.From)) && (g.To.IsZero() || !at.After(g.To)) &&
		(g.Pass == "" || f.pass == crc32.Checksum([]byte(g.Pass), castagnoli))
}

// Passes calls f with each pass of the range with a state that is recorded completely, in the order in which they were recorded, until f
// returns an error. f may keep the pass; passes share objects, which must not be changed. It costs the decoding of all frames since
// the keyframe before the range.
func (r *Recording) Passes(in Range, f func(*PassRecord) error) error {
	w, last := newWorld(), r.lastOf(&in)
	for i := range r.frames {
		fr := &r.frames[i]
		if in.Progress != nil {
			in.Progress(i, len(r.frames))
		}
		if !fr.hasState() || !w.follows(fr) {
			continue
		}
		if r.superseded(i, &in) {
			w.broken = true
			continue
		}
		pass, err := r.apply(w, fr)
		if err != nil {
			w.broken = true // up to the next keyframe
			continue
		}
		if !in.has(fr) || in.Pass != "" && pass.ID != in.Pass || in.Last && i != last {
			continue
		}
		record, err := w.record(pass)
		if err != nil {
			return err
		}
		r.addLaterCalls(record, i, fr.pass)
		if err := f(record); err != nil {
			return err
		}
	}
	return nil
}

// lastOf is the index of the last frame of the range that has state; -1 if there is none.
func (r *Recording) lastOf(in *Range) int {
	for i := len(r.frames) - 1; i >= 0; i-- {
		if r.frames[i].hasState() && in.has(&r.frames[i]) {
			return i
		}
	}
	return -1
}

// superseded reports whether the frames from a keyframe to the next are of no use for the range: so they need not be decoded.
func (r *Recording) superseded(i int, in *Range) bool {
	if r.frames[i].kind != kindKeyframe {
		return false
	}
	for k := i; k < len(r.frames); k++ {
		fr := &r.frames[k]
		switch {
		case k > i && fr.kind == kindKeyframe:
			return !in.Last || in.To.IsZero() || !fr.time().After(in.To)
		case fr.hasState() && in.has(fr) && !in.Last:
			return false
		}
	}
	return !in.Last
}

// addLaterCalls adds the calls of the pass's other parts, and what it left out if that was not known before.
func (r *Recording) addLaterCalls(record *PassRecord, i int, pass uint32) {
	for _, k := range r.later[pass] {
		if k < i {
			continue
		}
		fr := &r.frames[k]
		_ = r.lines(fr, func(l *line) error { // a damaged part is left out
			if l.Pass != nil && l.Pass.ID != record.ID {
				return errStop
			}
			if l.Pass != nil && l.Pass.Excluded != nil {
				record.Excluded = l.Pass.Excluded
			}
			if l.Call != nil {
				record.Calls = append(record.Calls, CallRecord(*l.Call))
			}
			return nil
		})
	}
}

// apply changes the world by a frame.
func (r *Recording) apply(w *world, fr *frame) (*passLine, error) {
	if fr.kind == kindKeyframe {
		*w = *newWorld()
	}
	w.broken, w.calls = false, nil
	var pass *passLine
	err := r.lines(fr, func(l *line) error {
		if l.Pass != nil {
			pass = l.Pass
		}
		return w.apply(l)
	})
	if err == nil && pass == nil {
		err = fmt.Errorf("frame %d has no pass", fr.seq)
	}
	w.last = fr.seq
	return pass, err
}

// lines calls f with each line of a frame.
func (r *Recording) lines(fr *frame, f func(*line) error) error {
	data, err := payload(r.file, *fr)
	if err != nil {
		return err
	}
	if err := r.zstd.Reset(bytes.NewReader(data)); err != nil {
		return fmt.Errorf("frame %d: %w", fr.seq, err)
	}
	text := &io.LimitedReader{R: r.zstd, N: min(maxText, int64(len(data))*maxRatio+1<<20)}
	lines := bufio.NewScanner(text)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("frame %d: %w", fr.seq, err)
		}
		if err := f(&l); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("frame %d: %w", fr.seq, err)
	}
	if text.N <= 0 {
		return fmt.Errorf("frame %d holds more text than is plausible", fr.seq)
	}
	return nil
}

// world is what the passes so far have seen.
type world struct {
	kinds map[string]*kind
	// last is the last frame; broken is true if one is missing since.
	last    uint64
	broken  bool
	objects map[objectKey]client.Object
	order   []string
	types   map[string]*catalog.InstanceType
	lists   map[string][]*catalog.InstanceType
	pools   []poolLine
	buffers []bufferRecord
	config  configRecord
	marks   marksRecord
	// calls of the last pass, results the last result of a call.
	calls   []CallRecord
	results map[string]json.RawMessage
	// passInput is the input of the last call CallPass.
	passInput json.RawMessage
}

func newWorld() *world {
	w := &world{
		broken: true, kinds: map[string]*kind{}, objects: map[objectKey]client.Object{}, types: map[string]*catalog.InstanceType{},
		lists: map[string][]*catalog.InstanceType{}, results: map[string]json.RawMessage{},
	}
	for _, k := range kinds() {
		w.kinds[k.name] = &k
		w.order = append(w.order, k.name)
	}
	return w
}

// follows reports whether the frame can be applied.
func (w *world) follows(fr *frame) bool {
	return fr.kind == kindKeyframe || !w.broken && fr.prev == w.last
}

func (w *world) apply(l *line) error {
	switch {
	case l.Object != nil:
		k := w.kinds[l.Object.Kind]
		if k == nil {
			return fmt.Errorf("kind %q is not known to this version", l.Object.Kind)
		}
		object, err := k.decode(l.Object.Object)
		if err != nil {
			return err
		}
		w.objects[l.Object.objectKey] = object
	case l.Gone != nil:
		delete(w.objects, *l.Gone)
	case l.Type != nil:
		var record typeRecord
		if err := json.Unmarshal(l.Type.Type, &record); err != nil {
			return fmt.Errorf("parse a recorded instance type: %w", err)
		}
		w.types[l.Type.Hash] = record.instanceType()
	case l.List != nil:
		return w.applyList(l.List)
	case l.Pools != nil:
		w.pools = *l.Pools
	case l.Buffers != nil:
		w.buffers = *l.Buffers
	case l.Config != nil:
		w.config = *l.Config
	case l.Marks != nil:
		w.marks = *l.Marks
	case l.Call != nil:
		w.applyCall(l.Call)
	}
	return nil
}

func (w *world) applyList(l *listLine) error {
	types := make([]*catalog.InstanceType, 0, len(l.Types))
	for _, hash := range l.Types {
		t := w.types[hash]
		if t == nil {
			return fmt.Errorf("instance type %s is not recorded", hash)
		}
		types = append(types, t)
	}
	w.lists[l.Hash] = types
	return nil
}

func (w *world) applyCall(l *callLine) {
	c := CallRecord(*l)
	if c.Out == nil {
		c.Out = w.results[c.Name]
	}
	w.results[c.Name] = c.Out
	if c.Name == CallPass {
		if c.In == nil {
			c.In = w.passInput
		}
		w.passInput = c.In
	}
	w.calls = append(w.calls, c)
}

// record returns the pass that was applied last.
func (w *world) record(pass *passLine) (*PassRecord, error) {
	out := &PassRecord{ID: pass.ID, Kind: pass.Kind, Version: pass.Version, Excluded: pass.Excluded, Calls: w.calls}
	out.Facts.Now = pass.Now
	if err := w.config.restore(&out.Facts); err != nil {
		return nil, err
	}
	w.marks.restore(&out.Facts)
	o := &seen{Objects: &out.Objects}
	if w.config.Devices {
		o.Devices = &cluster.Devices{Expressions: dynamicresources.NewExpressions()}
	}
	if w.config.PodGroups {
		o.PodGroups = &cluster.PodGroups{}
	}
	byKind := map[string][]client.Object{}
	for key, object := range w.objects {
		byKind[key.Kind] = append(byKind[key.Kind], object)
	}
	for _, name := range w.order {
		for _, object := range byKind[name] {
			w.kinds[name].add(o, object)
		}
	}
	out.NodeClasses = o.nodeClasses
	o.Buffers = restoreBuffers(w.buffers)
	launches := map[string]poolLine{}
	for _, p := range w.pools {
		launches[p.Name] = p
	}
	for i := range o.Pools {
		p := launches[o.Pools[i].Name]
		o.Pools[i].NodeClassLabel = p.NodeClassLabel
		if p.List == "" {
			continue
		}
		types, known := w.lists[p.List]
		if !known {
			return nil, fmt.Errorf("the instance types of NodePool %q are not recorded", p.Name)
		}
		o.Pools[i].InstanceTypes = types
	}
	return out, nil
}
