package rejection

// GroupOfPods states why the pods of a PodGroup get no nodes.
type GroupOfPods struct {
	Name  string     `json:"name"`
	Cause GroupCause `json:"cause"`
	// Held states why kube-scheduler does not try the group, or fails with any node, after the group's name.
	Held string `json:"held,omitempty"`
	// MinCount counts how many pods need nodes at the same time, Pods how many wait for one, Placed how many of these fit, and Scheduled how
	// many others have a node.
	MinCount  int `json:"minCount,omitempty"`
	Pods      int `json:"pods,omitempty"`
	Placed    int `json:"placed,omitempty"`
	Scheduled int `json:"scheduled,omitempty"`
	// Key is the label of which all pods need one value; Domain is the value in which the most of them fit.
	Key    string `json:"key,omitempty"`
	Domain string `json:"domain,omitempty"`
	// Domains counts how many domains the group may be in, and Tried how many of these the pass has tried: the others have their turn in
	// passes that follow. Both are 0 if all were tried.
	Domains int `json:"domains,omitempty"`
	Tried   int `json:"tried,omitempty"`
	// Before is the group with room that this one would take.
	Before string `json:"before,omitempty"`
	// Pod is one that does not fit, and Why is the first reason.
	Pod string     `json:"pod,omitempty"`
	Why *PodReason `json:"why,omitempty"`
}

// PodReason is a reason of one pod.
type PodReason struct {
	Code     Code   `json:"code"`
	NodePool string `json:"nodePool,omitempty"`
	Rule     *Rule  `json:"rule,omitempty"`
}

// GroupCause states why a group gets no nodes.
type GroupCause string

// The causes.
const (
	GroupHeld     GroupCause = "Held"
	GroupTooFew   GroupCause = "TooFewFit"
	GroupNotFirst GroupCause = "TakesRoomOfAnother"
	GroupNoDomain GroupCause = "NoDomain"
	GroupNotTried GroupCause = "NotTried" // the pass has spent its plans for domains on other groups
)
