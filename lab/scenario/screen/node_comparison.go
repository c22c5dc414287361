package screen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Comparison explains why a cluster has several nodes: it compares them with the cheapest single node that fits all
// their pods. It compares only settled nodes, and each set of them once. It is for one cluster and one goroutine.
type Comparison struct {
	key, why string
}

// Explain sets the Why of a status, or the reason why it cannot compare.
func (c *Comparison) Explain(ctx context.Context, cl *world.Cluster, s *Status) {
	key := settledKey(s)
	if key == "" {
		return
	}
	if key != c.key {
		why, err := compareNodes(ctx, cl, s)
		if err != nil {
			first, _, _ := strings.Cut(err.Error(), "\n")
			why = "Cannot compare the nodes with a single node for all pods: " + first
		}
		c.key, c.why = key, why
	}
	s.Why = c.why
}

// settledKey identifies the nodes and pods of a status with several nodes, all ready, and no pending pods; else it is
// empty.
func settledKey(s *Status) string {
	if s.Pending > 0 || s.Running == 0 || len(s.Nodes) < 2 {
		return ""
	}
	names := []string{fmt.Sprint(s.Running)}
	for _, n := range s.Nodes {
		if n.State != "ready" {
			return ""
		}
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}

// compareNodes returns the comparison. It is empty if the nodes do not all belong to one NodePool.
func compareNodes(ctx context.Context, cl *world.Cluster, s *Status) (string, error) {
	var pods corev1.PodList
	var nodes corev1.NodeList
	shared := client.UnsafeDisableDeepCopy // nothing of them is changed
	if err := errors.Join(cl.Reader.List(ctx, &pods, shared), cl.Reader.List(ctx, &nodes, shared)); err != nil {
		return "", fmt.Errorf("compare the nodes of cluster %s: %w", cl.Name, err)
	}
	pools := map[string]bool{}
	for _, n := range nodes.Items {
		pools[n.Labels[karpv1.LabelNodePool]] = true
	}
	if len(pools) != 1 || pools[""] {
		return "", nil
	}
	node, err := cl.CheapestNode(ctx, slices.Collect(maps.Keys(pools))[0], totalRequests(pods.Items))
	switch {
	case errors.Is(err, world.ErrNoSingleNode):
		return comparisonText(s, nil), nil
	case err != nil:
		return "", err
	}
	return comparisonText(s, &node), nil
}

// totalRequests sums the requests of all pods on a single node, with one pod of each DaemonSet.
func totalRequests(pods []corev1.Pod) corev1.ResourceList {
	total := corev1.ResourceList{}
	daemons := map[string]bool{}
	for i := range pods {
		p := &pods[i]
		if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "DaemonSet" {
			if daemons[string(owner.UID)] {
				continue
			}
			daemons[string(owner.UID)] = true
		} else if p.Spec.NodeName == "" || p.Status.Phase != corev1.PodRunning {
			continue
		}
		for name, q := range resource.PodRequests(p, resource.PodResourcesOptions{}) {
			sum := total[name]
			sum.Add(q)
			total[name] = sum
		}
	}
	return total
}

// comparisonText returns the comparison as text; node is nil if no instance type is large enough.
func comparisonText(s *Status, node *world.SingleNode) string {
	begin := fmt.Sprintf("Why %d nodes for %d pods? Together they cost $%.3f/h; ", len(s.Nodes), s.Running, s.PerHour)
	if node == nil {
		return begin + "no instance type of the NodePool fits all pods."
	}
	price := fmt.Sprintf("$%.3f/h", node.PerHour)
	end := "the cheapest single node for all of them costs " + price
	switch cmp.Compare(node.PerHour, s.PerHour) {
	case -1:
		end = "one node for all of them would cost " + price + ", but consolidation would have to move the pods"
	case 0:
		end = "one node for all of them costs as much"
	}
	return fmt.Sprintf("%s%s (%s, %s, %s).", begin, end, node.Type, node.CapacityType, node.Zone)
}
