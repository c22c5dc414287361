package validate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Labels that nodes get after their launch: from the registration and initialization of their claims, and from the cloud
// controller manager.

// joinLabel is a label that each node has once it is initialized; false if the key is none. The cloud controller manager gives
// all nodes the same value, which other nodes show.
func (c *check) joinLabel(key string) (label, bool) {
	if key == karpv1.LabelRegistered || key == karpv1.LabelInitialized {
		return label{values: []string{"true"}}, true
	}
	if !slices.Contains(c.s.Labels.SetOnJoin, key) {
		return label{}, false
	}
	var seen label
	for i := range c.s.Nodes {
		if v, ok := c.s.Nodes[i].Labels[key]; ok {
			seen.add(label{values: []string{v}})
		}
	}
	if len(seen.values) != 1 {
		return label{open: true}, true
	}
	return seen, true
}

// daemonHolds reports whether the expression of a DaemonSet's pod is true of a label, on a node that has not joined yet. For
// values that nobody knows it is enough that it may be: room is reserved for each pod that may come.
func (c *check) daemonHolds(e *expr, l label) bool {
	switch {
	case l.open:
		return e.may(l)
	case l.absent && slices.Contains(c.s.Labels.MaySetOnJoin, e.key):
		return true
	}
	return e.holds(l)
}

// daemonMay is daemonHolds where the host's other labels are not known either.
func (c *check) daemonMay(e *expr, l label) bool { return e.may(l) || c.daemonHolds(e, l) }

// daemonComes reports whether the DaemonSet's pod runs on an existing node, or will once the node has joined.
func (c *check) daemonComes(daemon *corev1.Pod, pl *host) bool {
	if pl.joining == nil {
		return pl.satisfies(c.labelDemandsOf(daemon))
	}
	return c.labelDemandsOf(daemon).admits(func(e *expr) bool { return c.daemonHolds(e, pl.labelOf(e)) })
}

// daemonOn reports whether the DaemonSet's pod runs on a launch that became the outcome.
func (c *check) daemonOn(daemon *corev1.Pod, pl *host, out outcome) bool {
	return c.labelDemandsOf(daemon).admits(func(e *expr) bool { return c.daemonHolds(e, pl.labelOn(out, e.key)) })
}
