package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

type fakeRebooter struct{ err error }

func (r fakeRebooter) CheckReboot(context.Context, string) error { return r.err }

// clearable is a NodePool with a policy that reboots nodes for a fault of their accelerator.
func clearable(p *karpv1.NodePool) {
	p.Annotations = map[string]string{
		karpv1.AnnotationRepairPolicies: `[{"condition":"Accelerator","status":"False","reason":".*","toleration":"10m",` +
			`"terminationGracePeriod":"5m","action":"RebootNode"}]`,
	}
}

var acceleratorFault = broken("Accelerator", corev1.ConditionFalse, 11)

func TestRebootIsDecided(t *testing.T) {
	f := controllertest.New(t, nodesWith(5, 1, acceleratorFault, clearable, budget("1"))...)
	l := repairingLoop(t, f, f.API, f.Now)
	l.Rebooter = fakeRebooter{}
	passes(t, l)
	claim := f.Claim("n0")
	c, _ := condition.Get(claim, karpv1.ConditionRebooting)
	if c.Status != metav1.ConditionTrue || c.Reason != "RebootRequested" || c.Message != "rebooting for Accelerator/" {
		t.Errorf("Rebooting is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	if r, _ := condition.Get(claim, karpv1.ConditionDisruptionReason); r.Reason != "Unhealthy" {
		t.Errorf("DisruptionReason %q", r.Reason)
	}
	if got := claim.Annotations[karpv1.AnnotationRebootTerminationGracePeriod]; got != "5m0s" {
		t.Errorf("drain bound %q", got)
	}
	if n := testutil.ToFloat64(l.Metrics.Decisions.WithLabelValues("reboot", "unhealthy", "")); n != 1 {
		t.Errorf("%v decisions, want 1", n)
	}
	if len(replacements(f)) > 0 || len(deletingClaims(f)) > 0 {
		t.Error("a node that reboots is replaced")
	}
	// While it reboots it uses up the budget, takes part in no other command, and its capacity comes back.
	snap := snapshotOf(t, l)
	n := nodeOf(t, snap, "n0")
	if !n.Rebooting || n.AwaitsRepair() {
		t.Errorf("rebooting %t, awaits repair %t", n.Rebooting, n.AwaitsRepair())
	}
	for _, reason := range l.reasons() {
		for _, a := range disrupt.Allowances(snap, reason) {
			if a.Available() != 0 {
				t.Errorf("%d nodes may be disrupted for %s beside the one that reboots", a.Available(), reason)
			}
		}
	}
}

// A pod that fits the rebooting node waits for it, although the node is fenced and not Ready.
func TestPodsWaitForARebootingNode(t *testing.T) {
	f := controllertest.New(t, append(nodesWith(1, 1, acceleratorFault, clearable),
		controllertest.Pod("new", "", requestsCPU("100m")))...)
	l := repairingLoop(t, f, f.API, f.Now)
	l.Rebooter = fakeRebooter{}
	passes(t, l)
	n := f.Node("node-n0")
	n.Spec.Taints = append(n.Spec.Taints, karpv1.TaintRebooting(),
		corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute})
	f.Do(f.API.Update(t.Context(), n))
	plan := consolidate.Compile(snapshotOf(t, l)).WhatIf(nil, nil, schedule.DefaultBudget())
	if len(plan.Launches) != 0 || len(plan.Placements) != 1 || plan.Placements[0].Node != "node-n0" {
		t.Errorf("%d launches, placements %+v", len(plan.Launches), plan.Placements)
	}
}

// A node is replaced where it cannot be rebooted, or where reboots did not help.
func TestNodesThatAreReplacedInsteadOfRebooted(t *testing.T) {
	hourAgo := metav1.NewTime(controllertest.Start.Add(-time.Hour))
	for _, tc := range []struct {
		name     string
		rebooter rebootChecker
		past     int // reboots within the last day
		event    string
		decision string
	}{
		{name: "without the feature gate", decision: "replace"},
		{name: "allowed", rebooter: fakeRebooter{}, decision: "reboot"},
		{name: "one reboot before", rebooter: fakeRebooter{}, past: 1, decision: "reboot"},
		{name: "two reboots before", rebooter: fakeRebooter{}, past: 2, decision: "replace"},
		{
			name: "without permission", rebooter: fakeRebooter{fmt.Errorf("%w: UnauthorizedOperation", cloudprovider.ErrRebootRefused)},
			decision: "replace", event: "Node is replaced instead of rebooted",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := controllertest.New(t, nodesWith(5, 1, acceleratorFault, clearable)...)
			if tc.past > 0 {
				c := f.Claim("n0")
				record := karpv1.RebootRecord{}
				for range tc.past {
					record.Started = append(record.Started, hourAgo)
				}
				f.Do(c.SetReboots(&record))
				f.Do(f.API.Update(t.Context(), c))
				condition.SetFalse(c, karpv1.ConditionRebooting, condition.Because(karpv1.RebootSucceeded, ""), hourAgo.Time)
				f.Do(f.API.Status().Update(t.Context(), c))
			}
			l := repairingLoop(t, f, f.API, f.Now)
			l.Rebooter = tc.rebooter
			passes(t, l)
			if n := testutil.ToFloat64(l.Metrics.Decisions.WithLabelValues(tc.decision, "unhealthy", "")); n != 1 {
				t.Errorf("%v times %s, want 1", n, tc.decision)
			}
			if record, err := f.Claim("n0").Reboots(); tc.decision == "reboot" && (err != nil || len(record.Started) != tc.past+1) {
				t.Errorf("record %+v (%v)", record, err)
			}
			if tc.event != "" && !slices.ContainsFunc(f.RecordedEvents(), func(e string) bool { return strings.Contains(e, tc.event) }) {
				t.Errorf("no event %q", tc.event)
			}
		})
	}
}

// EC2 is throttled when the permission is checked: the node waits, and is rebooted later.
func TestRebootWaitsForAnErrorThatMayPass(t *testing.T) {
	f := controllertest.New(t, nodesWith(5, 1, acceleratorFault, clearable)...)
	l := repairingLoop(t, f, f.API, f.Now)
	l.Rebooter = fakeRebooter{errors.New("RequestLimitExceeded")}
	passes(t, l)
	if len(repaired(f)) > 0 || condition.IsTrue(f.Claim("n0"), karpv1.ConditionRebooting) {
		t.Error("the node is replaced or rebooted")
	}
	if said := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(said, "RequestLimitExceeded") {
		t.Errorf("events %s", said)
	}
	l.Rebooter = fakeRebooter{}
	passes(t, l)
	if !condition.IsTrue(f.Claim("n0"), karpv1.ConditionRebooting) {
		t.Error("the node is not rebooted")
	}
}

// The process dies between the record and the condition: the reboot is decided again, and counts once.
func TestRebootWhoseDecisionWasInterruptedCountsOnce(t *testing.T) {
	f := controllertest.New(t, nodesWith(5, 1, acceleratorFault, clearable)...)
	l := repairingLoop(t, f, f.API, f.Now)
	l.Rebooter = fakeRebooter{}
	l.Client = statusFails{l.Client}
	if _, err := l.pass(t.Context()); err == nil {
		t.Fatal("the error is swallowed")
	}
	if record, err := f.Claim("n0").Reboots(); err != nil || len(record.Started) != 1 {
		t.Fatalf("record %+v (%v)", record, err)
	}
	l = repairingLoop(t, f, f.API, f.Now)
	l.Rebooter = fakeRebooter{}
	f.Clock = f.Clock.Add(time.Minute)
	passes(t, l)
	record, err := f.Claim("n0").Reboots()
	if err != nil || len(record.Started) != 1 || !condition.IsTrue(f.Claim("n0"), karpv1.ConditionRebooting) {
		t.Errorf("record %+v (%v)", record, err)
	}
}

// statusFails is a client that cannot write the status of objects.
type statusFails struct{ client.Client }

func (statusFails) Status() client.SubResourceWriter { return failingStatus{} }

type failingStatus struct{ client.SubResourceWriter }

func (failingStatus) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return errors.New("the process dies here")
}
