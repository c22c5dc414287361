package recorder

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// Recording is a recording that is read. A process may still be recording to it.
type Recording struct {
	file   storage
	frames []frame
	// later are the indices of the frames that are not the first of their pass, by the pass.
	later map[uint32][]int
	zstd  *zstd.Decoder
}

// Open reads the index of a recording.
func Open(path string) (*Recording, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r, err := read(file, info.Size())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return r, nil
}

func read(file storage, size int64) (*Recording, error) {
	frames, err := scan(file, size)
	if err != nil {
		return nil, err
	}
	z, err := newDecoder()
	if err != nil {
		return nil, err
	}
	r := &Recording{file: file, frames: frames, later: map[uint32][]int{}, zstd: z}
	for i := range frames {
		if f := &frames[i]; f.kind == kindDelta && f.part > 0 {
			r.later[f.pass] = append(r.later[f.pass], i)
		}
	}
	return r, nil
}

// Written is when the recording in a file was written last.
func Written(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// Decided is the number of the last frame with decisions or with steps of them; 0 if there is none. It grows with each.
func (r *Recording) Decided() (last uint64) {
	for i := range r.frames {
		if f := &r.frames[i]; f.kind == kindDecisions || f.kind == kindSteps {
			last = max(last, f.seq)
		}
	}
	return last
}

// Close closes the file.
func (r *Recording) Close() error {
	r.zstd.Close()
	return r.file.Close()
}

// Span returns the times of the first and the last frame; false if there is none.
func (r *Recording) Span() (from, to time.Time, ok bool) {
	for i := range r.frames {
		at := r.frames[i].time()
		if !ok || at.Before(from) {
			from = at
		}
		if !ok || at.After(to) {
			to = at
		}
		ok = true
	}
	return from, to, ok
}

// Selection selects decisions; the zero value selects all.
type Selection struct {
	// From is inclusive; zero means no bound.
	From time.Time
	// ID of one decision; empty for any.
	ID string
	// Brief leaves out what is long: alternatives, the price table, and all but the first instance type of a launch. A decision has
	// 15 KB of JSON with it, and a recording of 256 MiB may have 50,000 decisions.
	Brief bool
}

func (in *Selection) has(d *Decision) bool {
	return (in.ID == "" || d.ID == in.ID) && !d.At.Before(in.From)
}

// stepPrecision is how long before its decision a step may seem to be: conditions have times in full seconds.
const stepPrecision = time.Second

func (in *Selection) hasStep(s *Step) bool {
	return (in.ID == "" || s.Decision == in.ID) && (in.From.IsZero() || !s.At.Before(in.From.Add(-stepPrecision)))
}

// Decisions returns decisions with the steps of their outcome, the oldest first. Frames that are damaged, or that this version cannot
// decode, are left out; unreadable counts them.
func (r *Recording) Decisions(in Selection) (list []Decision, unreadable int) {
	steps := map[string][]Step{}
	for _, f := range r.frames {
		if f.kind != kindDecisions && f.kind != kindSteps || f.kind == kindDecisions && f.time().Before(in.From) {
			continue
		}
		data, err := payload(r.file, f)
		switch {
		case err != nil:
		case f.kind == kindSteps:
			err = addSteps(steps, f, data, &in)
		default:
			list, err = r.addDecisions(list, f, data, &in)
		}
		if err != nil {
			unreadable++
		}
	}
	for i := range list {
		list[i].setSteps(steps[list[i].ID])
	}
	slices.SortStableFunc(list, func(a, b Decision) int { return a.At.Compare(b.At) })
	return list, unreadable
}

// Deletions returns what was deleted from a time on, the oldest first; zero is the first. Frames that are damaged are left out; unreadable
// counts them.
func (r *Recording) Deletions(from time.Time) (list []destroy.Record, unreadable int) {
	for _, f := range r.frames {
		if f.kind != kindDeletions {
			continue
		}
		var some []destroy.Record
		data, err := payload(r.file, f)
		if err == nil {
			err = json.Unmarshal(data, &some)
		}
		if err != nil {
			unreadable++
			continue
		}
		list = append(list, slices.DeleteFunc(some, func(d destroy.Record) bool { return d.At.Before(from) })...)
	}
	slices.SortStableFunc(list, func(a, b destroy.Record) int { return a.At.Compare(b.At) })
	return list, unreadable
}

// shorten drops what is long.
func (d *Decision) shorten() {
	d.MoreAlternatives += len(d.Alternatives)
	d.Alternatives, d.PriceTable = nil, nil
	for i := range d.Launches {
		l := &d.Launches[i]
		l.InstanceTypes, l.Requirements = slices.Clone(l.InstanceTypes[:min(1, len(l.InstanceTypes))]), nil
	}
}

func addSteps(to map[string][]Step, f frame, data []byte, in *Selection) error {
	var list []Step
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("steps of frame %d: %w", f.seq, err)
	}
	for i := range list {
		if s := &list[i]; in.hasStep(s) {
			to[s.Decision] = append(to[s.Decision], *s)
		}
	}
	return nil
}

// addDecisions adds the decisions of a frame that the selection has; none if there is an error.
func (r *Recording) addDecisions(to []Decision, f frame, data []byte, in *Selection) ([]Decision, error) {
	text, err := r.zstd.DecodeAll(data, nil)
	if err != nil {
		return to, fmt.Errorf("decisions of frame %d: %w", f.seq, err)
	}
	var list []Decision
	if err := json.Unmarshal(text, &list); err != nil {
		return to, fmt.Errorf("decisions of frame %d: %w", f.seq, err)
	}
	for i := range list {
		if !in.has(&list[i]) {
			continue
		}
		if in.Brief {
			list[i].shorten()
		}
		to = append(to, list[i])
	}
	return to, nil
}

// Decision returns one decision by its ID.
func (r *Recording) Decision(id string) (*Decision, error) {
	found, unreadable := r.Decisions(Selection{ID: id})
	if len(found) == 0 {
		return nil, fmt.Errorf("no decision %q is in the recording%s", id, unreadableText(unreadable))
	}
	return &found[0], nil
}

// unreadableText is what an error adds about frames that cannot be read.
func unreadableText(frames int) string {
	if frames == 0 {
		return ""
	}
	return fmt.Sprintf(", as far as it can be read: frames that cannot be: %d", frames)
}

// PassRecord is a pass as it was recorded: what it saw, and what it had the engine decide.
type PassRecord struct {
	ID      string
	Kind    PassKind
	Version string
	Objects cluster.Objects
	Facts   cluster.Facts
	// NodeClasses are what the engine did not see, but the pools refer to.
	NodeClasses []*awsv1.EC2NodeClass
	// Excluded are pods that it left out.
	Excluded *Exclusion
	Calls    []CallRecord
}

// CallRecord is a call of the engine.
type CallRecord struct {
	Name    string
	In, Out json.RawMessage
}

// At returns what the last pass saw that began at the time or before. Where is a time in RFC 3339, or the ID of a decision or pass.
func (r *Recording) At(where string) (cluster.Objects, cluster.Facts, error) {
	p, err := r.Pass(where)
	if err != nil {
		return cluster.Objects{}, cluster.Facts{}, err
	}
	return p.Objects, p.Facts, nil
}

// Pass returns the last pass that began at the time or before. Where is a time in RFC 3339, the ID of a decision or pass, or empty for
// the last pass.
func (r *Recording) Pass(where string) (*PassRecord, error) {
	var found *PassRecord
	var at time.Time
	var err error
	if where != "" {
		if at, err = time.Parse(time.RFC3339, where); err != nil {
			return r.passByID(where)
		}
	}
	err = r.Passes(Range{To: at, Last: true}, func(p *PassRecord) error {
		found = p
		return nil
	})
	if err == nil && found == nil {
		err = fmt.Errorf("the recording has no pass at or before %s%s", cmp.Or(where, "its end"), r.spanText())
	}
	return found, err
}

func (r *Recording) spanText() string {
	from, to, ok := r.Span()
	if !ok {
		return "; it is empty"
	}
	return fmt.Sprintf("; it has %s to %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
}

// errStop stops a walk.
var errStop = errors.New("stop")

func (r *Recording) passByID(id string) (*PassRecord, error) {
	wanted := id
	if d, err := r.Decision(id); err == nil {
		wanted = d.Pass
	}
	var found *PassRecord
	err := r.Passes(Range{Pass: wanted}, func(p *PassRecord) error {
		found = p
		return errStop
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	if err == nil && found == nil {
		err = fmt.Errorf("the recording has neither a decision nor a pass %q, or what it saw is no longer recorded%s", id, r.spanText())
	}
	return found, err
}
