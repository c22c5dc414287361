// dovetail-demo records a day of a small shop, for the demo on the documentation's site: the engine decides, in simulated time, and what
// stands for EC2, kubelets and kube-scheduler does what they would. Traffic follows the hour, jobs run at night, one deployment names a
// zone that does not exist, and in the morning a new image makes nodes drift. Prices and instance types are those of the offline catalog.
// Each run writes the same decisions.
//
//	go run ./cmd/dovetail-demo bin/day.rec
package main

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

const (
	// dayLength is how long is recorded, warmUp how long the cluster lives before: the record begins with its usual nodes.
	dayLength, warmUp = 24 * time.Hour, 2 * time.Hour
	// step is the time between two looks at the cluster.
	step = 20 * time.Second
	// size bounds the recording, in bytes. It needs far less.
	size = 64 << 20
)

// start is the midnight at which the record begins.
func start() time.Time { return time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC) }

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dovetail-demo FILE")
		os.Exit(2)
	}
	if err := record(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "dovetail-demo:", err)
		os.Exit(1)
	}
}

func record(path string) error {
	w, err := newWorld(start().Add(-warmUp))
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) { // a recording that exists is continued
		return err
	}
	for ; w.now.Before(start()); w.now = w.now.Add(step) {
		w.run(nil)
	}
	r, err := recorder.New(recorder.Config{
		Path: path, Size: size, Version: "demo", Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Now: func() time.Time { return w.now },
	})
	if err != nil {
		return err
	}
	defer r.Close()
	for ; w.now.Before(start().Add(dayLength)); w.now = w.now.Add(step) {
		w.run(r)
	}
	return nil
}

// run is one look: what has happened meanwhile, then a pass for the pods that wait, then one over the nodes.
func (w *world) run(r *recorder.Recorder) {
	w.scale()
	w.drift()
	w.joinNodes(r)
	w.advance(r)
	w.bind()
	w.judge()
	w.provision(r)
	w.disrupt(r)
}

// snapshot is what a pass sees.
func (w *world) snapshot(r *recorder.Recorder) *snapshot.Snapshot {
	objects, facts := w.objects(), w.facts()
	s := cluster.BuildSnapshot(objects, facts)
	r.Saw(s, &objects, &facts)
	return s
}

// provision launches nodes for the pods that wait.
func (w *world) provision(r *recorder.Recorder) {
	if !w.waiting() {
		return
	}
	s := w.snapshot(r)
	rec := r.Begin(recorder.Provisioning, s, s)
	plan := schedule.Solve(s, schedule.DefaultBudget())
	for i := range plan.Launches {
		plan.Launches[i].ID = fmt.Sprintf("%s-%d", rec.ID(), i)
	}
	if len(plan.Launches) > 0 {
		rec.Call(recorder.CallSolve, recorder.SolveInput{}, recorder.RecordPlan(&plan))
		for i := range plan.Launches {
			rec.Decide(recorder.LaunchDecision(s, &plan.Launches[i]))
		}
	}
	rec.Commit()
	for i := range plan.Launches {
		w.launch(r, &plan.Launches[i])
	}
}

// disrupt removes and replaces nodes.
func (w *world) disrupt(r *recorder.Recorder) {
	s := w.snapshot(r)
	rec := r.Begin(recorder.Disruption, s, s)
	in := pass.Input{
		Snapshot: s, Work: pass.Due | pass.Empty | pass.Drift | pass.Savings, Memory: w.memory, Settings: pass.Settings{
			Consolidation: consolidate.Settings{MaxSteps: consolidate.DefaultMaxSteps}, Validate: true, ValidationDelay: pass.ValidationDelay,
			MaxDrift: 1, MaxDriftRejections: pass.MaxSimulations,
		},
	}
	decided, memory := pass.Decide(in)
	w.identify(&decided, &memory)
	w.recordDecided(r, rec, &in, &decided)
	w.memory = memory
	rec.Commit()
	for i := range decided.Start {
		w.begin(r, &decided.Start[i].Command)
	}
}

// identify gives commands their IDs.
func (w *world) identify(decided *pass.Decisions, memory *pass.Memory) {
	for i := range decided.Start {
		if c := &decided.Start[i]; c.ID == "" {
			c.ID = w.newID()
		}
	}
	proposed := memory.Proposals[len(memory.Proposals)-len(decided.Propose):]
	for i := range decided.Propose {
		c := &decided.Propose[i]
		if c.ConsolidationType == disrupt.TypeEmpty {
			continue // it gets one when it starts
		}
		c.ID = w.newID()
		proposed[i].ID = c.ID
		for k := range decided.Found.Commands {
			if found := &decided.Found.Commands[k]; found.Candidates[0] == c.Candidates[0] {
				found.ID = c.ID
			}
		}
	}
}

// recordDecided records a pass over the nodes as the controller does.
func (w *world) recordDecided(r *recorder.Recorder, rec *recorder.Pass, in *pass.Input, decided *pass.Decisions) {
	for i := range decided.Dropped {
		if d := &decided.Dropped[i]; !d.Part && d.Proposal.ID != "" {
			r.Step(recorder.Step{Decision: d.Proposal.ID, At: w.now, What: recorder.StepRejected, Message: d.Why.Message})
		}
	}
	if !decided.Idle() {
		rec.Call(recorder.CallPass, recorder.RecordInput(in, decided), recorder.RecordDecisions(decided))
	}
	for i := range decided.Start {
		c := &decided.Start[i]
		if c.Validated && c.ConsolidationType != disrupt.TypeEmpty {
			r.Step(recorder.Step{
				Decision: c.ID, At: w.now, What: recorder.StepValidated,
				Message: "its pods still fit elsewhere for less, and the budgets allow it",
			})
			continue // it is recorded since it was proposed
		}
		rec.Decide(recorder.CommandDecision(&c.Command, recorder.Basis{Snapshot: in.Snapshot, Allowances: c.Allowances}))
	}
	for i := range decided.Propose {
		if c := &decided.Propose[i]; c.ConsolidationType != disrupt.TypeEmpty {
			rec.Decide(recorder.CommandDecision(&c.Command, recorder.Basis{
				Snapshot: in.Snapshot, Allowances: c.Allowances, Found: decided.Found,
			}))
		}
	}
}

// step records that something happened to a claim after a decision.
func (w *world) step(r *recorder.Recorder, decision string, what recorder.StepKind, claim string) {
	r.Step(recorder.Step{Decision: decision, At: w.now, What: what, Object: claim})
}
