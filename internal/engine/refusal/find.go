package refusal

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Outcome describes what became of a node for equal pods that it was launched for.
type Outcome int

// The outcomes of a node.
const (
	// Undecided: the node is too young to report.
	Undecided Outcome = iota
	// Refused: a pod is pending, and no equal pod has come to the node.
	Refused
	// Taken: other pods came first that no node was needed for, and leave no room.
	Taken
	// Accepted: one of the pods has come to the node.
	Accepted
	// Unknown: the node states nothing of the pods.
	Unknown
)

// Finding is the outcome of one node for equal pods.
type Finding struct {
	Outcome           Outcome
	Class             string
	Pool, Claim, Node string
	Created           time.Time
	// At is the time when the pod was bound, for Accepted.
	At time.Time
	// Pod is one of the pods. Why is what is known of it and the node, and Cause the kind of that; both for Refused and Taken.
	Pod   *corev1.Pod
	Why   string
	Cause Kind
}

// PodName is the pod's namespace and name.
func (f *Finding) PodName() string { return f.Pod.Namespace + "/" + f.Pod.Name }

// ReportDelay sets how long after a node has settled a pod that still suits it may be pending before that is reported: kube-scheduler
// waits up to 10 s before it tries a pod again, and longer if it is busy. Where a plan has another node for the pod, it is found at once.
const ReportDelay = time.Minute

// Search is a search for nodes that were launched in vain.
type Search struct {
	*snapshot.Snapshot
	Classes Classes
	// Pods are waiting pods, some of those of the snapshot.
	Pods []*corev1.Pod
	// Relaunched is true if a plan has another node for the pods, whatever nodes they were launched for.
	Relaunched bool
	// Fills are the names of the nodes that the plan places other pods on.
	Fills map[string]bool

	byUID   map[types.UID]*corev1.Pod
	byClass map[string]*corev1.Pod
	bound   map[types.UID]bool
	// needed are the pods that any node was launched for.
	needed map[types.UID]bool
	// gangs are the gangs that have been looked at, see gangOf.
	gangs  map[*snapshot.Group]*gangNodes
	groups *snapshot.Groups
}

// Find finds, for the pods, what became of the nodes that were launched for them or for equal pods. A node that no pod waits for has
// no finding.
//
// Cost: linear in the nodes, in the pods that they were launched for, and in the pods of a young node's class; for a node that
// nothing has come to, linear in all pods once.
func (x *Search) Find() (out []Finding) {
	x.byUID = make(map[types.UID]*corev1.Pod, len(x.Pods))
	for _, pod := range x.Pods {
		x.byUID[pod.UID] = pod
	}
	for i := range x.Nodes {
		n := &x.Nodes[i]
		early := n.Deleting && x.Now.Before(n.SettledAt) // something else has removed it
		if n.Claim != "" && n.Initialized && n.PodClasses != "" && !early {
			out = append(out, x.findOn(n)...)
		}
	}
	return out
}

func (x *Search) findOn(n *snapshot.Node) (out []Finding) {
	found := map[string]int{}
	for uid := range split(n.LaunchedFor) {
		pod := x.byUID[types.UID(uid)]
		if pod == nil {
			continue
		}
		class := x.Classes.Of(pod)
		at, known := found[class]
		if known && out[at].Outcome != Taken || !known && x.holds(n, class) {
			continue
		}
		outcome := x.outcome(n, pod)
		switch {
		case outcome == Unknown:
		case known: // those that are left decide
			out[at] = x.finding(n, pod, outcome)
		default:
			found[class] = len(out)
			out = append(out, x.finding(n, pod, outcome))
		}
	}
	if len(found) > 0 || n.PodCame || slices.ContainsFunc(n.Pods, ordinary) {
		return out
	}
	// The pods that it was launched for are gone, and their owner has made equal ones; or they have come to another node, and equal ones
	// are pending all the same.
	elsewhere := x.anyElsewhere(n)
	for class := range split(n.PodClasses) {
		pod := x.ofClass(class)
		if pod == nil {
			continue
		}
		switch outcome := x.decide(n, pod); {
		case outcome == Unknown:
		case outcome == Refused && (!elsewhere || x.tried(n, pod)):
			out = append(out, x.finding(n, pod, Refused))
		case !elsewhere:
			out = append(out, x.finding(n, pod, Undecided))
		}
	}
	return out
}

// tried reports whether kube-scheduler has had the time to place a pod on the node.
func (x *Search) tried(n *snapshot.Node, pod *corev1.Pod) bool {
	return !x.Now.Before(n.SettledAt.Add(ReportDelay)) && !x.Now.Before(pod.CreationTimestamp.Add(ReportDelay))
}

func (x *Search) finding(n *snapshot.Node, pod *corev1.Pod, outcome Outcome) Finding {
	f := Finding{
		Outcome: outcome, Class: x.Classes.Of(pod), Pool: n.Pool, Claim: n.Claim, Node: n.Name, Created: n.CreatedAt, Pod: pod,
	}
	switch outcome {
	case Refused:
		f.Why, f.Cause = x.why(n, pod)
	case Taken:
		f.Why, f.Cause = takenMessage(n), OthersFirst
	}
	return f
}

// outcome is that of the node for a pod that it was launched for and that is pending.
func (x *Search) outcome(n *snapshot.Node, pod *corev1.Pod) Outcome {
	switch {
	case n.SettledAt.IsZero(): // the claim does not state yet that the node is initialized
		return Undecided
	case slices.Contains(n.TakenFrom, pod.UID) && x.holdsNeeded(n):
		return Unknown
	case slices.Contains(n.TakenFrom, pod.UID):
		return Taken
	case slices.Contains(n.TooSmallFor, pod.UID):
		return Refused
	}
	return x.decide(n, pod)
}

// holdsNeeded reports whether a pod is on the node that was pending before the node was created, or that some node was launched for. Then
// the node was not launched in vain, whichever pods kube-scheduler put on which of the new nodes, and there is an end to it: each such pod
// is on one node.
func (x *Search) holdsNeeded(n *snapshot.Node) bool {
	if x.needed == nil {
		x.needed = map[types.UID]bool{}
		for i := range x.Nodes {
			for uid := range split(x.Nodes[i].LaunchedFor) {
				x.needed[types.UID(uid)] = true
			}
		}
	}
	return slices.ContainsFunc(n.Pods, func(pod *corev1.Pod) bool {
		return ordinary(pod) && (x.needed[pod.UID] || pod.CreationTimestamp.Time.Before(n.CreatedAt))
	})
}

// decide decides whether a pod that is pending now has been refused by the node.
//
// A taint, a label, a feature or a lack of room that the node shows decides once it has settled. A CSI driver may come later. Otherwise
// only kube-scheduler knows: it must have reported on the pod, and have had the time to try it. It may be slow; the plan may have filled
// the node with other pods, which states nothing of this one; and on a node that is being removed for another reason than that it is empty
// it does not try pods any more.
func (x *Search) decide(n *snapshot.Node, pod *corev1.Pod) Outcome {
	if g := x.gangOf(pod); g.short() {
		return x.decideShort(n, g)
	}
	_, shows := x.cause(n, pod)
	onlyScheduler := shows == OnlySchedulers || shows == LacksDriver
	switch {
	case n.SettledAt.IsZero():
		return Undecided
	case !onlyScheduler && (x.Relaunched || n.Deleting), snapshot.FailsToBind(pod):
		if !x.Now.Before(n.SettledAt) {
			return Refused
		}
		return Undecided
	case n.Emptied && !x.Now.Before(n.SettledAt):
		return Refused // else a node would come for the same pods, and go empty, without end
	case n.Deleting || n.Disrupting:
		return Unknown
	case x.Fills[n.Name]:
		return Unknown
	case x.Now.Before(n.SettledAt.Add(ReportDelay)):
		return Undecided
	case schedulerMessage(pod) == "" && shows == OnlySchedulers:
		return Undecided
	}
	return Refused
}

// holds reports whether a pod of the class is on the node.
func (x *Search) holds(n *snapshot.Node, class string) bool {
	return slices.ContainsFunc(n.Pods, func(pod *corev1.Pod) bool { return ordinary(pod) && x.Classes.Of(pod) == class })
}

func ordinary(pod *corev1.Pod) bool { return !snapshot.DaemonOwned(pod) && !snapshot.Mirror(pod) }

// anyElsewhere reports whether a pod that the node was launched for runs on another one, or waits.
func (x *Search) anyElsewhere(n *snapshot.Node) bool {
	if n.LaunchedFor == "" {
		return false
	}
	if x.bound == nil {
		x.bound = map[types.UID]bool{}
		for i := range x.Nodes {
			for _, pod := range x.Nodes[i].Pods {
				x.bound[pod.UID] = true
			}
		}
		for _, pod := range x.Waiting() {
			x.bound[pod.UID] = true
		}
	}
	for uid := range split(n.LaunchedFor) {
		if x.bound[types.UID(uid)] {
			return true
		}
	}
	return false
}

// ofClass is one of the pods; nil if none is of the class.
func (x *Search) ofClass(class string) *corev1.Pod {
	if x.byClass == nil {
		x.byClass = map[string]*corev1.Pod{}
		for _, pod := range x.Pods {
			if c := x.Classes.Of(pod); x.byClass[c] == nil {
				x.byClass[c] = pod
			}
		}
	}
	return x.byClass[class]
}

// FindAccepted finds the pods of classes with a history that have come to a node that was launched for equal pods.
func FindAccepted(s *snapshot.Snapshot, histories map[string]*History, classes Classes) (out []Finding) {
	concerned := map[string]bool{}
	for _, h := range histories {
		for class, r := range h.Classes {
			if len(r.Claims)+len(r.Taken) > 0 {
				concerned[class] = true
			}
		}
	}
	if len(concerned) == 0 {
		return nil
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.PodClasses == "" {
			continue
		}
		launchedFor := slices.Collect(split(n.PodClasses))
		if !slices.ContainsFunc(launchedFor, func(class string) bool { return concerned[class] }) {
			continue
		}
		for _, pod := range n.Pods {
			class := ""
			if ordinary(pod) {
				class = classes.Of(pod)
			}
			if concerned[class] && slices.Contains(launchedFor, class) {
				out = append(out, Finding{
					Outcome: Accepted, Class: class, Pool: n.Pool, Claim: n.Claim, Node: n.Name, Created: n.CreatedAt, At: boundAt(pod), Pod: pod,
				})
			}
		}
	}
	return out
}

// boundAt returns when the pod was bound.
func boundAt(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
