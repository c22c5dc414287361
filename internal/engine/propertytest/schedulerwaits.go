package propertytest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// What becomes of a cluster while pods wait.

// bindNominated binds the pods that are nominated, as kube-scheduler does once their places are free. Until then PodTopologySpread counts
// them on their node for a constraint with an empty selector, too (AddPod), which counts no pod that is bound (countPodsMatchSelector).
func (c *Cluster) bindNominated() {
	for _, n := range c.Nodes {
		for i, p := range n.Pods {
			if p.Spec.NodeName == "" && p.Status.NominatedNodeName != "" {
				n.Pods[i] = Bound(p.DeepCopy(), n.Name)
				n.Pods[i].Status.NominatedNodeName = ""
			}
		}
	}
}

// withoutTerminating is the cluster once the pods that terminate are gone, and nodes that are being deleted and have only pods that can be
// evicted: nothing holds such a node up. Until it is gone, it may be the host with the fewest pods, for which pods that spread over hosts
// wait.
func (c *Cluster) withoutTerminating() *Cluster {
	out := c.Copy()
	for _, n := range out.Nodes {
		n.Pods = slices.DeleteFunc(n.Pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil })
		held := slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return !snapshot.DaemonOwned(p) && !snapshot.Disruptable(p, c.World.Now) })
		n.Gone = n.Gone || n.Existing != nil && n.Existing.Deleting && !held
	}
	return out
}

// onceTheyEnd is the cluster once the pods that terminate are gone, with what it binds of the queue then, and what is left of that. Pods
// that follow one that terminates are bound before, and others that keep away from one are bound after: there need be no moment for all.
func (c *Cluster) onceTheyEnd(queue []binding) (*Cluster, []binding) {
	out := c.withoutTerminating()
	for _, node := range out.joining() {
		out.startDaemons(node)
	}
	for i, b := range queue {
		queue[i].node = out.Nodes[slices.Index(c.Nodes, b.node)]
	}
	return out, out.bind(queue, true)
}

// withTerminatingOf is the cluster with those pods of another that terminate, and the nodes that go once they are gone.
func (c *Cluster) withTerminatingOf(other *Cluster) *Cluster {
	out := c.withoutTerminating()
	for i, n := range other.Nodes {
		out.Nodes[i].Gone = n.Gone
		for _, p := range n.Pods {
			if p.DeletionTimestamp != nil {
				out.Nodes[i].Pods = append(out.Nodes[i].Pods, p)
			}
		}
	}
	return out
}
