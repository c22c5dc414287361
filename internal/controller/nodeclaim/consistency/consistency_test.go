package consistency

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// expects makes a claim request some memory and expect a capacity.
func expects(memory string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		c.Status.Capacity = corev1.ResourceList{
			corev1.ResourceMemory: resource.MustParse(memory),
			corev1.ResourceCPU:    resource.MustParse("64"),
		}
	}
}

func has(memory string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Capacity = corev1.ResourceList{
			corev1.ResourceMemory: resource.MustParse(memory),
			corev1.ResourceCPU:    resource.MustParse("2"),
		}
	}
}

func TestConsistency(t *testing.T) {
	for _, tt := range []struct {
		name  string
		claim *karpv1.NodeClaim
		nodes []client.Object
		want  metav1.ConditionStatus
		event string
	}{
		{
			"half of the memory", controllertest.Claim("a", controllertest.Initialized, expects("128Gi")),
			[]client.Object{controllertest.ReadyNode("a", has("64Gi"))},
			metav1.ConditionFalse, "expected 128Gi of resource memory, but found 64Gi (50.0% of expected)",
		},
		{"exactly 90 %", controllertest.Claim("a", controllertest.Initialized, expects("100Gi")), []client.Object{controllertest.ReadyNode("a",
			has("90Gi"))}, metav1.ConditionTrue, ""},
		{
			"all of it, and few CPUs, which nobody requested", controllertest.Claim("a", controllertest.Initialized, expects("4Gi")),
			[]client.Object{controllertest.ReadyNode("a", has("4Gi"))},
			metav1.ConditionTrue, "",
		},
		{
			"not initialized yet", controllertest.Claim("a", controllertest.Registered, expects("128Gi")),
			[]client.Object{controllertest.ReadyNode("a", has("64Gi"))},
			"", "",
		},
		{
			"deleting", controllertest.Claim("a", controllertest.Initialized, controllertest.Deleting, expects("128Gi")),
			[]client.Object{controllertest.ReadyNode("a", has("64Gi"))},
			"", "",
		},
		{"no Node", controllertest.Claim("a", controllertest.Initialized, expects("128Gi")), nil, "", ""},
		{"another provider's", controllertest.Claim("a", controllertest.Initialized, expects("128Gi"),
			func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }), []client.Object{controllertest.ReadyNode("a", has("64Gi"))}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, append(tt.nodes, tt.claim)...)
			f.Reconcile(&Reconciler{Client: f.API, Events: f.Events, Log: f.Log, Now: f.Now}, "a")
			c, _ := condition.Get(f.Claim("a"), karpv1.ConditionConsistentStateFound)
			if c.Status != tt.want {
				t.Errorf("ConsistentStateFound is %q: %s", c.Status, c.Message)
			}
			events := f.RecordedEvents()
			if (tt.event == "") != (len(events) == 0) ||
				!slices.ContainsFunc(append(events, ""), func(s string) bool { return strings.Contains(s, tt.event) }) {
				t.Errorf("events %q, want %q", events, tt.event)
			}
		})
	}
}

func TestEveryTenMinutes(t *testing.T) {
	node := controllertest.ReadyNode("a", has("64Gi"))
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Initialized, expects("128Gi")), node)
	r := &Reconciler{Client: f.API, Events: f.Events, Log: f.Log, Now: f.Now}
	if result := f.Reconcile(r, "a"); result.RequeueAfter != 10*time.Minute {
		t.Errorf("is requeued after %v", result.RequeueAfter)
	}
	f.Get(node)
	has("128Gi")(node)
	f.Do(f.API.Status().Update(f.Context(), node))
	f.Clock = f.Clock.Add(4 * time.Minute)
	if result := f.Reconcile(r, "a"); result.RequeueAfter != 6*time.Minute ||
		!condition.IsFalse(f.Claim("a"), karpv1.ConditionConsistentStateFound) {
		t.Errorf("after four minutes: is requeued after %v", result.RequeueAfter)
	}
	f.Clock = f.Clock.Add(6 * time.Minute)
	f.Reconcile(r, "a")
	if !condition.IsTrue(f.Claim("a"), karpv1.ConditionConsistentStateFound) {
		t.Error("after ten minutes the old result still stands")
	}
}
