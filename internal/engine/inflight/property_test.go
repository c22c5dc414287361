package inflight_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/inflight"
)

func TestAStepKeepsTheRules(t *testing.T) {
	states := []inflight.State{inflight.Missing, inflight.Launching, inflight.Registered, inflight.Initialized}
	rapid.Check(t, func(t *rapid.T) {
		c := two(rapid.SliceOfN(rapid.SampledFrom(states), 0, 3).Draw(t, "states")...)
		c.Candidates = c.Candidates[:rapid.IntRange(0, 2).Draw(t, "candidates")]
		c.Created = rapid.Bool().Draw(t, "created")
		c.Paused = rapid.SampledFrom([]string{"", "paused"}).Draw(t, "paused")
		c.Record.Started = now.Add(-time.Duration(rapid.IntRange(0, 700).Draw(t, "age")) * time.Second)
		drifted := len(c.Candidates) == 0
		for _, candidate := range c.Candidates {
			if rapid.Bool().Draw(t, "drifted") {
				drifted = true
			} else {
				condition.Clear(candidate, karpv1.ConditionDrifted, now)
			}
		}
		step := inflight.Next(c, now)
		ready := !slices.ContainsFunc(c.Replacements, func(r inflight.Replacement) bool { return r.State != inflight.Initialized })
		if waits := len(c.Candidates) > 0 && len(c.Replacements) > 0; (step.Action == inflight.Delete) != (waits && ready && drifted) {
			t.Errorf("%s with replacements %v", step.Action, c.Replacements)
		}
		if back := step.Action == inflight.RollBack; back != (step.Why.String() != "") || step.Failed > 0 && !back {
			t.Errorf("%s because %q, failed %d", step.Action, step.Why, step.Failed)
		}
		if (step.Action == inflight.Wait) != !step.Until.IsZero() {
			t.Errorf("%s until %v", step.Action, step.Until)
		}
		// Equal facts give equal steps, until time alone changes them.
		later := now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "later")))
		if step.Action == inflight.Wait {
			if at := inflight.Next(c, step.Until); at.Why.Code != inflight.Late {
				t.Errorf("%+v when the time is over", at)
			}
			later = now.Add(time.Duration(rapid.Int64Range(0, int64(step.Until.Sub(now))-1).Draw(t, "before")))
		}
		if diff := cmp.Diff(step, inflight.Next(c, later)); diff != "" {
			t.Errorf("the step changes by itself (-want +got):\n%s", diff)
		}
	})
}

// cluster is all that outlives a process: its claims. Each write may be the last of a process.
type cluster struct {
	*rapid.T
	record karpv1.DisruptionCommand
	claims map[string]*karpv1.NodeClaim
	clock  time.Time
	// created is what the process remembers.
	created bool
	// writes are how many the process makes before it is killed.
	writes int
	// deleted is true once a candidate was deleted by the command or by a person.
	deleted bool
}

// write makes one write, unless the process was killed.
func (w *cluster) write(f func()) {
	if w.writes == 0 {
		return
	}
	w.writes--
	f()
}

// start is what the process does that starts a command: records it on its candidates, and creates the replacements.
func (w *cluster) start() {
	for _, name := range w.record.Candidates {
		w.write(func() { recorded(w.record)(w.claims[name]) })
	}
	for _, name := range w.record.Replacements {
		w.write(func() { w.create(name) })
	}
	w.created = w.writes > 0
}

func (w *cluster) create(name string) {
	if w.claims[name] == nil {
		w.claims[name] = claim(name, "general", replacing(w.record.ID), func(c *karpv1.NodeClaim) {
			c.Annotations[karpv1.AnnotationReplaces] = strings.Join(w.record.Candidates, ",")
		})
	}
}

func (w *cluster) list(names []string) (out []*karpv1.NodeClaim) {
	for _, name := range names {
		out = append(out, w.claims[name])
	}
	return out
}

// delete deletes a claim, which has a finalizer as long as it has an instance.
func (w *cluster) delete(name string) {
	if w.claims[name] == nil {
		return
	}
	if w.claims[name].DeletionTimestamp = new(metav1.NewTime(w.clock)); rapid.Bool().Draw(w.T, "gone") {
		delete(w.claims, name)
	}
	w.deleted = w.deleted || slices.Contains(w.record.Candidates, name)
}

// read is the command as the claims have it.
func (w *cluster) read() inflight.Command {
	var all []karpv1.NodeClaim
	for _, name := range append(slices.Clone(w.record.Candidates), w.record.Replacements...) {
		if c := w.claims[name]; c != nil {
			all = append(all, *c)
		}
	}
	c := inflight.Of(w.record.ID, all)
	for _, name := range c.Record.Replacements {
		c.Replacements = append(c.Replacements, inflight.ReplacementOf(c.Record.ID, name, w.claims[name]))
	}
	c.Created, c.Timeout = w.created, inflight.Timeout(len(c.Candidates))
	c.Paused = rapid.SampledFrom([]string{"", "", "", "paused"}).Draw(w.T, "paused")
	return c
}

// reconcile performs the next step.
func (w *cluster) reconcile() {
	c := w.read()
	step := inflight.Next(c, w.clock)
	switch step.Action {
	case inflight.Wait:
		w.created = true
	case inflight.Delete:
		for _, r := range w.record.Replacements {
			if made := w.claims[r]; made == nil || made.DeletionTimestamp != nil || !condition.IsTrue(made, karpv1.ConditionInitialized) {
				w.Errorf("candidates are deleted before replacement %s is initialized", r)
			}
		}
		for _, candidate := range c.Candidates {
			w.write(func() { w.delete(candidate.Name) })
		}
	case inflight.RollBack:
		undo := inflight.UndoOf(c.Record.ID, w.list(c.Record.Candidates))
		if undo.KeepReplacements != w.deleted {
			w.Errorf("a candidate was deleted is %v, and the replacements stay is %v", w.deleted, undo.KeepReplacements)
		}
		for _, name := range c.Record.Replacements {
			if !undo.KeepReplacements {
				w.write(func() { w.delete(name) })
			}
		}
		for _, candidate := range undo.Restore {
			w.write(func() { delete(candidate.Annotations, karpv1.AnnotationDisruptionCommand) })
		}
	case inflight.CleanUp:
		for _, name := range w.record.Replacements {
			made := w.claims[name]
			needed := func(of *karpv1.NodeClaim) bool { return inflight.Needs(w.record.ID, of) }
			if made != nil && made.DeletionTimestamp == nil && !slices.ContainsFunc(w.list(made.Replaces()), needed) {
				if w.deleted {
					w.Errorf("replacement %s is deleted, and a candidate before it", name)
				}
				w.write(func() { w.delete(name) })
			}
		}
	}
}

// happens is what others do: nodes come up, claims are deleted, an earlier process creates one late.
func (w *cluster) happens() {
	name := rapid.SampledFrom(append(slices.Clone(w.record.Candidates), w.record.Replacements...)).Draw(w.T, "whose")
	c := w.claims[name]
	isReplacement := slices.Contains(w.record.Replacements, name)
	switch what := rapid.IntRange(0, 9).Draw(w.T, "what"); {
	case what == 0:
		w.delete(name)
	case what == 1 && isReplacement:
		w.create(name)
	case what == 2:
		w.clock = w.clock.Add(5 * time.Minute)
	case c != nil && isReplacement && condition.IsTrue(c, karpv1.ConditionRegistered):
		is(karpv1.ConditionInitialized)(c)
	case c != nil && isReplacement:
		is(karpv1.ConditionRegistered)(c)
	}
}

// However often processes are killed, a command is carried through or rolled back: in the end no claim has it on record. If no candidate
// was deleted, no replacement is left, and if one was, nothing of the command deletes its replacements.
func TestACommandIsCarriedThroughOrRolledBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &cluster{T: t, claims: map[string]*karpv1.NodeClaim{}, clock: now, writes: rapid.IntRange(0, 8).Draw(t, "writes")}
		w.record = karpv1.DisruptionCommand{
			ID: "d-1", Started: now, Candidates: []string{"a", "b"}[:rapid.IntRange(1, 2).Draw(t, "candidates")],
			Replacements: []string{"x", "y"}[:rapid.IntRange(0, 2).Draw(t, "replacements")],
		}
		for _, name := range w.record.Candidates {
			w.claims[name] = claim(name, "general")
		}
		w.start()
		for range rapid.IntRange(0, 12).Draw(t, "events") {
			w.happens()
			if rapid.Bool().Draw(t, "killed") {
				w.created, w.writes = false, rapid.IntRange(0, 3).Draw(t, "writes")
			}
			w.reconcile()
		}
		w.writes, w.clock = 100, w.clock.Add(time.Hour)
		for range 3 {
			w.reconcile()
		}
		for _, name := range w.record.Candidates {
			if c := w.claims[name]; c != nil && c.DeletionTimestamp == nil && c.Annotations[karpv1.AnnotationDisruptionCommand] != "" {
				t.Errorf("claim %s still has the command on record", name)
			}
		}
		for _, name := range w.record.Replacements {
			if c := w.claims[name]; c != nil && c.DeletionTimestamp == nil && !w.deleted {
				t.Errorf("replacement %s is left, and no candidate was deleted", name)
			}
		}
	})
}
