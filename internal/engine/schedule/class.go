package schedule

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/existing"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/sizing"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// class is an equivalence class of pods: equal constraints and equal requests.
type class struct {
	// Pods are those left, with their value at the dual prices for the rest of the queue.
	sizing.Pods
	members int // pods in the snapshot
	// pods in queue order; those before nextPod are scheduled.
	pods    []*queuedPod
	nextPod int
	// attempts are the attempt caches, by relaxation level.
	attempts []attemptCache
	// boundValue is what a pod is worth at the dual prices of the lower bound, in $/h.
	boundValue float64
	boundPods  int // number of the pods in the market of the lower bound; -1 if they are not in it
	boundIndex int // among the pods of the lower bound
	// oversized is true when a pod is larger than any room, on existing nodes and on instance types.
	oversized bool
	// unknownResources are requested resources that nothing has, if these have no axis.
	unknownResources []corev1.ResourceName
	// deferred classes launch nodes last: see price.Market.DearerInHeaviestPool.
	deferred bool
	// round is when the class is placed: see placeLast.
	round int
	// run is the last run with pods of the class; onExisting is how many of them are on existing nodes.
	run, onExisting int
	// failedAt is the solver's generation of the last failed attempt.
	failedAt int
	// whole is the class that this one is a part of: its pods in one zone. See divideOverZones.
	whole *class
	// crossed are the spreads that need to know the domain of the class's pods at once: see findCrossRules. A class of pods
	// in one zone has those of the whole.
	crossed []*topology.Group
}

// attemptCache is what is known of placing pods of a class at one relaxation level, for the rest of the run.
type attemptCache struct {
	nodes existing.List
	bins  bin.List
	// aboveCeiling is bins for those that a pod may also raise above their ceiling.
	aboveCeiling bin.List
	noNewBin     bool // no template makes a node for it
	placed       int  // pods of the run that are placed at the level
}

// classOf is the class of the run that bins know as this one.
func (r *run) classOf(c *podclass.Class) *class {
	if n := c.Number() - len(r.allClasses); n >= 0 {
		return r.zoned[n]
	}
	return r.allClasses[c.Number()]
}

// queueOrder puts large pods first, so that small ones fill what they leave, then the oldest. This is the order of
// first fit decreasing; it is total, so plans do not depend on the order of the snapshot.
func queueOrder(a, b *queuedPod) int {
	if a.cpu != b.cpu {
		return cmp.Compare(b.cpu, a.cpu)
	}
	if a.memory != b.memory {
		return cmp.Compare(b.memory, a.memory)
	}
	if older := a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time); older != 0 {
		return older
	}
	if a.pod.UID != b.pod.UID {
		return cmp.Compare(a.pod.UID, b.pod.UID)
	}
	return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
}

// queuedPod is a pod in the queue.
type queuedPod struct {
	pod         *corev1.Pod
	class       *class
	cpu, memory int64
	placed      bool
}
