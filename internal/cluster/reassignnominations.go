package cluster

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// maxPlaceChecks limits how many comparisons of pods one snapshot makes to hand over places: a second of them. Thousands of waiting pods,
// no two alike, beside hundreds of places would otherwise take minutes, with provisioning locked. Places that are left over wait for their
// claims to launch.
const maxPlaceChecks = 200_000

// reassignNominations gives waiting pods the places of pods that run elsewhere. kube-scheduler does not know for which pod a claim was
// launched: when a node is ready, it binds the first pod that fits, which may be that of a claim that has no instance yet. The pod that the
// node was launched for then needs a node, and the claim, which is for a pod that has one, will be it. Without this, a plan made before
// the claim is launched has another node for the waiting pod.
//
// A place is for a pod that needs no more than the one that left it, of the same constraints: whatever the claim is launched as, it fits.
// Each place goes to one pod, the first by priority and name, and no pod that has a place gets another.
//
// Cost: linear in the nodes; with freed places also in the pods, plus classes of waiting pods × places, up to maxPlaceChecks.
func (w *snapshotBuilder) reassignNominations() {
	places := w.freedPlaces()
	if len(places) == 0 {
		return
	}
	h := &reassignment{
		w: w, places: places, keys: podclass.NewKeys(false /* devices */, &w.facts.Settings), from: map[string]int{}, checks: maxPlaceChecks,
	}
	held := h.heldPlaces()
	byPriority := slices.Clone(w.snap.Pods)
	slices.SortStableFunc(byPriority, func(a, b *corev1.Pod) int { return cmp.Compare(priority(b), priority(a)) })
	for left, i := len(places), 0; left > 0 && i < len(byPriority); i++ {
		pod := byPriority[i]
		if held[pod.UID] {
			continue
		}
		if p := h.placeFor(pod); p != nil {
			p.node.Nominated[slices.Index(p.node.Nominated, p.pod.UID)] = pod.UID
			slices.Sort(p.node.Nominated)
			p.taken = true
			left--
		}
	}
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// reassignment finds places for waiting pods.
type reassignment struct {
	w      *snapshotBuilder
	places []freedPlace
	keys   *podclass.Keys
	// from is the first place that may suit pods of a class. Places are only ever taken, so those before it never will.
	from map[string]int
	// checks counts how many comparisons are left.
	checks int
	// apart are the terms that keep pods off other pods' nodes or zones, read when first needed.
	apart     []apartTerm
	apartRead bool
}

// placeFor is the first free place that suits the pod; nil if none does.
func (h *reassignment) placeFor(pod *corev1.Pod) *freedPlace {
	key, err := h.keys.Of(pod)
	if err != nil {
		return nil // the plan reports it
	}
	class, requests := string(key.All), h.w.requests(pod)
	for i := h.from[class]; i < len(h.places); i++ {
		if h.checks--; h.checks < 0 {
			return nil
		}
		p := &h.places[i]
		if !p.taken && quantity.Fits(requests, p.room) && sameConstraints(pod, p.pod) && (sameLabels(pod, p.pod) || h.anyLabels(pod)) {
			h.from[class] = i + 1
			return p
		}
	}
	h.from[class] = len(h.places)
	return nil
}

// anyLabels reports whether the labels of the pod cannot keep it off a place: no anti-affinity selects it, and it is not spread.
func (h *reassignment) anyLabels(pod *corev1.Pod) bool {
	return len(h.w.facts.Settings.DefaultSpread) == 0 && !h.selectedByAntiAffinity(pod)
}

// freedPlace is the room of a pod on the node of a claim that has no instance yet, while the pod runs on another node.
type freedPlace struct {
	node *snapshot.Node
	pod  *corev1.Pod
	// room holds what the claim was launched for, for the pod: less than the pod requests if that was resized since.
	room  corev1.ResourceList
	taken bool
}

// freedPlaces are the freed places of all claims, by the name of the claim and the UID of the pod.
func (w *snapshotBuilder) freedPlaces() []freedPlace {
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
	waiting := map[types.UID]*corev1.Pod{}
	for _, pod := range w.snap.Pods {
		if unlaunched[pod.UID] != nil {
			waiting[pod.UID] = pod
		}
	}
	left := map[types.UID]*corev1.Pod{}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		for _, pod := range n.Pods {
			// Pods of a disruption command that has not created all of its replacements will need their places in these.
			if at := unlaunched[pod.UID]; at != nil && at != n && waiting[pod.UID] == nil && !n.Disrupting {
				left[pod.UID] = pod
			}
		}
	}
	var out []freedPlace
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		for k, uid := range n.Nominated {
			if pod := left[uid]; pod != nil && unlaunched[uid] == n && !slices.Contains(n.Nominated[:k], uid) {
				out = append(out, freedPlace{node: n, pod: pod, room: w.launchedFor(n, pod, left, waiting)})
			}
		}
	}
	return out
}

// launchedFor returns how much of what the claim requests is for the pod: what it requests now, less what the claim's pods request now
// beyond what the claim was launched for.
func (w *snapshotBuilder) launchedFor(n *snapshot.Node, pod *corev1.Pod, known ...map[types.UID]*corev1.Pod) corev1.ResourceList {
	room := w.requests(pod)
	launch := w.unlaunched[n.ClaimUID].Spec.Resources.Requests
	if len(launch) == 0 {
		return room // a claim that names none
	}
	for name, amount := range room {
		free := launch[name].DeepCopy()
		for _, uid := range n.Nominated {
			for _, pods := range known {
				if other := pods[uid]; other != nil && uid != pod.UID {
					free.Sub(snapshot.Requests(other)[name])
				}
			}
		}
		if free.Cmp(amount) < 0 {
			room[name] = free
		}
	}
	return room
}

// heldPlaces are the pods with a place that is still theirs: on a claim without an instance, or on a node where nobody has taken it.
// kube-scheduler binds pods as soon as the taints are gone, which is before the node is initialized.
func (h *reassignment) heldPlaces() map[types.UID]bool {
	waiting := make(map[types.UID]*corev1.Pod, len(h.w.snap.Pods))
	for _, pod := range h.w.snap.Pods {
		waiting[pod.UID] = pod
	}
	held := map[types.UID]bool{}
	for i := range h.w.snap.Nodes {
		n := &h.w.snap.Nodes[i]
		if n.Deleting {
			continue
		}
		var used corev1.ResourceList // when first needed
		for _, uid := range n.Nominated {
			pod := waiting[uid]
			if pod == nil {
				continue
			}
			if !n.Launched || !n.Initialized && len(n.Pods) == 0 {
				held[uid] = true
				continue
			}
			if used == nil {
				used = usedOf(n)
			}
			if !roomTaken(n, used, h.w.requests(pod)) && !h.excluded(n, pod) {
				held[uid] = true
			}
		}
	}
	return held
}

// usedOf returns what the pods of the node request.
func usedOf(n *snapshot.Node) corev1.ResourceList {
	used := corev1.ResourceList{}
	for _, pod := range n.Pods {
		for name, amount := range snapshot.Requests(pod) {
			sum := used[name]
			sum.Add(amount)
			used[name] = sum
		}
	}
	return used
}

// requests are those that kube-scheduler compares with what nodes have.
func (w *snapshotBuilder) requests(pod *corev1.Pod) corev1.ResourceList {
	return w.facts.Settings.Compared(&pod.Spec, snapshot.Requests(pod))
}

// roomTaken reports whether other pods leave a pod with these requests too little room on the node that was launched for it.
func roomTaken(n *snapshot.Node, used, requests corev1.ResourceList) bool {
	for name, amount := range requests {
		sum := used[name].DeepCopy()
		sum.Add(amount)
		if sum.Cmp(n.Allocatable[name]) > 0 {
			return true
		}
	}
	return false
}

// excluded reports whether the pod must not run beside one that is on the node that was launched for it.
func (h *reassignment) excluded(n *snapshot.Node, pod *corev1.Pod) bool {
	if !boundToOthers(&pod.Spec) && len(resources.HostPorts(pod)) == 0 {
		return false
	}
	for _, other := range n.Pods {
		if h.checks--; h.checks < 0 {
			return false
		}
		if sameConstraints(other, pod) && quantity.Fits(snapshot.Requests(other), snapshot.Requests(pod)) &&
			!slices.Contains(n.Nominated, other.UID) {
			return true
		}
	}
	return false
}

// sameConstraints reports whether a pod fits wherever the other one does, if it requests no more. Pods with volumes or devices of their own
// replace none.
func sameConstraints(pod, other *corev1.Pod) bool {
	a, b := &pod.Spec, &other.Spec
	same := equality.Semantic.DeepEqual
	return a.SchedulerName == b.SchedulerName && len(a.ResourceClaims) == 0 &&
		!volume.HasClaims(pod) && !volume.HasClaims(other) && same(a.NodeSelector, b.NodeSelector) &&
		same(a.Affinity, b.Affinity) && same(a.Tolerations, b.Tolerations) &&
		same(a.TopologySpreadConstraints, b.TopologySpreadConstraints) &&
		slices.Equal(resources.HostPorts(pod), resources.HostPorts(other)) && (!boundToOthers(a) || sameLabels(pod, other))
}

// sameLabels reports whether selectors of pods cannot distinguish them , but by where they run: the API server gives a pod the zone and the
// region of its node as labels when it is bound.
func sameLabels(pod, other *corev1.Pod) bool {
	within := func(a, b map[string]string) bool {
		for key, value := range a {
			if has, ok := b[key]; key != corev1.LabelTopologyZone && key != corev1.LabelTopologyRegion && (!ok || has != value) {
				return false
			}
		}
		return true
	}
	return pod.Namespace == other.Namespace && within(pod.Labels, other.Labels) && within(other.Labels, pod.Labels)
}

// boundToOthers reports whether it matters to the pod where other pods run. Which ones these are depends on its namespace and labels.
func boundToOthers(spec *corev1.PodSpec) bool {
	affinity := spec.Affinity
	return len(spec.TopologySpreadConstraints) > 0 || affinity != nil && (affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil)
}
