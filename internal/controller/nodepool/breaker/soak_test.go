package breaker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
)

// rollout is a fleet of old nodes that drift to image ami-bad, and the first of its nodes: initialized at the start, with healthy Nodes.
func rollout(fresh ...string) []client.Object {
	objects := three()[:2]
	for n := range 20 {
		objects = append(objects, controllertest.Claim(fmt.Sprint("old-", n), controllertest.Initialized, func(c *karpv1.NodeClaim) {
			c.Status.ImageID = "ami-old"
			condition.SetTrue(c, karpv1.ConditionDrifted, controllertest.Start)
		}))
	}
	for _, name := range fresh {
		objects = append(objects, replacement(name, controllertest.Initialized), controllertest.ReadyNode(name))
	}
	return objects
}

// fail makes the nodes of claims not ready, now.
func fail(f *controllertest.Fixture, claims ...string) {
	for _, name := range claims {
		node := f.Node("node-" + name)
		node.Status.Conditions[0] = corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: metav1.NewTime(f.Clock),
		}
		f.Do(f.API.Status().Update(f.Context(), node))
	}
}

func opened(t *testing.T, f *controllertest.Fixture, b *Breaker, reason karpv1.DisruptionReason, want bool, when string) string {
	t.Helper()
	why, open := refused(t, b, "general", reason)
	if open != want {
		t.Errorf("%s: %s: open %v, %s", when, reason, open, why)
	}
	return why
}

func TestNodesThatFailAfterTheyJoined(t *testing.T) {
	f := controllertest.New(t, rollout("a", "b")...)
	r, b := reconciler(t, f, 2), New(f.API, Rules{Threshold: 2}, f.Now)
	classes := &ClassReconciler{Client: f.API, Events: f.Events, Now: f.Now}
	f.Clock = f.Clock.Add(10 * time.Second)
	if got := f.Reconcile(r, "general"); got.RequeueAfter != 170*time.Second {
		t.Errorf("is requeued after %v", got.RequeueAfter)
	}
	why := opened(t, f, b, drifted, true, "while the first two soak")
	if !strings.Contains(why, "must stay ready for 3m0s before others are replaced: NodeClaims a, b") {
		t.Errorf("says: %s", why)
	}
	f.Clock = controllertest.Start.Add(45 * time.Second)
	fail(f, "a", "b")
	if got := f.Reconcile(r, "general"); got.RequeueAfter != 30*time.Second {
		t.Errorf("is requeued after %v", got.RequeueAfter)
	}
	f.Clock = f.Clock.Add(30 * time.Second)
	f.Reconcile(r, "general")
	f.Reconcile(classes, "default")
	reason, message := paused(f)
	if reason != "NewNodesFail" || !strings.HasPrefix(message, "2 of the last 2 new nodes of NodePool general, EC2NodeClass default and image ami-bad "+
		"became ready and failed 45s later: Ready is Unknown (NodeStatusUnknown) (NodeClaim a)") {
		t.Errorf("condition: %s: %s", reason, message)
	}
	class := controllertest.Class()
	f.Get(class)
	if c, _ := condition.Get(class, awsv1.ConditionDisruptionPaused); c.Status != metav1.ConditionTrue || c.Message != message || !condition.IsReady(class) {
		t.Errorf("condition of the class: %+v, ready %v", c, condition.IsReady(class))
	}
	if events := f.RecordedEvents(); len(events) != 2 || events[0] != "Warning DisruptionPaused "+message || events[1] != events[0] {
		t.Errorf("events: %q", events)
	}
	if v := testutil.ToFloat64(r.Metrics.Paused.WithLabelValues("general", "NewNodesFail")); v != 1 {
		t.Errorf("gauge is %v", v)
	}
	if v := testutil.ToFloat64(r.Metrics.Replacements.WithLabelValues("general", "Drifted", "failed")); v != 2 {
		t.Errorf("%v failures are counted", v)
	}
	// The claims are repaired, and another process has seen nothing of this.
	for _, name := range []string{"a", "b"} {
		claim := f.Claim(name)
		claim.Finalizers = nil
		f.Do(f.API.Update(f.Context(), claim))
		f.Do(f.API.Delete(f.Context(), claim))
	}
	f.Reconcile(reconciler(t, f, 2), "general")
	next := New(f.API, Rules{Threshold: 2}, f.Now)
	for _, reason := range []karpv1.DisruptionReason{drifted, karpv1.DisruptionUnderutilized, karpv1.DisruptionEmpty} {
		if why := opened(t, f, next, reason, true, "after a restart"); why != message {
			t.Errorf("says: %s", why)
		}
	}
	opened(t, f, next, karpv1.DisruptionUnhealthy, false, "an unhealthy node")
	if why, err := next.KeepsExpired(f.Context(), f.Claim("old-1")); err != nil || why != message {
		t.Errorf("an expired claim goes: %s, %v", why, err)
	}
	bad := replacement("bad")
	if why, err := next.KeepsExpired(f.Context(), bad); err != nil || why != "" {
		t.Errorf("an expired claim with the image stays: %s, %v", why, err)
	}
	// The image is corrected.
	class.Status.AMIs = []awsv1.AMI{{ID: "ami-good"}}
	f.Do(f.API.Status().Update(f.Context(), class))
	f.Reconcile(r, "general")
	f.Reconcile(classes, "default")
	if reason, _ := paused(f); reason != "" {
		t.Errorf("still paused: %s", reason)
	}
	f.Get(class)
	if _, set := condition.Get(class, awsv1.ConditionDisruptionPaused); set {
		t.Error("the class still has the condition")
	}
	opened(t, f, next, drifted, false, "when the image is corrected")
}

// A good image is rolled out at the speed of budgets once its first nodes have survived.
func TestOnlyTheFirstBatchSoaks(t *testing.T) {
	f := controllertest.New(t, rollout("a", "b")...)
	r, b := reconciler(t, f, 2), New(f.API, Rules{Threshold: 2}, f.Now)
	f.Reconcile(r, "general")
	opened(t, f, b, drifted, true, "in the soak of the first")
	opened(t, f, b, karpv1.DisruptionUnderutilized, true, "in the soak of the first")
	opened(t, f, b, karpv1.DisruptionUnhealthy, false, "in the soak of the first")
	f.Clock = f.Clock.Add(3 * time.Minute)
	for n := range 10 {
		opened(t, f, b, drifted, false, "when the first have survived")
		b.Started("general", drifted)
		name := fmt.Sprint("c", n)
		f.Do(f.API.Create(f.Context(), replacement(name, func(c *karpv1.NodeClaim) { c.CreationTimestamp.Time = f.Clock })))
	}
	if f.Reconcile(r, "general"); testutil.ToFloat64(r.Metrics.Replacements.WithLabelValues("general", "Drifted", "came_up")) != 2 {
		t.Error("the first two do not count as come up")
	}
}

// The cache shows new claims late: what was started counts.
func TestTheFirstBatchBeforeItsClaimsAreVisible(t *testing.T) {
	f := controllertest.New(t, rollout()...)
	b := New(f.API, Rules{Threshold: 2}, f.Now)
	for range 2 {
		opened(t, f, b, drifted, false, "before the first two")
		b.Started("general", drifted)
	}
	opened(t, f, b, drifted, true, "after two")
	f.Do(f.API.Create(f.Context(), replacement("a", func(c *karpv1.NodeClaim) { c.CreationTimestamp.Time = f.Clock })))
	opened(t, f, b, drifted, true, "after two, one of them visible")
	f.Clock = f.Clock.Add(time.Minute)
	opened(t, f, b, drifted, false, "when the other one would have appeared")
}

// A pool in which all nodes are new has nothing at stake.
func TestAPoolWithoutOldNodesHasNoFirstBatch(t *testing.T) {
	f := controllertest.New(t, append(three()[:2], replacement("a"), replacement("b"), replacement("c"))...)
	opened(t, f, New(f.API, Rules{Threshold: 2}, f.Now), karpv1.DisruptionUnderutilized, false, "in a new pool")
}

// A node with conditions that repair acts on has failed, although it is ready; a pool with a breaker that is turned off does not care.
func TestFaultsThatRepairActsOn(t *testing.T) {
	node := controllertest.ReadyNode("a", func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: "KernelReady", Status: corev1.ConditionFalse, Reason: "Oops", LastTransitionTime: metav1.NewTime(controllertest.Start),
		})
	})
	if got := breaker.HealthOf(node, nil); got.Fault != "" {
		t.Errorf("without policies: %+v", got)
	}
	if got := breaker.HealthOf(node, policies(t)); got.Fault != "KernelReady is False (Oops)" || !got.Since.Equal(controllertest.Start) {
		t.Errorf("with policies: %+v", got)
	}
	node.Status.Conditions = nil
	if got := breaker.HealthOf(node, nil); got.Fault != "Ready is Unknown" {
		t.Errorf("without conditions: %+v", got)
	}
}

func policies(t *testing.T) *repair.Policies {
	t.Helper()
	p, err := repair.Compile([]karpv1.RepairPolicy{{Condition: "KernelReady", Status: corev1.ConditionFalse, Action: karpv1.RepairReplace}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
