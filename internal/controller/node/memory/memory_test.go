package memory

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// fakeCloud records what is reported to the cloud.
type fakeCloud struct {
	reported []string
	err      error
}

func (c *fakeCloud) NodeSeen(
	_ context.Context,
	class *awsv1.EC2NodeClass,
	instanceType, imageID string,
	memory resource.Quantity,
) error {
	c.reported = append(c.reported, strings.Join([]string{class.Name, instanceType, imageID, memory.String()}, " "))
	return c.err
}

func registered(n *corev1.Node) {
	n.Labels[karpv1.LabelRegistered] = "true"
	n.Labels[corev1.LabelInstanceTypeStable] = "m5.large"
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("7686Mi")}
}

func TestMemoryOfANode(t *testing.T) {
	launched := func(c *karpv1.NodeClaim) { controllertest.Registered(c); c.Status.ImageID = "ami-1" }
	for _, tt := range []struct {
		name string
		node func(*corev1.Node)
		want string
	}{
		{"registered", registered, "default m5.large ami-1 7686Mi"},
		{"not registered", func(n *corev1.Node) { registered(n); delete(n.Labels, karpv1.LabelRegistered) }, ""},
		{"without a figure", func(n *corev1.Node) { registered(n); n.Status.Capacity = nil }, ""},
		{"of another owner", func(n *corev1.Node) { registered(n); n.Spec.ProviderID = "aws:///us-east-1a/i-0000000000000ffff" }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, c := controllertest.New(
				t,
				controllertest.Class(),
				controllertest.Claim("a", launched),
				controllertest.JoinedNode("a", tt.node),
			), &fakeCloud{}
			f.Reconcile(&Reconciler{Client: f.API, Cloud: c}, "node-a")
			if got := strings.Join(c.reported, ", "); got != tt.want {
				t.Errorf("reported %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("the cloud does not know its types yet", func(t *testing.T) {
		f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a", launched), controllertest.JoinedNode("a", registered))
		if _, err := f.Try(&Reconciler{Client: f.API, Cloud: &fakeCloud{err: errors.New("throttled")}}, "node-a"); err == nil {
			t.Error("it is not tried again")
		}
	})
}

func TestNodesThatTell(t *testing.T) {
	n := controllertest.JoinedNode("a")
	if reportsMemory(n) {
		t.Error("a node that is not registered is reported")
	}
	if registered(n); !reportsMemory(n) {
		t.Error("a registered node is not reported")
	}
}
