// Package replay has the engine decide again what a recording states that it decided, on what it saw, and compares.
package replay

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// Result is one call of the engine, replayed.
type Result struct {
	Call string `json:"call"`
	// Same is true if the engine decided as it did.
	Same bool `json:"same"`
	// Skipped is why the call could not be replayed; empty if it was.
	Skipped string `json:"skipped,omitempty"`
	// Changes are the differences, in words: what was decided, and what is decided now.
	Changes []Change `json:"changes"`
}

// Change is one difference. Was or Is is empty if there is none.
type Change struct {
	Was string `json:"was,omitempty"`
	Is  string `json:"is,omitempty"`
}

// Pass is a pass, replayed.
type Pass struct {
	ID      string            `json:"id"`
	Kind    recorder.PassKind `json:"kind"`
	At      string            `json:"at"`
	Version string            `json:"version,omitempty"`
	Calls   []Result          `json:"calls"`
}

// Same reports whether every call that was replayed decided as it did.
func (p *Pass) Same() bool {
	return !slices.ContainsFunc(p.Calls, func(r Result) bool { return !r.Same })
}

// Run replays a pass.
func Run(p *recorder.PassRecord) (out Pass) {
	out = Pass{ID: p.ID, Kind: p.Kind, At: p.Facts.Now.UTC().Format("2006-01-02T15:04:05.000Z"), Version: p.Version, Calls: []Result{}}
	calls := "snapshot"
	defer func() {
		// A defect of the engine, or a recording that nobody recorded.
		if panicked := recover(); panicked != nil {
			out.Calls = append(out.Calls, Result{Call: calls, Changes: []Change{{Is: fmt.Sprintf("panic: %v", panicked)}}})
		}
	}()
	x := newReplayed(p)
	for _, c := range p.Calls {
		calls = c.Name
		r, relevant := x.run(c)
		if relevant {
			out.Calls = append(out.Calls, r)
		}
	}
	return out
}

func newReplayed(p *recorder.PassRecord) *replayed {
	snap := p.Excluded.Apply(cluster.BuildSnapshot(p.Objects, p.Facts))
	return &replayed{snap: snap}
}

// call decodes a recorded call, runs it, and compares. The result of run is nil if the call decides nothing.
func call[In, Out any](
	c recorder.CallRecord, run func(in *In, was *Out) (*Out, string), differ func(was, is *Out) []Change,
) (Result, bool) {
	r := Result{Call: c.Name, Changes: []Change{}}
	var in In
	var was Out
	for _, part := range []struct {
		data json.RawMessage
		into any
	}{{c.In, &in}, {c.Out, &was}} {
		if len(part.data) == 0 {
			continue
		}
		if err := json.Unmarshal(part.data, part.into); err != nil {
			r.Same, r.Skipped = true, fmt.Sprintf("its record cannot be read: %v", err)
			return r, true
		}
	}
	is, skipped := run(&in, &was)
	if skipped != "" {
		r.Same, r.Skipped = true, skipped
		return r, true
	}
	if is == nil {
		return r, false
	}
	is, err := asRead(is)
	if err != nil {
		r.Changes = append(r.Changes, Change{Is: fmt.Sprintf("its result cannot be recorded: %v", err)})
		return r, true
	}
	if r.Changes = append(r.Changes, differ(&was, is)...); len(r.Changes) == 0 {
		r.Same = true
	}
	return r, true
}

// asRead returns a result as it is read from a recording, where an empty list and none are the same.
func asRead[T any](v *T) (*T, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, json.Unmarshal(data, out)
}

// replayed is the state of a pass while it is replayed.
type replayed struct {
	snap *snapshot.Snapshot
	// provisioned is the plan for pods, which that for buffers depends on.
	provisioned *planned
}
