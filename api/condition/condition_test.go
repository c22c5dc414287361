package condition_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
)

// thing is an object with two dependents, A and B, and an optional one, O.
type thing struct {
	metav1.ObjectMeta
	conditions []metav1.Condition
}

func (t *thing) GetConditions() []metav1.Condition           { return t.conditions }
func (t *thing) SetConditions(conditions []metav1.Condition) { t.conditions = conditions }
func (t *thing) ConditionTypes() condition.Types {
	return condition.Types{Dependents: []string{"A", "B"}, Optional: []string{"O"}}
}

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// minute is the instant n minutes after the thing was created.
func minute(n int) time.Time { return created.Add(time.Duration(n) * time.Minute) }

func newThing() *thing {
	return &thing{ObjectMeta: metav1.ObjectMeta{Generation: 1, CreationTimestamp: metav1.NewTime(created)}}
}

// lines writes conditions one a line: type, status, reason, message, generation, minutes after creation.
func lines(conditions []metav1.Condition) (out []string) {
	for _, c := range conditions {
		out = append(out, cell(c.Type)+cell(string(c.Status))+cell(c.Reason)+cell(c.Message)+
			"gen "+string(rune('0'+c.ObservedGeneration))+" +"+c.LastTransitionTime.Sub(created).String())
	}
	return out
}

func cell(s string) string { return s + " | " }

func TestConditions(t *testing.T) {
	const waiting = "AwaitingReconciliation | object is awaiting reconciliation | "
	tests := []struct {
		name string
		do   func(*thing)
		want []string
	}{
		{
			name: "nothing is stored by reading",
			do: func(o *thing) {
				condition.All(o)
				condition.Get(o, "A")
				condition.IsTrue(o, "A")
			},
		},
		{
			name: "missing ones are Unknown since creation",
			do:   func(o *thing) { condition.Initialize(o) },
			want: []string{
				"A | Unknown | " + waiting + "gen 1 +0s",
				"B | Unknown | " + waiting + "gen 1 +0s",
				"Ready | Unknown | " + waiting + "gen 1 +0s",
			},
		},
		{
			name: "True has its type as reason; the one that changed last comes before the root",
			do:   func(o *thing) { condition.SetTrue(o, "A", minute(1)) },
			want: []string{
				"B | Unknown | " + waiting + "gen 1 +0s",
				"A | True | A |  | gen 1 +1m0s",
				"Ready | Unknown | ReconcilingDependents | B=Unknown | gen 1 +0s",
			},
		},
		{
			name: "staying Unknown keeps the time since creation",
			do:   func(o *thing) { condition.SetUnknown(o, "A", condition.Because("LaunchFailed", "no"), minute(3)) },
			want: []string{
				"A | Unknown | LaunchFailed | no | gen 1 +0s",
				"B | Unknown | " + waiting + "gen 1 +0s",
				"Ready | Unknown | ReconcilingDependents | B=Unknown, A=Unknown | gen 1 +0s",
			},
		},
		{
			name: "all dependents True make the root True",
			do: func(o *thing) {
				condition.SetTrue(o, "A", minute(1))
				condition.SetTrue(o, "B", minute(2))
			},
			want: []string{
				"A | True | A |  | gen 1 +1m0s",
				"B | True | B |  | gen 1 +2m0s",
				"Ready | True | Ready |  | gen 1 +2m0s",
			},
		},
		{
			name: "one False dependent makes the root False",
			do: func(o *thing) {
				condition.SetFalse(o, "A", condition.Because("Broken", "it is broken"), minute(1))
			},
			want: []string{
				"B | Unknown | " + waiting + "gen 1 +0s",
				"A | False | Broken | it is broken | gen 1 +1m0s",
				"Ready | False | UnhealthyDependents | A=False, B=Unknown | gen 1 +1m0s",
			},
		},
		{
			name: "the message names the last that changed first, and of one second the one that follows from the others",
			do: func(o *thing) {
				condition.SetFalse(o, "A", condition.Because("Broken", ""), minute(1))
				condition.SetFalse(o, "B", condition.Because("DependenciesNotReady", ""), minute(1))
			},
			want: []string{
				"A | False | Broken |  | gen 1 +1m0s",
				"B | False | DependenciesNotReady |  | gen 1 +1m0s",
				"Ready | False | UnhealthyDependents | B=False, A=False | gen 1 +1m0s",
			},
		},
		{
			name: "independent ones do not count, and begin now",
			do: func(o *thing) {
				condition.SetTrue(o, "A", minute(1))
				condition.SetTrue(o, "B", minute(2))
				condition.SetFalse(o, "X", condition.Because("Off", ""), minute(3))
			},
			want: []string{
				"A | True | A |  | gen 1 +1m0s",
				"B | True | B |  | gen 1 +2m0s",
				"X | False | Off |  | gen 1 +3m0s",
				"Ready | True | Ready |  | gen 1 +2m0s",
			},
		},
		{
			name: "an optional one counts while it is there",
			do: func(o *thing) {
				condition.SetTrue(o, "A", minute(1))
				condition.SetTrue(o, "B", minute(1))
				condition.SetUnknown(o, "O", condition.Because("Asking", ""), minute(2))
			},
			want: []string{
				"A | True | A |  | gen 1 +1m0s",
				"B | True | B |  | gen 1 +1m0s",
				"O | Unknown | Asking |  | gen 1 +2m0s",
				"Ready | Unknown | ReconcilingDependents | O=Unknown | gen 1 +2m0s",
			},
		},
		{
			name: "and no longer once cleared",
			do: func(o *thing) {
				condition.SetTrue(o, "A", minute(1))
				condition.SetTrue(o, "B", minute(1))
				condition.SetUnknown(o, "O", condition.Because("Asking", ""), minute(2))
				condition.Clear(o, "O", minute(3))
			},
			want: []string{
				"A | True | A |  | gen 1 +1m0s",
				"B | True | B |  | gen 1 +1m0s",
				"Ready | True | Ready |  | gen 1 +3m0s",
			},
		},
		{
			name: "dependents and root cannot be cleared, nor the root set",
			do: func(o *thing) {
				condition.Initialize(o)
				condition.Clear(o, "A", minute(1))
				condition.Clear(o, "Ready", minute(1))
				condition.SetTrue(o, "Ready", minute(1))
			},
			want: []string{
				"A | Unknown | " + waiting + "gen 1 +0s",
				"B | Unknown | " + waiting + "gen 1 +0s",
				"Ready | Unknown | " + waiting + "gen 1 +0s",
			},
		},
		{
			name: "a new reason or message does not move the time",
			do: func(o *thing) {
				condition.SetFalse(o, "X", condition.Because("Off", "one"), minute(1))
				condition.SetFalse(o, "X", condition.Because("Out", "two"), minute(2))
			},
			want: []string{
				"A | Unknown | " + waiting + "gen 1 +0s",
				"B | Unknown | " + waiting + "gen 1 +0s",
				"X | False | Out | two | gen 1 +1m0s",
				"Ready | Unknown | ReconcilingDependents | B=Unknown, A=Unknown | gen 1 +0s",
			},
		},
		{
			name: "what was judged at an older generation is no longer believed",
			do: func(o *thing) {
				condition.SetTrue(o, "A", minute(1))
				condition.SetFalse(o, "B", condition.Because("Broken", ""), minute(1))
				o.Generation = 2
				condition.SetTrue(o, "A", minute(2))
			},
			want: []string{
				"A | True | A |  | gen 2 +1m0s",
				"B | False | Broken |  | gen 1 +1m0s",
				"Ready | Unknown | ReconcilingDependents | B=False | gen 2 +2m0s",
			},
		},
		{
			name: "while deleting, the others' generation is carried along",
			do: func(o *thing) {
				condition.SetTrue(o, "A", minute(1))
				condition.SetTrue(o, "B", minute(1))
				o.Generation = 2
				o.DeletionTimestamp = &metav1.Time{Time: minute(5)}
				condition.SetTrue(o, "X", minute(6))
			},
			want: []string{
				"A | True | A |  | gen 2 +1m0s",
				"B | True | B |  | gen 2 +1m0s",
				"X | True | X |  | gen 2 +6m0s",
				"Ready | True | Ready |  | gen 2 +1m0s",
			},
		},
		{
			name: "times are whole seconds, as the API server keeps them",
			do:   func(o *thing) { condition.SetTrue(o, "A", minute(1).Add(999*time.Millisecond)) },
			want: []string{
				"B | Unknown | " + waiting + "gen 1 +0s",
				"A | True | A |  | gen 1 +1m0s",
				"Ready | Unknown | ReconcilingDependents | B=Unknown | gen 1 +0s",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := newThing()
			tt.do(o)
			if diff := cmp.Diff(tt.want, lines(o.conditions)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSettersTellWhetherThereIsSomethingToWrite(t *testing.T) {
	o := newThing()
	steps := []struct {
		name string
		do   func() bool
		want bool
	}{
		{"first initialization", func() bool { return condition.Initialize(o) }, true},
		{"second initialization", func() bool { return condition.Initialize(o) }, false},
		{"new status", func() bool { return condition.SetTrue(o, "A", minute(1)) }, true},
		{"same again, later", func() bool { return condition.SetTrue(o, "A", minute(2)) }, false},
		{"new message", func() bool { return condition.SetTrueWithReason(o, "A", condition.Because("A", "m"), minute(2)) }, true},
		{"clear what is absent", func() bool { return condition.Clear(o, "X", minute(2)) }, false},
		{"clear a dependent", func() bool { return condition.Clear(o, "A", minute(2)) }, false},
		{"set the root", func() bool { return condition.SetTrue(o, "Ready", minute(2)) }, false},
		{"new independent", func() bool { return condition.SetTrue(o, "X", minute(2)) }, true},
		{"clear it", func() bool { return condition.Clear(o, "X", minute(2)) }, true},
		{"same at a new generation", func() bool {
			o.Generation++
			return condition.SetTrueWithReason(o, "A", condition.Because("A", "m"), minute(3))
		}, true},
	}
	for _, s := range steps {
		if got := s.do(); got != s.want {
			t.Errorf("%s: changed = %v, want %v", s.name, got, s.want)
		}
	}
}

func TestReading(t *testing.T) {
	o := newThing()
	if !condition.IsUnknown(o, "A", "B", "Ready") || condition.IsUnknown(o, "X") {
		t.Error("dependents and root are Unknown before anybody set them, others are absent")
	}
	if c, ok := condition.Get(o, "A"); !ok || c.LastTransitionTime.Time != created {
		t.Errorf("a dependent that nobody set counts from creation, not %v", c.LastTransitionTime)
	}
	condition.SetTrue(o, "A", minute(1))
	condition.SetFalse(o, "B", condition.Because("Broken", ""), minute(1))
	if !condition.IsTrue(o, "A") || condition.IsTrue(o, "A", "B") || !condition.IsFalse(o, "B", "Ready") {
		t.Errorf("unexpected: %v", lines(o.conditions))
	}
	condition.SetTrue(o, "B", minute(2))
	if !condition.IsReady(o) {
		t.Error("not ready though all dependents are True")
	}
	o.Generation++
	if condition.IsReady(o) || !condition.IsTrue(o, "Ready") {
		t.Error("ready must be judged at the object's generation")
	}
}

func TestResultsShareNothing(t *testing.T) {
	o := newThing()
	condition.Initialize(o)
	before := lines(o.conditions)
	all := condition.All(o)
	all[0].Status = metav1.ConditionTrue
	copied := o.conditions
	condition.SetTrue(o, "A", minute(1))
	if diff := cmp.Diff(before, lines(copied)); diff != "" {
		t.Errorf("a slice handed out before was written to:\n%s", diff)
	}
}

// guarded is an object that V can veto.
type guarded struct{ thing }

func (g *guarded) ConditionTypes() condition.Types {
	types := g.thing.ConditionTypes()
	types.Vetoes = []string{"V"}
	return types
}

// A veto counts only while it is False, and then the root states why.
func TestVeto(t *testing.T) {
	o := &guarded{*newThing()}
	condition.SetTrue(o, "A", minute(1))
	condition.SetTrue(o, "B", minute(1))
	for _, tt := range []struct {
		status metav1.ConditionStatus
		want   string
	}{
		{metav1.ConditionUnknown, "True Ready "},
		{metav1.ConditionFalse, "False Because it is so"},
		{metav1.ConditionTrue, "True Ready "},
		{metav1.ConditionFalse, "False Because it is so"},
	} {
		condition.Set(o, metav1.Condition{Type: "V", Status: tt.status, Reason: "Because", Message: "it is so"}, minute(2))
		root, _ := condition.Get(o, condition.Ready)
		if got := string(root.Status) + " " + root.Reason + " " + root.Message; got != tt.want {
			t.Errorf("V=%s: Ready=%q, want %q", tt.status, got, tt.want)
		}
	}
	condition.Clear(o, "V", minute(3))
	if !condition.IsReady(o) {
		t.Error("the veto is gone, and the object is not ready")
	}
	condition.SetFalse(o, "V", condition.Because("Because", "it is so"), minute(4))
	o.Generation = 2
	condition.SetTrue(o, "A", minute(5))
	condition.SetTrue(o, "B", minute(5))
	if !condition.IsReady(o) {
		t.Error("a veto of an earlier generation counts")
	}
}
