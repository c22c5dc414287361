package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// handOverPlaces gives waiting pods the places of pods that run elsewhere. kube-scheduler does not know for which pod a claim was
// launched: when a node is ready, it binds the first pod that fits, which may be that of a claim that has no instance yet. The pod that the
// node was launched for then needs a node, and the claim, which is for a pod that has one, will be it. Without this, a plan made before
// the claim is launched has another node for the waiting pod.
//
// A place is for a pod that needs no more than the one that left it, of the same constraints: whatever the claim is launched as, it fits.
// Each place goes to one pod, the first by name, and no pod that has a place gets another.
//
// Cost: linear in the nodes; with vacated places also in the pods, plus waiting pods × places × kinds of constraints in the worst case.
func (w *snapshotBuilder) handOverPlaces() {
	places := w.vacatedPlaces()
	if len(places) == 0 {
		return
	}
	held := w.heldPlaces()
	for _, pod := range w.snap.Pods {
		if len(places) == 0 {
			return
		}
		if held[pod.UID] {
			continue
		}
		at := slices.IndexFunc(places, func(p vacatedPlace) bool { return replaces(pod, p.pod) })
		if at < 0 {
			continue
		}
		p := places[at]
		p.node.Nominated[slices.Index(p.node.Nominated, p.pod.UID)] = pod.UID
		slices.Sort(p.node.Nominated)
		places = slices.Delete(places, at, at+1)
	}
}

// vacatedPlace is the room of a pod on the node of a claim that has no instance yet, while the pod runs on another node.
type vacatedPlace struct {
	node *snapshot.Node
	pod  *corev1.Pod
}

// vacatedPlaces are the vacated places of all claims, by the name of the claim and the UID of the pod.
func (w *snapshotBuilder) vacatedPlaces() []vacatedPlace {
	unlaunched := map[types.UID]*snapshot.Node{}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		if n.Claim == "" || n.Launched || n.Deleting {
			continue
		}
		for _, uid := range n.Nominated {
			unlaunched[uid] = n
		}
	}
	if len(unlaunched) == 0 {
		return nil
	}
	for _, pod := range w.snap.Pods {
		delete(unlaunched, pod.UID) // it waits for its claim
	}
	left := map[types.UID]*corev1.Pod{}
	for i := range w.snap.Nodes {
		for _, pod := range w.snap.Nodes[i].Pods {
			if unlaunched[pod.UID] != nil {
				left[pod.UID] = pod
			}
		}
	}
	var out []vacatedPlace
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		for _, uid := range n.Nominated {
			if pod := left[uid]; pod != nil && unlaunched[uid] == n {
				out = append(out, vacatedPlace{n, pod})
			}
		}
	}
	return out
}

// heldPlaces are the pods with a place that is still theirs: on a claim without a ready node, or on a node where nobody has taken it.
func (w *snapshotBuilder) heldPlaces() map[types.UID]bool {
	waiting := make(map[types.UID]*corev1.Pod, len(w.snap.Pods))
	for _, pod := range w.snap.Pods {
		waiting[pod.UID] = pod
	}
	held := map[types.UID]bool{}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		if n.Deleting {
			continue
		}
		for _, uid := range n.Nominated {
			if pod := waiting[uid]; pod != nil && !(n.Initialized && placeTaken(n, pod)) {
				held[uid] = true
			}
		}
	}
	return held
}

// placeTaken reports whether other pods keep the pod off the node that was launched for it: they leave too little room, or it must not run
// beside one of them.
func placeTaken(n *snapshot.Node, pod *corev1.Pod) bool {
	excludes := boundToOthers(&pod.Spec) || len(resources.HostPorts(pod)) > 0
	taken := snapshot.Requests(pod)
	for _, other := range n.Pods {
		if excludes && !slices.Contains(n.Nominated, other.UID) && replaces(other, pod) {
			return true
		}
		for name, amount := range snapshot.Requests(other) {
			if sum, counts := taken[name]; counts {
				sum.Add(amount)
				taken[name] = sum
			}
		}
	}
	return !holds(n.Allocatable, taken)
}

// replaces reports whether a pod fits wherever the other one does: it requests no more, and has the same constraints. Pods with volumes or
// devices of their own replace none.
func replaces(pod, other *corev1.Pod) bool {
	a, b := &pod.Spec, &other.Spec
	same := equality.Semantic.DeepEqual
	if len(a.ResourceClaims) > 0 || volume.HasClaims(pod) || volume.HasClaims(other) || !same(a.NodeSelector, b.NodeSelector) ||
		!same(a.Affinity, b.Affinity) || !same(a.Tolerations, b.Tolerations) ||
		!same(a.TopologySpreadConstraints, b.TopologySpreadConstraints) ||
		!slices.Equal(resources.HostPorts(pod), resources.HostPorts(other)) {
		return false
	}
	if boundToOthers(a) && (pod.Namespace != other.Namespace || !same(pod.Labels, other.Labels)) {
		return false
	}
	return holds(snapshot.Requests(other), snapshot.Requests(pod))
}

// holds reports whether there is room for the requests.
func holds(room, requests corev1.ResourceList) bool {
	for name, amount := range requests {
		if have := room[name]; amount.Cmp(have) > 0 {
			return false
		}
	}
	return true
}

// boundToOthers reports whether it matters to the pod where other pods run. Which ones these are depends on its namespace and labels.
func boundToOthers(spec *corev1.PodSpec) bool {
	affinity := spec.Affinity
	return len(spec.TopologySpreadConstraints) > 0 || affinity != nil && (affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil)
}
