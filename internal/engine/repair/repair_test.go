package repair_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
)

const gpu = "AcceleratedHardwareReady"

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func minutes(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Minute} }

func bound(n int) *metav1.Duration {
	d := minutes(n)
	return &d
}

// policies has a clearable and a fatal fault of GPUs, the fallback, and a node that is not Ready.
func policies(t *testing.T) *repair.Policies {
	t.Helper()
	s, err := repair.Compile([]karpv1.RepairPolicy{
		{
			Condition: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: ".*", Toleration: minutes(30),
			TerminationGracePeriod: bound(10), Action: karpv1.RepairReplace,
		},
		{
			Condition: gpu, Status: corev1.ConditionFalse, Reason: "Clearable", Toleration: minutes(10), TerminationGracePeriod: bound(5),
			Action: karpv1.RepairReboot,
		},
		{
			Condition: gpu, Status: corev1.ConditionFalse, Reason: "Fatal", Toleration: minutes(20), TerminationGracePeriod: bound(8),
			Priority: 50, Action: karpv1.RepairReplace,
		},
		{Condition: gpu, Status: corev1.ConditionFalse, Toleration: minutes(30), Action: karpv1.RepairReplace},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// node was created at the start, with conditions given as type, status, reason and minutes after the start.
func node(conditions ...corev1.NodeCondition) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: metav1.NewTime(start)}}
	n.Status.Conditions = conditions
	return n
}

func cond(typ corev1.NodeConditionType, status corev1.ConditionStatus, reason string, since int) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: typ, Status: status, Reason: reason,
		LastTransitionTime: metav1.NewTime(start.Add(time.Duration(since) * time.Minute)),
	}
}

func TestDecide(t *testing.T) {
	noBound := time.Duration(-1)
	for _, tc := range []struct {
		name       string
		conditions []corev1.NodeCondition
		reboots    repair.Reboots
		at         int // minutes after the start
		action     karpv1.RepairAction
		cause      string
		bound      time.Duration
		escalated  bool
	}{
		{
			name: "a reason that no policy names is covered by the fallback", at: 30,
			conditions: []corev1.NodeCondition{cond(gpu, "False", "Unheard", 0)},
			action:     karpv1.RepairReplace, cause: "Unheard", bound: noBound,
		},
		{
			name: "the fallback tolerates longer", at: 29,
			conditions: []corev1.NodeCondition{cond(gpu, "False", "Unheard", 0)},
		},
		{
			name: "a condition that no policy names is never repaired", at: 10000,
			conditions: []corev1.NodeCondition{cond(corev1.NodeDiskPressure, "True", "Full", 0), cond(gpu, "True", "Fine", 0)},
		},
		{
			name: "replacement wins over a reboot, with the shortest bound of both", at: 20,
			conditions: []corev1.NodeCondition{cond(gpu, "False", "ClearableAndFatal", 0)},
			action:     karpv1.RepairReplace, cause: "ClearableAndFatal", bound: 5 * time.Minute,
		},
		{
			name: "a fatal fault that is still tolerated does not count", at: 19,
			conditions: []corev1.NodeCondition{cond(gpu, "False", "ClearableAndFatal", 0)},
			action:     karpv1.RepairReboot, cause: "ClearableAndFatal", bound: 5 * time.Minute,
		},
		{
			name: "a transition before the Node existed counts from its creation", at: 9,
			conditions: []corev1.NodeCondition{cond(gpu, "False", "Clearable", -60)},
		},
		{
			name: "the creation ends the wait ten minutes later", at: 10,
			conditions: []corev1.NodeCondition{cond(gpu, "False", "Clearable", -60)},
			action:     karpv1.RepairReboot, cause: "Clearable", bound: 5 * time.Minute,
		},
		{
			name: "the toleration starts anew at the end of a reboot", at: 69,
			conditions: []corev1.NodeCondition{cond(gpu, "False", "Clearable", 0)},
			reboots:    repair.Reboots{Ended: start.Add(time.Hour), Started: []time.Time{start.Add(50 * time.Minute)}},
		},
		{
			name: "the second reboot", at: 70,
			conditions: []corev1.NodeCondition{cond(gpu, "False", "Clearable", 0)},
			reboots:    repair.Reboots{Ended: start.Add(time.Hour), Started: []time.Time{start.Add(50 * time.Minute)}},
			action:     karpv1.RepairReboot, cause: "Clearable", bound: 5 * time.Minute,
		},
		{
			name: "the third time the node is replaced", at: 70,
			conditions: []corev1.NodeCondition{cond(gpu, "False", "Clearable", 0)},
			reboots: repair.Reboots{
				Ended: start.Add(time.Hour), Started: []time.Time{start.Add(20 * time.Minute), start.Add(50 * time.Minute)},
			},
			action: karpv1.RepairReplace, cause: "Clearable", bound: 5 * time.Minute, escalated: true,
		},
		{
			name: "reboots of the day before do not count", at: 24*60 + 51,
			conditions: []corev1.NodeCondition{cond(gpu, "False", "Clearable", 0)},
			reboots: repair.Reboots{
				Ended: start.Add(time.Hour), Started: []time.Time{start.Add(20 * time.Minute), start.Add(50 * time.Minute)},
			},
			action: karpv1.RepairReboot, cause: "Clearable", bound: 5 * time.Minute,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := start.Add(time.Duration(tc.at) * time.Minute)
			d, due := repair.Decide(policies(t).Faults(node(tc.conditions...)), &tc.reboots, now)
			if due != (tc.action != "") {
				t.Fatalf("due: %t, want %t", due, tc.action != "")
			}
			if !due {
				return
			}
			if d.Action != tc.action || d.Cause.Condition.Reason != tc.cause || d.Escalated != tc.escalated {
				t.Errorf("%s for %s (escalated: %t), want %s for %s (%t)",
					d.Action, d.Cause.Condition.Reason, d.Escalated, tc.action, tc.cause, tc.escalated)
			}
			if got := d.Bound; (got == nil) != (tc.bound == noBound) || got != nil && *got != tc.bound {
				t.Errorf("bound %v, want %v", got, tc.bound)
			}
		})
	}
}

// A fault waits half an hour to overtake one of the next higher priority.
func TestScoreIsPriorityAndAge(t *testing.T) {
	s := policies(t)
	score := func(reason string, due int) float64 {
		d, ok := repair.Decide(s.Faults(node(cond(gpu, "False", reason, 0))), &repair.Reboots{}, start.Add(time.Duration(due)*time.Minute))
		if !ok {
			t.Fatalf("%s is not due", reason)
		}
		return d.Score
	}
	if got := score("Clearable", 10); got != 0 {
		t.Errorf("just due, lowest priority: score %v, want 0", got)
	}
	if got := score("Clearable", 40); got != 1 {
		t.Errorf("due for 30 minutes: score %v, want 1", got)
	}
	if got := score("Fatal", 20); got != 1 {
		t.Errorf("just due, next priority: score %v, want 1", got)
	}
}

func TestNextDue(t *testing.T) {
	faults := policies(t).Faults(node(cond(gpu, "False", "ClearableAndFatal", 0)))
	for _, tc := range []struct{ now, want int }{{0, 10}, {9, 10}, {10, 20}, {20, -1}} {
		at, ok := repair.NextDue(faults, &repair.Reboots{}, start.Add(time.Duration(tc.now)*time.Minute))
		if ok != (tc.want >= 0) || ok && !at.Equal(start.Add(time.Duration(tc.want)*time.Minute)) {
			t.Errorf("at minute %d: next is %v (%t), want minute %d", tc.now, at, ok, tc.want)
		}
	}
}

func TestCompileNamesInvalidPolicies(t *testing.T) {
	fallback := karpv1.RepairPolicy{Condition: gpu, Status: "False", Action: karpv1.RepairReplace}
	for _, tc := range []struct {
		name string
		list []karpv1.RepairPolicy
		want string
	}{
		{"empty set", nil, "none is without a reason"},
		{"two fallbacks", []karpv1.RepairPolicy{fallback, fallback}, "repair policy 1: there is a second policy without a reason"},
		{
			"fallback that reboots",
			[]karpv1.RepairPolicy{{Condition: gpu, Status: "False", Action: karpv1.RepairReboot}},
			"the action of the policy without a reason must be ReplaceNode",
		},
		{"no condition", []karpv1.RepairPolicy{fallback, {Status: "False", Reason: "x", Action: karpv1.RepairReboot}}, "repair policy 1: condition is required"},
		{
			"status",
			[]karpv1.RepairPolicy{fallback, {Condition: gpu, Status: "false", Reason: "x", Action: karpv1.RepairReboot}},
			`repair policy 1: status "false" is none of True, False, Unknown`,
		},
		{
			"reason",
			[]karpv1.RepairPolicy{fallback, {Condition: gpu, Status: "False", Reason: "(", Action: karpv1.RepairReboot}},
			"repair policy 1: reason: error parsing regexp",
		},
		{
			"priority",
			[]karpv1.RepairPolicy{fallback, {Condition: gpu, Status: "False", Reason: "x", Priority: 101, Action: karpv1.RepairReboot}},
			"repair policy 1: priority 101 is not within 0 and 100",
		},
		{
			"toleration",
			[]karpv1.RepairPolicy{fallback, {Condition: gpu, Status: "False", Reason: "x", Toleration: minutes(-1), Action: karpv1.RepairReboot}},
			"repair policy 1: toleration -1m0s is negative",
		},
		{
			"action",
			[]karpv1.RepairPolicy{fallback, {Condition: gpu, Status: "False", Reason: "x", Action: "Reboot"}},
			`repair policy 1: action "Reboot" is none of Ignore, RebootNode, ReplaceNode`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := repair.Compile(tc.list); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// The policies of a NodePool replace those of the same condition and status; the others stay.
func TestPoliciesOfAPool(t *testing.T) {
	s, err := policies(t).With([]karpv1.RepairPolicy{
		{Condition: corev1.NodeReady, Status: "False", Reason: ".*", Toleration: minutes(5), Action: karpv1.RepairReplace},
		{Condition: gpu, Status: "False", Reason: "Clearable", Action: karpv1.RepairIgnore},
	})
	if err != nil {
		t.Fatal(err)
	}
	decide := func(at int, c corev1.NodeCondition) (repair.Decision, bool) {
		return repair.Decide(s.Faults(node(c)), &repair.Reboots{}, start.Add(time.Duration(at)*time.Minute))
	}
	if d, ok := decide(5, cond(corev1.NodeReady, "False", "KubeletDown", 0)); !ok || d.Bound != nil {
		t.Errorf("NotReady for 5 minutes: due %t, bound %v; want the pool's policy, without bound", ok, d.Bound)
	}
	if d, ok := decide(10000, cond(gpu, "False", "Clearable", 0)); ok {
		t.Errorf("an ignored fault is repaired: %+v", d)
	}
	if _, ok := decide(30, cond(gpu, "False", "Fatal", 0)); !ok {
		t.Error("a reason that the pool's policies do not name has no fallback")
	}
}

func TestBreaker(t *testing.T) {
	type group struct {
		pool, zone       string
		nodes, unhealthy int
		repairing        bool
	}
	for _, tc := range []struct {
		name    string
		groups  []group
		zone    string // of the node in question, in pool p
		waited  time.Duration
		blocked bool
		inZone  bool
	}{
		{name: "1 of 5", groups: []group{{"p", "a", 5, 1, false}}, zone: "a"},
		{name: "2 of 5", groups: []group{{"p", "a", 5, 2, false}}, zone: "a", blocked: true},
		{name: "other pools do not count", groups: []group{{"p", "a", 5, 1, false}, {"q", "a", 5, 5, false}}, zone: "a"},
		{
			name:   "a zone that fails as a whole blocks its nodes",
			groups: []group{{"p", "a", 10, 10, false}, {"p", "b", 10, 1, false}, {"p", "c", 10, 0, false}}, zone: "a", blocked: true, inZone: true,
		},
		{
			name:   "and not those of other zones",
			groups: []group{{"p", "a", 10, 10, false}, {"p", "b", 10, 1, false}, {"p", "c", 10, 0, false}}, zone: "b",
		},
		{
			name:   "faults in all zones have a common cause",
			groups: []group{{"p", "a", 2, 1, false}, {"p", "b", 2, 1, false}, {"p", "c", 2, 1, false}}, zone: "a", blocked: true,
		},
		{name: "the oldest fault is repaired after half an hour", groups: []group{{"p", "a", 5, 5, false}}, zone: "a", waited: 30 * time.Minute},
		{name: "not before", groups: []group{{"p", "a", 5, 5, false}}, zone: "a", waited: 29 * time.Minute, blocked: true},
		{name: "not while another is repaired", groups: []group{{"p", "a", 5, 5, true}}, zone: "a", waited: time.Hour, blocked: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := repair.NewBreaker()
			for _, g := range tc.groups {
				for i := range g.nodes {
					b.Count(repair.Health{Pool: g.pool, Zone: g.zone, Unhealthy: i < g.unhealthy, Repairing: g.repairing && i == 0})
				}
			}
			now := start.Add(tc.waited)
			b.NoteDue("younger", "p", start.Add(time.Second))
			b.NoteDue("n", "p", start)
			why, blocked := b.Blocks("n", "p", tc.zone, now)
			if blocked != tc.blocked || blocked && (why.Zone != "") != tc.inZone {
				t.Errorf("blocked: %t (%+v), want %t", blocked, why, tc.blocked)
			}
			if _, youngerBlocked := b.Blocks("younger", "p", tc.zone, now); tc.waited > 0 && !youngerBlocked {
				t.Error("a second node is repaired beside the oldest")
			}
		})
	}
}
