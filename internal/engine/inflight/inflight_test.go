package inflight_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/inflight"
)

var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// claim is a NodeClaim of a pool.
func claim(name, pool string, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	out := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{karpv1.LabelNodePool: pool}}}
	for _, c := range change {
		c(out)
	}
	return out
}

func deleting(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }

// recorded makes a claim a candidate.
func recorded(r karpv1.DisruptionCommand) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		if err := c.SetDisruptionCommand(&r); err != nil {
			panic(err)
		}
	}
}

// replacing makes a claim a replacement of a command.
func replacing(id string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationReplacementOf, id)
	}
}

func is(types ...string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		for _, typ := range types {
			condition.SetTrue(c, typ, now)
		}
	}
}

// two is a command for two nodes of a pool, which started 4 minutes ago, with replacements that are so far.
func two(states ...inflight.State) inflight.Command {
	c := inflight.Command{
		Record: karpv1.DisruptionCommand{ID: "d-1", Reason: karpv1.DisruptionDrifted, Started: now.Add(-4 * time.Minute)},
		Candidates: []*karpv1.NodeClaim{
			claim("a", "general", is(karpv1.ConditionDrifted)), claim("b", "general", is(karpv1.ConditionDrifted)),
		}, Created: true, Timeout: inflight.Timeout(2),
	}
	for i, s := range states {
		c.Replacements = append(c.Replacements, inflight.Replacement{Name: []string{"x", "y", "z"}[i], Pool: "other", State: s})
	}
	return c
}

func TestNext(t *testing.T) {
	const missing, launching, registered, initialized = inflight.Missing, inflight.Launching, inflight.Registered, inflight.Initialized
	with := func(c inflight.Command, change func(*inflight.Command)) inflight.Command {
		change(&c)
		return c
	}
	gone := func(c *inflight.Command) { c.Candidates = nil }
	matching := func(names ...string) func(*inflight.Command) {
		return func(c *inflight.Command) {
			for _, claim := range c.Candidates {
				if slices.Contains(names, claim.Name) {
					condition.Clear(claim, karpv1.ConditionDrifted, now)
				}
			}
		}
	}
	unhealthy := func(c *inflight.Command) { c.Record.Reason = karpv1.DisruptionUnhealthy }
	unseen := func(c *inflight.Command) { c.Created = false }
	paused := func(c *inflight.Command) { c.Paused = "2 of 2 nodes did not come up" }
	after := func(d time.Duration) func(*inflight.Command) {
		return func(c *inflight.Command) { c.Record.Started = now.Add(-d) }
	}
	tests := []struct {
		name    string
		command inflight.Command
		want    inflight.Step
		says    string
	}{
		{
			name: "the candidates are deleted, or the command was rolled back", command: with(two(initialized), gone),
			want: inflight.Step{Action: inflight.CleanUp},
		},
		{
			name: "nobody deleted nodes that need no replacement: the process has exited", command: two(),
			want: inflight.Step{Action: inflight.RollBack, Why: inflight.Why{Code: inflight.NotCompleted}},
			says: "the process that started it did not complete it",
		},
		{
			name: "nobody created a replacement: the process has exited", command: with(two(launching, missing), unseen),
			want: inflight.Step{Action: inflight.RollBack, Why: inflight.Why{Code: inflight.NotCreated, Replacement: "y"}},
			says: `the process that started it did not create replacement "y"`,
		},
		{
			name: "a replacement could not be launched, and was deleted", command: two(initialized, missing, launching),
			want: inflight.Step{Action: inflight.RollBack, Why: inflight.Why{Code: inflight.Lost, Replacement: "y"}, Failed: 2},
			says: `replacement "y" was deleted`,
		},
		{
			name: "a replacement is not initialized yet", command: two(initialized, registered),
			want: inflight.Step{Action: inflight.Wait, Until: now.Add(6 * time.Minute)},
		},
		{name: "all are", command: two(initialized, initialized), want: inflight.Step{Action: inflight.Delete}},
		{name: "all are, later than planned", command: with(two(initialized), after(time.Hour)), want: inflight.Step{Action: inflight.Delete}},
		{name: "all are, and others do not come up", command: with(two(initialized), paused), want: inflight.Step{Action: inflight.Delete}},
		{
			name: "no node is drifted any more", command: with(two(initialized, initialized), matching("a", "b")),
			want: inflight.Step{Action: inflight.RollBack, Why: inflight.Why{Code: inflight.NotDrifted}},
			says: "its nodes are not drifted any more",
		},
		{
			name: "no node is, and a replacement was deleted, which is no failure", command: with(two(missing), matching("a", "b")),
			want: inflight.Step{Action: inflight.RollBack, Why: inflight.Why{Code: inflight.NotDrifted}},
			says: "its nodes are not drifted any more",
		},
		{name: "one still is", command: with(two(initialized), matching("a")), want: inflight.Step{Action: inflight.Delete}},
		{
			name: "another reason than drift", command: with(with(two(initialized), matching("a", "b")), unhealthy),
			want: inflight.Step{Action: inflight.Delete},
		},
		{
			name: "one is not initialized in time", command: with(two(initialized, registered), after(10*time.Minute)),
			want: inflight.Step{Action: inflight.RollBack, Why: inflight.Why{Code: inflight.Late, Ready: 1, Of: 2}, Failed: 1},
			says: "only 1 of 2 replacements were ready in time",
		},
		{
			name: "one nanosecond before", command: with(two(registered), after(10*time.Minute-1)),
			want: inflight.Step{Action: inflight.Wait, Until: now.Add(1)},
		},
		{
			name: "the breaker has paused such commands", command: with(two(registered, launching), paused),
			want: inflight.Step{
				Action: inflight.RollBack, Why: inflight.Why{Code: inflight.Paused, Pause: "2 of 2 nodes did not come up"}, Failed: 2,
			},
			says: "2 of 2 nodes did not come up",
		},
		{
			name: "it has, and all new nodes have joined", command: with(two(registered, initialized), paused),
			want: inflight.Step{Action: inflight.Wait, Until: now.Add(6 * time.Minute)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := inflight.Next(tt.command, now)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if says := got.Why.String(); says != tt.says {
				t.Errorf("says %q, want %q", says, tt.says)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	for n, want := range map[int]time.Duration{
		1: 10 * time.Minute, 4_000: 10 * time.Minute, 10_000: 13*time.Minute + 20*time.Second, 40_000: 53*time.Minute + 20*time.Second,
		80_000: time.Hour,
	} {
		if got := inflight.Timeout(n); got != want {
			t.Errorf("%d nodes wait: %v, want %v", n, got, want)
		}
	}
}

func TestReplacements(t *testing.T) {
	for _, tt := range []struct {
		name  string
		claim *karpv1.NodeClaim
		want  inflight.State
	}{
		{"it does not exist", nil, inflight.Missing},
		{"it is deleting", claim("x", "general", replacing("d-1"), deleting, is(karpv1.ConditionInitialized)), inflight.Missing},
		{"it is of another command", claim("x", "general", replacing("d-2"), is(karpv1.ConditionInitialized)), inflight.Missing},
		{"it is an ordinary node by now", claim("x", "general", is(karpv1.ConditionInitialized)), inflight.Missing},
		{"it is launched", claim("x", "general", replacing("d-1"), is(karpv1.ConditionLaunched)), inflight.Launching},
		{
			"it has joined", claim("x", "general", replacing("d-1"), is(karpv1.ConditionLaunched, karpv1.ConditionRegistered)),
			inflight.Registered,
		},
		{
			"it is initialized",
			claim("x", "general", replacing("d-1"), is(karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized)),
			inflight.Initialized,
		},
	} {
		got := inflight.ReplacementOf("d-1", "x", tt.claim)
		if got.State != tt.want || got.Name != "x" || (got.Pool == "general") != (tt.want != inflight.Missing) {
			t.Errorf("%s: %+v, want %s", tt.name, got, tt.want)
		}
	}
}

func names(claims []*karpv1.NodeClaim) (out []string) {
	for _, c := range claims {
		out = append(out, c.Name)
	}
	return out
}

// Whichever process started a command, its claims have all of it.
func TestACommandIsReadFromItsClaims(t *testing.T) {
	first := karpv1.DisruptionCommand{ID: "d-1", Reason: karpv1.DisruptionDrifted, Candidates: []string{"a", "b", "c"}}
	second := karpv1.DisruptionCommand{ID: "d-2", Candidates: []string{"x"}}
	invalid := func(c *karpv1.NodeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationDisruptionCommand, "?")
	}
	claims := []karpv1.NodeClaim{
		*claim("a", "general", recorded(first)), *claim("b", "general", recorded(first), deleting), *claim("c", "general", recorded(first)),
		*claim("d", "general", invalid), *claim("x", "general", replacing("d-1"), recorded(second)), *claim("y", "general", replacing("d-1")),
	}
	got := inflight.Of("d-1", claims)
	if diff := cmp.Diff(first, got.Record); diff != "" || !slices.Equal(names(got.Candidates), []string{"a", "c"}) {
		t.Errorf("candidates %v, record (-want +got):\n%s", names(got.Candidates), diff)
	}
	if got := inflight.Of("d-3", claims); len(got.Candidates) > 0 || got.Record.ID != "" {
		t.Errorf("a command that nothing records: %+v", got)
	}
}

func TestWhichPoolsCanHaltACommand(t *testing.T) {
	c := two(inflight.Registered, inflight.Launching)
	c.Candidates = append(c.Candidates, claim("c", "batch"))
	if got := c.Pools(); !slices.Equal(got, []string{"batch", "general", "other"}) {
		t.Errorf("pools %v", got)
	}
	c = two(inflight.Registered, inflight.Initialized)
	if got := c.Pools(); len(got) > 0 {
		t.Errorf("all replacements have joined, and %v can halt the command", got)
	}
}

func TestUndo(t *testing.T) {
	mine, other := karpv1.DisruptionCommand{ID: "d-1"}, karpv1.DisruptionCommand{ID: "d-2"}
	for _, tt := range []struct {
		name            string
		candidates      []*karpv1.NodeClaim
		keep            bool
		restore, others []string
	}{
		{
			name:       "all candidates are restored, with the record or without",
			candidates: []*karpv1.NodeClaim{claim("a", "general", recorded(mine)), claim("b", "general")}, restore: []string{"a", "b"},
		},
		{
			name:       "a candidate is gone: its pods need the replacements",
			candidates: []*karpv1.NodeClaim{claim("a", "general", recorded(mine)), nil}, keep: true, restore: []string{"a"},
		},
		{
			name: "a candidate is deleting", candidates: []*karpv1.NodeClaim{claim("a", "general", recorded(mine), deleting)}, keep: true,
		},
		{
			name: "another command has taken a candidate", candidates: []*karpv1.NodeClaim{claim("a", "general", recorded(other))},
			others: []string{"a"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := inflight.UndoOf("d-1", tt.candidates)
			if got.KeepReplacements != tt.keep || !slices.Equal(names(got.Restore), tt.restore) || !slices.Equal(names(got.Others), tt.others) {
				t.Errorf("keeps %v, restores %v, leaves %v", got.KeepReplacements, names(got.Restore), names(got.Others))
			}
		})
	}
}

func TestWhoNeedsAReplacement(t *testing.T) {
	for _, tt := range []struct {
		name      string
		candidate *karpv1.NodeClaim
		want      bool
	}{
		{"the pods of a candidate that is gone", nil, true},
		{"those of one that is deleting", claim("a", "general", deleting), true},
		{"a candidate that the command goes on with", claim("a", "general", recorded(karpv1.DisruptionCommand{ID: "d-1"})), true},
		{"not one that was restored", claim("a", "general"), false},
		{"not one of another command", claim("a", "general", recorded(karpv1.DisruptionCommand{ID: "d-2"})), false},
	} {
		if got := inflight.Needs("d-1", tt.candidate); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestWhichReplacementsStay(t *testing.T) {
	daemon := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet"}}}}
	kept := daemon.DeepCopy()
	kept.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
	for _, tt := range []struct {
		name string
		pods []*corev1.Pod
		want bool
	}{
		{"nothing runs there", nil, false},
		{"a daemon runs there", []*corev1.Pod{daemon}, false},
		{"a pod that would have to move", []*corev1.Pod{daemon, {}}, true},
		{"a pod that is protected", []*corev1.Pod{kept}, true},
	} {
		if got := inflight.Occupied(tt.pods, now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
