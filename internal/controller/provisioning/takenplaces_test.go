package provisioning

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Two nodes come up for two pods each. The first loses its taint before the second, and kube-scheduler binds the pods of the second to it:
// the others wait for the second node, as its own pods would, and for no longer.
func TestPodsWhosePlacesWereTakenWaitForTheNodeThatIsLeft(t *testing.T) {
	for _, tt := range []struct {
		name  string
		goes  bool
		later int
	}{
		{"its taint goes", true, 2},
		{"its taint stays", false, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var pods []client.Object
			for i := range 4 {
				pods = append(pods, ownedPending(fmt.Sprint("web-", i), func(p *corev1.Pod) {
					p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("3500m")
				}))
			}
			c := newRefusingCluster(t, func(n *corev1.Node) {
				foreignTaint(n)
				n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("7500m")
			}, pods...)
			c.run(20 * time.Second)
			all := claims(t, c.API)
			if len(all) != 2 {
				t.Fatalf("%d nodes are launched for four pods, want 2", len(all))
			}
			first, second := &all[0], &all[1]
			c.removeTaints(first)
			c.bind(second.Nominated(karpv1.AnnotationNominatedPods), first)
			c.run(40 * time.Second)
			if n := launched(c); n != 2 {
				t.Errorf("%d nodes are launched for four pods within the grace period, want 2", n)
			}
			if tt.goes {
				c.removeTaints(second)
				c.bind(first.Nominated(karpv1.AnnotationNominatedPods), second)
			}
			c.run(40 * time.Second)
			if n := launched(c); n != tt.later {
				t.Errorf("%d nodes are launched for four pods, want %d", n, tt.later)
			}
		})
	}
}

// removeTaints removes all taints from the node of a claim.
func (c *refusingCluster) removeTaints(claim *karpv1.NodeClaim) {
	node := c.Node("node-" + claim.Name)
	node.Spec.Taints = nil
	c.Do(c.API.Update(c.Context(), node))
}

// bind binds pods to the node of a claim.
func (c *refusingCluster) bind(pods []types.UID, claim *karpv1.NodeClaim) {
	c.forPods(func(p *corev1.Pod) {
		if slices.Contains(pods, p.UID) {
			c.bindTo(p, "node-"+claim.Name)
		}
	})
}

// A pass plans pods that are due for a node on a snapshot of its own. A node that came up in between is one that its pods have, or that
// refuses them, as in the next pass.
func TestANodeThatComesUpWithinAPassIsNoReasonForAnother(t *testing.T) {
	gold := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"example.com/tier": "gold"} }
	for _, tt := range []struct {
		name  string
		spoil func(*corev1.Node)
		// lags is true if the cache does not show yet that the claim is initialized.
		lags bool
	}{
		{"it is too small", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("400m") }, false},
		{"its label is another one, and only the Node states that it is initialized", func(n *corev1.Node) {
			n.Labels["example.com/tier"] = "silver"
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newRefusingCluster(t, tt.spoil, ownedPending("web", gold))
			pool := c.pool()
			pool.Spec.Template.Labels = map[string]string{"example.com/tier": "gold"}
			c.Do(c.API.Update(t.Context(), pool))
			run(t, c.p)
			snap, err := c.p.State.Snapshot(t.Context())
			c.Do(err)
			refused, err := c.p.readRefusals(t.Context(), snap)
			c.Do(err)
			claim := claims(t, c.API)[0]
			c.advance(&claim)
			if tt.lags {
				condition.SetUnknown(&claim, karpv1.ConditionInitialized, condition.Because("NodeNotFound", ""), c.Clock)
				c.Do(c.API.Status().Update(t.Context(), &claim))
			}
			c.Do(c.p.tryNode(t.Context(), refused))
			if n := launched(c); n != 1 {
				t.Errorf("%d nodes are launched for one pod", n)
			}
		})
	}
}
