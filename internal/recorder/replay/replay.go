// Package replay has the engine decide again what a recording states that it decided, on what it saw, and compares.
package replay

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
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

// Replayer replays passes in their order. It keeps the commands of earlier passes that a later one validates.
type Replayer struct {
	// commands that were found, by the ID that was recorded; and the IDs of the last passes that found some, the oldest first.
	commands map[string]*disrupt.Command
	found    [][]string
}

// keptPasses is for how many passes that found commands these are kept. A command is validated 15 seconds after it was found, in
// which time there are a few passes.
const keptPasses = 20

// Run replays a pass.
func (y *Replayer) Run(p *recorder.PassRecord) (out Pass) {
	out = Pass{ID: p.ID, Kind: p.Kind, At: p.Facts.Now.UTC().Format("2006-01-02T15:04:05.000Z"), Version: p.Version, Calls: []Result{}}
	calls := "snapshot"
	defer func() {
		// A defect of the engine, or a recording that nobody recorded.
		if panicked := recover(); panicked != nil {
			out.Calls = append(out.Calls, Result{Call: calls, Changes: []Change{{Is: fmt.Sprintf("panic: %v", panicked)}}})
		}
	}()
	x := y.newPass(p)
	for _, c := range p.Calls {
		calls = c.Name
		r, relevant := x.run(c)
		if relevant {
			out.Calls = append(out.Calls, r)
		}
	}
	return out
}

func (y *Replayer) newPass(p *recorder.PassRecord) *pass {
	if y.commands == nil {
		y.commands = map[string]*disrupt.Command{}
	}
	snap := p.Excluded.Apply(cluster.BuildSnapshot(p.Objects, p.Facts))
	return &pass{replayer: y, snap: snap}
}

// keep remembers the commands of a pass, and forgets those of old ones.
func (y *Replayer) keep(recorded, now []recorder.CommandRecord, commands []disrupt.Command) {
	var ids []string
	for i := range recorded {
		// The command that is equal but for its ID; a different engine may have found others.
		at := slices.IndexFunc(now, func(c recorder.CommandRecord) bool { return slices.Equal(c.Claims, recorded[i].Claims) })
		if at >= 0 && recorded[i].ID != "" {
			y.commands[recorded[i].ID] = &commands[at]
			ids = append(ids, recorded[i].ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	if y.found = append(y.found, ids); len(y.found) > keptPasses {
		for _, id := range y.found[0] {
			delete(y.commands, id)
		}
		y.found = y.found[1:]
	}
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

// pass is the state of a pass while it is replayed.
type pass struct {
	replayer *Replayer
	snap     *snapshot.Snapshot
	// provisioned is the plan for pods, which that for buffers depends on.
	provisioned *planned
	disruption  *disruption
}
