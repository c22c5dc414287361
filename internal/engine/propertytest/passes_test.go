package propertytest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/decisiontext"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// passWorlds is how many worlds passes are decided on.
const passWorlds = 4000

// allWork is what a pass of the controller looks for.
const allWork = pass.Repair | pass.Due | pass.Empty | pass.Replicas | pass.Drift | pass.Expire | pass.Savings

// controllerPass is a pass as the controller makes it.
func controllerPass(s *snapshot.Snapshot, remembers pass.Memory) pass.Input {
	return pass.Input{
		Snapshot: s, Work: allWork, Memory: remembers,
		Settings: pass.Settings{
			Consolidation: consolidate.Settings{MaxSteps: maxHostileSteps, SpotToSpot: len(s.Nodes)%2 == 0}, Validate: true,
			ValidationDelay: 15 * time.Second, MaxDrift: 1, MaxDriftRejections: 5, Reboots: len(s.Nodes)%3 == 0,
			TerminateFirstDrift: len(s.Nodes)%2 == 0, TerminateFirstRepair: len(s.Nodes)%2 == 1,
		},
	}
}

// eachPassWorld calls f with worlds that have nodes.
func eachPassWorld(t *testing.T, f func(seed uint64, s *snapshot.Snapshot)) {
	t.Helper()
	for seed := range uint64(passWorlds) {
		if s := passWorld(seed); len(s.Nodes) > 0 {
			f(seed, s)
		}
	}
}

// passWorld is the world of a seed; each call makes it anew.
func passWorld(seed uint64) *snapshot.Snapshot {
	return seeded(seed + disruptionSeeds).disruptable(seeded(seed).anyWorld())
}

func at(s *snapshot.Snapshot, later time.Duration) *snapshot.Snapshot {
	out := *s
	out.Now = s.Now.Add(later)
	return &out
}

// commandText is a command as far as a proposal has it: its ID and the statistics of its plan are left out.
func commandText(c disrupt.Command) string {
	c.ID, c.Plan.Stats = "", plan.Stats{}
	var out strings.Builder
	decisiontext.Command(&out, &c)
	return out.String()
}

func commandTexts(list []pass.Decision) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = commandText(list[i].Command)
	}
	return out
}

// through is a Memory that was written as JSON and read again.
func through(t *testing.T, m pass.Memory) pass.Memory {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out pass.Memory
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// What a pass proposes starts as it was proposed if nothing has changed when it is due, also after the Memory was written and read.
func TestProposalsStartAsTheyWereProposed(t *testing.T) {
	proposed, launches := 0, 0
	eachPassWorld(t, func(seed uint64, s *snapshot.Snapshot) {
		decided, remembers := pass.Decide(controllerPass(s, pass.Memory{}))
		if len(decided.Propose) == 0 || len(decided.Start) > 0 {
			return
		}
		later := at(s, 15*time.Second)
		work := controllerPass(later, remembers)
		work.Work = pass.Due
		due, _ := pass.Decide(work)
		withDevices := slices.ContainsFunc(remembers.Proposals, func(p pass.Proposal) bool {
			return slices.ContainsFunc(p.Launches, func(l pass.ProposedLaunch) bool { return l.Devices }) ||
				slices.ContainsFunc(p.Placements, func(l pass.ProposedPlacement) bool { return l.Devices })
		})
		want, got := commandTexts(decided.Propose), commandTexts(due.Start)
		for _, d := range due.Dropped { // time alone may make a command wrong: a pod is protected for some time, a node drifts
			if d.Why.Kind == consolidate.Scheduling && strings.Contains(d.Why.Message, "launches other nodes") {
				t.Errorf("seed %d: dropped since %s", seed, d.Why.Message)
			}
		}
		for _, text := range got {
			if !slices.Contains(want, text) {
				t.Errorf("seed %d: starts\n%s\nproposed were\n%s", seed, text, strings.Join(want, "\n"))
			}
		}
		if len(got)+len(due.Dropped) < len(want) {
			t.Errorf("seed %d: %d commands of %d start, %d are dropped", seed, len(got), len(want), len(due.Dropped))
		}
		proposed += len(got)
		for i := range due.Start {
			launches += len(due.Start[i].Plan.Launches)
		}
		if withDevices {
			return
		}
		work.Memory = through(t, remembers)
		again, _ := pass.Decide(work)
		if text := commandTexts(again.Start); !slices.Equal(text, got) {
			t.Errorf("seed %d: with a Memory that was read\n%s\nwithout\n%s", seed, strings.Join(text, "\n"), strings.Join(got, "\n"))
		}
	})
	if proposed < 100 || launches < 30 {
		t.Errorf("%d commands were proposed and started, %d launches: that proves little", proposed, launches)
	}
}

// A pass does not change what it depends on, and decides the same again.
func TestPassesChangeNothing(t *testing.T) {
	eachPassWorld(t, func(seed uint64, s *snapshot.Snapshot) {
		_, remembers := pass.Decide(controllerPass(s, pass.Memory{}))
		in := controllerPass(at(s, 15*time.Second), remembers)
		before, err := json.Marshal(remembers)
		if err != nil {
			t.Fatal(err)
		}
		first, next := pass.Decide(in)
		after, err := json.Marshal(in.Memory)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(before, after) {
			t.Errorf("seed %d: the pass has changed its Memory\nfrom %s\nto   %s", seed, before, after)
		}
		second, nextAgain := pass.Decide(in)
		if a, b := commandTexts(first.Start), commandTexts(second.Start); !slices.Equal(a, b) {
			t.Errorf("seed %d: starts %q, and then %q", seed, a, b)
		}
		a, errA := json.Marshal(next)
		b, errB := json.Marshal(nextAgain)
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("seed %d: remembers\n%s\nand then\n%s", seed, a, b)
		}
	})
}

// No node is in two commands, and what starts fits the budgets.
func TestPassesKeepBudgets(t *testing.T) {
	started := 0
	eachPassWorld(t, func(seed uint64, s *snapshot.Snapshot) {
		decided, remembers := pass.Decide(controllerPass(s, pass.Memory{}))
		for _, later := range []time.Duration{0, 15 * time.Second} {
			if later > 0 {
				decided, _ = pass.Decide(controllerPass(at(s, later), remembers))
			}
			seen := map[types.UID]bool{}
			going := map[string]map[karpv1.DisruptionReason]int{}
			for _, list := range [][]pass.Decision{decided.Start, decided.Propose} {
				for i := range list {
					for _, c := range list[i].Candidates {
						if seen[c.Node.ClaimUID] {
							t.Errorf("seed %d: node %s is in two commands", seed, c.Node.Name)
						}
						seen[c.Node.ClaimUID] = true
						if going[c.Node.Pool] == nil {
							going[c.Node.Pool] = map[karpv1.DisruptionReason]int{}
						}
						if c.Node.Initialized { // a node that never came up uses no budget
							going[c.Node.Pool][list[i].Reason]++
						}
					}
				}
				started += len(list)
			}
			for reason, allowances := range decided.Budgets {
				for _, a := range allowances {
					if n := going[a.Pool.Name][reason]; n > a.Available() {
						t.Errorf("seed %d: %d nodes of %s go for %s, allowed are %d", seed, n, a.Pool.Name, reason, a.Available())
					}
				}
			}
		}
	})
	if started < 500 {
		t.Errorf("%d commands: that proves little", started)
	}
}

// Before the instant that a pass names nothing starts and nothing is proposed, on the same Snapshot.
func TestNothingHappensBeforeAPassWakes(t *testing.T) {
	idle := 0
	eachPassWorld(t, func(seed uint64, s *snapshot.Snapshot) {
		decided, remembers := pass.Decide(controllerPass(s, pass.Memory{}))
		if decided.Wake.IsZero() || !decided.Wake.After(s.Now) {
			return
		}
		idle++
		for _, part := range []time.Duration{2, 1} { // half of the time, and all but a moment
			later := decided.Wake.Sub(s.Now)/part - time.Millisecond
			fresh := controllerPass(at(s, later), remembers)
			fresh.Memory.Search = pass.Search{} // a search is made, whatever the fingerprint
			got, _ := pass.Decide(fresh)
			if len(got.Start)+len(got.Propose) > 0 {
				t.Errorf("seed %d: after %v of %v: starts %q, proposes %q", seed, later, decided.Wake.Sub(s.Now),
					commandTexts(got.Start), commandTexts(got.Propose))
			}
		}
	})
	if idle < 50 {
		t.Errorf("%d passes had nothing to do: that proves little", idle)
	}
}

// A search that is interrupted proposes nothing, and the next one finds what it would have found. The number of the call that stopped it stops
// it again.
func TestInterruptedSearchesProposeNothing(t *testing.T) {
	interrupted := 0
	eachPassWorld(t, func(seed uint64, s *snapshot.Snapshot) {
		in := controllerPass(s, pass.Memory{})
		in.Work = pass.Savings
		whole, _ := pass.Decide(in)
		if len(whole.Propose) == 0 {
			return
		}
		calls := 0
		ended := in
		ended.Interrupt = func() bool { calls++; return calls == 2 }
		got, remembers := pass.Decide(ended)
		if got.Stats.InterruptedAt == 0 {
			return // it was over before
		}
		interrupted++
		if got.Stats.InterruptedAt != 2 || len(got.Propose) > 0 || len(remembers.Proposals) > 0 || !remembers.Search.At.IsZero() {
			t.Errorf("seed %d: ended at call %d, proposes %d", seed, got.Stats.InterruptedAt, len(got.Propose))
		}
		in.Memory = remembers
		if again, _ := pass.Decide(in); !slices.Equal(commandTexts(again.Propose), commandTexts(whole.Propose)) {
			t.Errorf("seed %d: the search after one that was ended finds other commands", seed)
		}
	})
	if interrupted < 20 {
		t.Errorf("%d searches were ended: that proves little", interrupted)
	}
}
