package inflight

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ChangedPod is a pod because of which a command is dropped when all its nodes are tainted, and nothing is deleted or launched yet: it has
// come to the candidate's node, or has become protected, since the decision. It is nil if the command is still valid. pods are those on
// the node now. A command with a bounded drain moves protected pods, too.
func ChangedPod(cmd *disrupt.Command, c *disrupt.Candidate, pods []corev1.Pod, now time.Time) *corev1.Pod {
	known := make(map[types.UID]bool, len(c.Node.Pods))
	for _, p := range c.Node.Pods {
		known[p.UID] = true
	}
	bounded := cmd.Bound != nil || c.Node.Bounded && cmd.Replaces()
	for i := range pods {
		p := &pods[i]
		came, protected := snapshot.Reschedulable(p) && !known[p.UID], !snapshot.Disruptable(p, now)
		switch {
		case cmd.Reason == karpv1.DisruptionEmpty:
			if disrupt.PreventsEmptiness(p) || protected {
				return p
			}
		case came, protected && !bounded:
			return p
		}
	}
	return nil
}
