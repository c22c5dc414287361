package rollout

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Code is what evidence shows.
type Code string

// The codes: of pods, the worst first; and of nodes.
const (
	// ImageNotPulled: the image of a container cannot be pulled.
	ImageNotPulled Code = "ImageNotPulled"
	// CrashLoop: a container crashes again and again, or cannot be started.
	CrashLoop Code = "CrashLoop"
	// Refused: kubelet has refused or evicted the pod.
	Refused Code = "Refused"
	// Restarts: containers have restarted during the soak.
	Restarts Code = "Restarts"
	// NotReady: the pod has not been ready for a while.
	NotReady Code = "NotReady"
	// Pressure: the node lacks memory, disk or process IDs.
	Pressure Code = "Pressure"
	// TooSmall: the node has less for pods than its instance type has elsewhere.
	TooSmall Code = "TooSmall"
)

const (
	// settle is how long a pod may take to become ready, at the most: images are pulled, caches are filled.
	settle = 2 * time.Minute
	// manyRestarts is more than a daemon that finds its configuration on the second start needs.
	manyRestarts = 2
	// unhealthyAnyway: if one in so many siblings or more is unhealthy, their health states nothing about a node.
	unhealthyAnyway = 4
	// shownPods bounds the names in evidence.
	shownPods = 3
	// tooSmall: a node that has less than this share of what was expected of it, in percent. Reserves differ by less.
	tooSmall = 80
)

// Owner is the controller of pods.
type Owner struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"-"`
}

// Evidence is what is wrong on a new node and not on those that are known to work.
type Evidence struct {
	Code Code `json:"code"`
	// Detail is the word of kubelet, or the condition or resource of the node.
	Detail string `json:"detail,omitempty"`
	// Owner has Bad of Of pods on the node that are not healthy, Pods names some. Of Siblings elsewhere BadSiblings are not healthy.
	Owner       Owner    `json:"owner,omitzero"`
	Pods        []string `json:"pods,omitempty"`
	Bad         int      `json:"bad,omitempty"`
	Of          int      `json:"of,omitempty"`
	BadSiblings int      `json:"badSiblings,omitempty"`
	Siblings    int      `json:"siblings,omitempty"`
	// Has and Expected are amounts of the resource, of a node that is too small.
	Has      string `json:"has,omitempty"`
	Expected string `json:"expected,omitempty"`
	// Since is when it began.
	Since metav1.Time `json:"since"`
}

// Window is what a soak is judged by.
type Window struct {
	Soak time.Duration
	Now  time.Time
}

// Settle is how long a pod may take to become ready: half of a soak at the most, so that it shows within that.
func (w Window) Settle() time.Duration { return min(settle, w.Soak/2) }

// daemonSet is the kind of the owner of pods that run on every node.
const daemonSet = "DaemonSet"

// symptom is what is wrong with a pod.
type symptom struct {
	code   Code
	detail string
	since  time.Time
}

// ComparePods returns what is wrong with the pods of a new node: those of an owner are less healthy than its siblings, which are its pods
// on nodes that are known to work. Where an owner has no sibling to compare with, the pods of one owner prove nothing, unless they are of a
// DaemonSet; those of two do. Costs one look at each pod.
func ComparePods(pods, siblings []*corev1.Pod, w Window) (Evidence, bool) {
	on, elsewhere := w.byOwner(pods), w.byOwner(siblings)
	var found, alone []Evidence
	for _, e := range on {
		if e.Bad == 0 {
			continue
		}
		i := slices.IndexFunc(elsewhere, func(o Evidence) bool { return o.Owner.UID == e.Owner.UID })
		switch {
		case i < 0 && e.Owner.Kind == daemonSet:
			found = append(found, e)
		case i < 0:
			alone = append(alone, e)
		default:
			e.BadSiblings, e.Siblings = elsewhere[i].Bad, elsewhere[i].Of
			healthier := e.BadSiblings*e.Of < e.Bad*e.Siblings
			if healthier && e.BadSiblings*unhealthyAnyway < e.Siblings {
				found = append(found, e)
			}
		}
	}
	if len(alone) > 1 {
		found = append(found, alone...)
	}
	if len(found) == 0 {
		return Evidence{}, false
	}
	return slices.MinFunc(found, func(a, b Evidence) int {
		return cmp.Or(cmp.Compare(rank(a.Code), rank(b.Code)), cmp.Compare(b.Bad, a.Bad), cmp.Compare(a.Owner.Namespace, b.Owner.Namespace),
			cmp.Compare(a.Owner.Name, b.Owner.Name))
	}), true
}

// rank is the place of a code: those that name a cause come first.
func rank(c Code) int {
	return slices.Index([]Code{ImageNotPulled, CrashLoop, Refused, Restarts, NotReady}, c)
}

// byOwner counts the pods of each owner, sorted by its UID.
func (w Window) byOwner(pods []*corev1.Pod) []Evidence {
	var out []Evidence
	for _, p := range pods {
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil || p.DeletionTimestamp != nil {
			continue
		}
		s, bad := w.symptomOf(p)
		if !bad && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed) {
			continue
		}
		i := slices.IndexFunc(out, func(e Evidence) bool { return e.Owner.UID == ref.UID })
		if i < 0 {
			i = len(out)
			out = append(out, Evidence{Owner: Owner{ref.Kind, p.Namespace, ref.Name, ref.UID}})
		}
		e := &out[i]
		e.Of++
		if !bad {
			continue
		}
		if e.Bad == 0 || rank(s.code) < rank(e.Code) {
			e.Code, e.Detail = s.code, s.detail
		}
		if e.Bad == 0 || s.since.Before(e.Since.Time) {
			e.Since = metav1.NewTime(s.since)
		}
		if e.Bad++; len(e.Pods) < shownPods {
			e.Pods = append(e.Pods, p.Name)
		}
	}
	return out
}

// symptomOf returns what is wrong with a pod, the worst first.
func (w Window) symptomOf(p *corev1.Pod) (symptom, bool) {
	if p.Status.Phase == corev1.PodFailed {
		return symptom{Refused, p.Status.Reason, startOf(p)}, p.Status.Reason != ""
	}
	if p.Status.Phase == corev1.PodSucceeded {
		return symptom{}, false
	}
	unready := unreadySince(p)
	late := !unready.IsZero() && w.Now.Sub(unready) >= w.Settle()
	restarts, last := int32(0), time.Time{}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if waiting := c.State.Waiting; waiting != nil {
			switch waiting.Reason {
			case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable":
				if late { // a registry may be busy for a moment
					return symptom{ImageNotPulled, waiting.Reason, unready}, true
				}
			case "CrashLoopBackOff", "RunContainerError", "CreateContainerError", "CreateContainerConfigError", "PostStartHookError":
				if late || c.RestartCount >= manyRestarts {
					return symptom{CrashLoop, waiting.Reason, cmp.Or(unready, startOf(p))}, true
				}
			}
		}
		if restarts += c.RestartCount; c.LastTerminationState.Terminated != nil {
			last = later(last, c.LastTerminationState.Terminated.FinishedAt.Time)
		}
	}
	if restarts >= manyRestarts && w.Now.Sub(last) < w.Soak {
		return symptom{Restarts, "", last}, true
	}
	if late {
		return symptom{NotReady, "", unready}, true
	}
	return symptom{}, false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func startOf(p *corev1.Pod) time.Time {
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return p.CreationTimestamp.Time
}

// unreadySince is since when a pod is not ready; zero if it is.
func unreadySince(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type != corev1.PodReady:
		case c.Status == corev1.ConditionTrue:
			return time.Time{}
		default:
			return c.LastTransitionTime.Time
		}
	}
	return startOf(p)
}

// ExamineNode returns what is wrong with a new node that reports to be ready. expected is what its instance type was expected to have for
// pods.
func ExamineNode(node *corev1.Node, expected corev1.ResourceList) (Evidence, bool) {
	for _, c := range node.Status.Conditions {
		switch c.Type {
		case corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable:
			if c.Status == corev1.ConditionTrue {
				return Evidence{Code: Pressure, Detail: string(c.Type), Since: c.LastTransitionTime}, true
			}
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		want, has := expected[name], node.Status.Allocatable[name]
		if _, stated := node.Status.Allocatable[name]; stated && percent(has, want) < tooSmall {
			return Evidence{
				Code: TooSmall, Detail: string(name), Has: has.String(), Expected: want.String(), Since: node.CreationTimestamp,
			}, true
		}
	}
	return Evidence{}, false
}

// percent is the share that one amount is of another; 100 if the other is zero.
func percent(a, b resource.Quantity) int64 {
	if b.IsZero() {
		return 100
	}
	return int64(100 * a.AsApproximateFloat64() / b.AsApproximateFloat64())
}
