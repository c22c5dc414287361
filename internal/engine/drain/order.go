package drain

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// SiblingsWait sets how long, from the beginning of a drain, its pods wait for pods of the same owner to be Ready. After that they are
	// evicted as without an order: a replica that never becomes Ready must not keep a node. A pod with an image to pull and a volume to
	// attach is Ready within two minutes.
	SiblingsWait = 5 * time.Minute
	// FinishWait sets how far from the beginning of a drain the expected end of a pod may be for the drain to wait for it.
	FinishWait = 10 * time.Minute
	// successorWait sets how long the controller of an evicted pod takes to make its successor, at most. Until then a missing replica does
	// not show in the pods that exist.
	successorWait = 2 * time.Second
	// oneOf is the share of an owner's pods that may be missing at a time: one of ten, and always one.
	oneOf = 10
)

// Owner is a ReplicaSet or a StatefulSet with pods that leave one after the other.
type Owner struct {
	// Pods are all pods of the owner in the cluster.
	Pods []*corev1.Pod
	// Stateful is true for a StatefulSet, Replicas are those that it should have; 0 if that is not known.
	Stateful bool
	Replicas int
	// Attached is true while a volume of one of the pods is attached to a node that the pod is not bound to.
	Attached bool
}

// Order is what the order among the pods of one owner depends on. The zero value has none.
type Order struct {
	// Owners are those of pods that take part, by UID. Pods of others leave without an order.
	Owners map[types.UID]Owner
	// Leaving are the nodes that are being drained, by name.
	Leaving map[string]bool
}

// Ordered reports whether a pod takes part: it has an owner that makes its successor, and the annotation dovetail.sh/drain with Ordered. An
// annotation that cannot be parsed has no effect.
func Ordered(p *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil || owner.Kind != "ReplicaSet" && owner.Kind != "StatefulSet" {
		return false
	}
	modes, _ := karpv1.WorkloadDrain(p.Annotations)
	return modes.Has(karpv1.DrainOrdered)
}

// hold is why a pod of the current tier is not evicted yet; why is empty if it is. Time alone changes that at until, zero if it never does.
type hold struct {
	why   Why
	until time.Time
}

// held returns what holds back a pod that is next in the order of tiers. Interrupted and broken nodes, and drains with an unknown
// beginning, hold back no pod: nothing would bound the wait.
func (n *Node) held(p *corev1.Pod, now time.Time) hold {
	if n.Interrupted || n.Broken || n.Since == nil || p.DeletionTimestamp != nil {
		return hold{}
	}
	if end := finishes(p); now.Before(end) && !end.After(n.Since.Add(FinishWait)) {
		return hold{Finishing, end}
	}
	bound := n.Since.Add(SiblingsWait)
	if !Ordered(p) || !now.Before(bound) {
		return hold{}
	}
	owner, known := n.Order.Owners[metav1.GetControllerOfNoCopy(p).UID]
	if !known {
		return hold{}
	}
	if held, until := n.waitsForSiblings(p, &owner, now); held {
		return hold{SiblingsNotReady, earliest(bound, until)}
	} else if until.Before(bound) {
		return hold{until: until}
	}
	return hold{}
}

// finishes is when a pod that completes by itself is expected to; zero if that is not known, or the pod has not opted in. A pod that states
// its duration has.
func finishes(p *corev1.Pod) time.Time {
	if p.Status.StartTime == nil || cmp.Or(p.Spec.RestartPolicy, corev1.RestartPolicyAlways) == corev1.RestartPolicyAlways {
		return time.Time{}
	}
	if d, err := karpv1.ExpectedDuration(p.Annotations); err == nil && d > 0 {
		return p.Status.StartTime.Add(d)
	}
	modes, _ := karpv1.WorkloadDrain(p.Annotations)
	limit := p.Spec.ActiveDeadlineSeconds
	if limit == nil || !modes.Has(karpv1.DrainOrdered) {
		return time.Time{}
	}
	return p.Status.StartTime.Add(time.Duration(min(*limit, longestGrace)) * time.Second)
}

// waitsForSiblings reports whether a pod stays until other pods of its owner are Ready, and when that changes by time alone. Of the pods
// on all nodes that are drained, those leave first that come first by name: every node has the same order without speaking to others.
//
// Cost: linear in the pods of the owner.
func (n *Node) waitsForSiblings(p *corev1.Pod, owner *Owner, now time.Time) (held bool, until time.Time) {
	if !owner.Stateful && !snapshot.Ready(p) {
		return false, time.Time{} // it serves nobody
	}
	exist, missing, before := 0, 0, 0
	for _, s := range owner.Pods {
		switch {
		case snapshot.Terminal(s):
		case s.DeletionTimestamp != nil && owner.Stateful:
			exist, missing = exist+1, missing+1 // its successor has its name, and comes after it
		case s.DeletionTimestamp != nil:
			if comes := requested(s).Add(successorWait); now.Before(comes) {
				missing, until = missing+1, earliest(until, comes)
			}
		default:
			exist++
			if s.UID == p.UID {
				continue
			}
			leaves := n.Order.Leaving[s.Spec.NodeName]
			switch protection, ends := snapshot.DoNotDisrupt(s, now); {
			case !snapshot.Ready(s) && (!leaves || s.Name < p.Name || snapshot.Ready(p)):
				missing++
			case !leaves || s.Name > p.Name:
			case protection.Blocks():
				until = earliest(until, ends)
			default:
				before++
			}
		}
	}
	allowed := 1
	if owner.Stateful {
		missing += max(0, owner.Replicas-exist)
		if owner.Attached {
			missing++
		}
	} else {
		allowed = max(1, exist/oneOf)
	}
	return missing+before >= allowed, until
}

// requested is when the deletion of a pod was requested: its timestamp is when its grace period is over.
func requested(p *corev1.Pod) time.Time {
	var grace int64
	if p.DeletionGracePeriodSeconds != nil {
		grace = min(*p.DeletionGracePeriodSeconds, longestGrace)
	}
	return p.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}
