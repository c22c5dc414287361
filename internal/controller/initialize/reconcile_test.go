package initialize

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/fixture"
)

func TestInitialize(t *testing.T) {
	unlabelled := func(n *corev1.Node) { delete(n.Labels, karpv1.LabelInitialized) }
	tests := []struct {
		name   string
		claim  *karpv1.NodeClaim
		nodes  []client.Object
		status metav1.ConditionStatus
		reason string
		label  bool
	}{
		{"ready for use", fixture.Claim("a", fixture.Registered), []client.Object{fixture.Up("a", unlabelled)}, metav1.ConditionTrue, karpv1.ConditionInitialized, true},
		{"labelled before, the answer was lost", fixture.Claim("a", fixture.Registered), []client.Object{fixture.Up("a")}, metav1.ConditionTrue, karpv1.ConditionInitialized, true},
		{"a Node without any label", fixture.Claim("a", fixture.Registered), []client.Object{fixture.Up("a", func(n *corev1.Node) { n.Labels = nil })}, metav1.ConditionTrue, karpv1.ConditionInitialized, true},
		{"lifecycle row 36: resource claims are not in use, and drivers are named", fixture.Claim("a", fixture.Registered, func(c *karpv1.NodeClaim) {
			c.Annotations[karpv1.AnnotationRequestedDRADrivers] = "gpu.example.com"
		}), []client.Object{fixture.Up("a", unlabelled)}, metav1.ConditionTrue, karpv1.ConditionInitialized, true},
		{"lifecycle row 27: not registered, Ready with all resources", fixture.Claim("a", fixture.Launched), []client.Object{fixture.Up("a", unlabelled)}, metav1.ConditionUnknown, condition.ReasonAwaitingReconciliation, false},
		{"lifecycle row 28: not Ready", fixture.Claim("a", fixture.Registered), []client.Object{fixture.Up("a", unlabelled, fixture.NotReady)}, metav1.ConditionUnknown, "NodeNotReady", false},
		{"the Node has gone", fixture.Claim("a", fixture.Registered), nil, metav1.ConditionUnknown, "NodeNotFound", false},
		{"initialized stays, though the node is not Ready any more", fixture.Claim("a", fixture.Initialized), []client.Object{fixture.Up("a", fixture.NotReady)}, metav1.ConditionTrue, karpv1.ConditionInitialized, true},
		{"on its way out", fixture.Claim("a", fixture.Registered, fixture.Deleting), []client.Object{fixture.Up("a", unlabelled)}, metav1.ConditionUnknown, condition.ReasonAwaitingReconciliation, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := fixture.New(t, append(tt.nodes, tt.claim)...)
			f.Reconcile(&Reconciler{Client: f.API, Log: f.Log, Now: f.Now}, "a")
			if c, _ := condition.Get(f.Claim("a"), karpv1.ConditionInitialized); c.Status != tt.status || c.Reason != tt.reason {
				t.Errorf("Initialized %s, %s; want %s, %s", c.Status, c.Reason, tt.status, tt.reason)
			}
			if n := f.Node("node-a"); n != nil && (n.Labels[karpv1.LabelInitialized] == "true") != tt.label {
				t.Errorf("labels %v", n.Labels)
			}
		})
	}
}
