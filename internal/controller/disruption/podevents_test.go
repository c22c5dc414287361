package disruption

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

func TestPodEvents(t *testing.T) {
	tests := []struct {
		name  string
		pod   *corev1.Pod
		last  int // seconds after start; -1 for none
		at    int
		claim *karpv1.NodeClaim
		node  *corev1.Node
		want  int
	}{
		{
			"first pod",
			controllertest.Pod("web", "node-a"),
			-1,
			7,
			controllertest.Claim("a", controllertest.Initialized),
			controllertest.ReadyNode("a"),
			7,
		},
		{
			"5 s later",
			controllertest.Pod("web", "node-a"),
			0,
			5,
			controllertest.Claim("a", controllertest.Initialized),
			controllertest.ReadyNode("a"),
			0,
		},
		{
			"10 s later",
			controllertest.Pod("web", "node-a"),
			0,
			10,
			controllertest.Claim("a", controllertest.Initialized),
			controllertest.ReadyNode("a"),
			10,
		},
		{
			"an event of long ago, seen late",
			controllertest.Pod("web", "node-a"),
			60,
			5,
			controllertest.Claim("a", controllertest.Initialized),
			controllertest.ReadyNode("a"),
			60,
		},
		{
			"a daemon",
			controllertest.Pod("web", "node-a", controllertest.OwnedByDaemonSet),
			-1,
			7,
			controllertest.Claim("a", controllertest.Initialized),
			controllertest.ReadyNode("a"),
			-1,
		},
		{
			"not bound",
			controllertest.Pod("web", ""),
			-1,
			7,
			controllertest.Claim("a", controllertest.Initialized),
			controllertest.ReadyNode("a"),
			-1,
		},
		{
			"no Node",
			controllertest.Pod("web", "node-x"),
			-1,
			7,
			controllertest.Claim("a", controllertest.Initialized),
			controllertest.ReadyNode("a"),
			-1,
		},
		{
			"no claim",
			controllertest.Pod("web", "node-b"),
			-1,
			7,
			controllertest.Claim("a", controllertest.Initialized),
			controllertest.ReadyNode("b"),
			-1,
		},
		{
			"not initialized: initialization will write it",
			controllertest.Pod("web", "node-a"),
			-1,
			7,
			controllertest.Claim("a", controllertest.Registered),
			controllertest.ReadyNode("a"),
			-1,
		},
		{
			"another provider's claim",
			controllertest.Pod("web", "node-a"),
			-1,
			7,
			controllertest.Claim("a", controllertest.Initialized, func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }),
			controllertest.ReadyNode("a"),
			-1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.pod.CreationTimestamp = after(tt.at)
			if tt.last >= 0 {
				tt.claim.Status.LastPodEventTime = after(tt.last)
			}
			f := controllertest.New(t, tt.pod, tt.claim, tt.node)
			_, err := (&PodEvents{Client: f.API}).Reconcile(
				t.Context(),
				reconcile.Request{NamespacedName: types.NamespacedName{Name: "node-" + strings.TrimPrefix(tt.node.Name, "node-")}},
			)
			if err != nil {
				t.Fatal(err)
			}
			got := f.Claim("a").Status.LastPodEventTime
			if tt.want < 0 != got.IsZero() || tt.want >= 0 && !got.Time.Equal(after(tt.want).Time) {
				t.Errorf("last event %v, want %d s after the start", got, tt.want)
			}
		})
	}
}

// A pod that comes between initialization's read of the pods and its write is not lost.
func TestPodEventDuringInitialization(t *testing.T) {
	pod := controllertest.Pod("web", "node-a")
	pod.CreationTimestamp = after(7)
	f := controllertest.New(t, pod, controllertest.Claim("a", controllertest.Registered), controllertest.ReadyNode("a"))
	r, node := &PodEvents{Client: f.API}, reconcile.Request{NamespacedName: types.NamespacedName{Name: "node-a"}}
	result, err := r.Reconcile(t.Context(), node)
	if err != nil || result.RequeueAfter <= 0 || !f.Claim("a").Status.LastPodEventTime.IsZero() {
		t.Fatalf("comes back after %v, error %v, last event %v", result.RequeueAfter, err, f.Claim("a").Status.LastPodEventTime)
	}
	claim := f.Claim("a")
	condition.SetTrue(claim, karpv1.ConditionInitialized, f.Clock)
	f.Do(f.API.Status().Update(f.Context(), claim))
	if _, err := r.Reconcile(t.Context(), node); err != nil || !f.Claim("a").Status.LastPodEventTime.Time.Equal(after(7).Time) {
		t.Errorf("error %v, last event %v", err, f.Claim("a").Status.LastPodEventTime)
	}
}
