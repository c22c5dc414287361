package rejection

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Labels states why no node has the labels that are required.
type Labels struct {
	Cause LabelCause `json:"cause"`
	// By states who requires them. Claim is the volume's, if it is known.
	By    Side   `json:"by,omitempty"`
	Claim string `json:"claim,omitempty"`
	// Required holds what is required: one label, but for NoTypeHas.
	Required []Label `json:"required,omitempty"`
	// With holds what no instance type has together with Required; Combined is true if there is more than Required to it. A combination
	// without With is of labels that the pool requires as well.
	With     []Label `json:"with,omitempty"`
	Combined bool    `json:"combined,omitempty"`
	// Allowed holds what the pool allows of the label; nil where the pool does not matter.
	Allowed *Label `json:"allowed,omitempty"`
	// Similar is the known word that was probably meant; empty if none is similar. Known are the known values, if these are few.
	Similar string   `json:"similar,omitempty"`
	Known   []string `json:"known,omitempty"`
}

// Side states who requires labels.
type Side string

// The sides.
const (
	ByPod    Side = "Pod"
	ByVolume Side = "Volume"
	ByPool   Side = "NodePool"
)

// LabelCause states why no node has labels.
type LabelCause string

// The causes.
const (
	// NewNodeName: only one node has the name, and a new node has another.
	NewNodeName LabelCause = "NewNodeName"
	// Contradictory: no value satisfies all that is required of the label.
	Contradictory LabelCause = "Contradictory"
	// UnknownBeforeJoin and OnlySomeNodes: nodes get the label or its value as they join.
	UnknownBeforeJoin LabelCause = "UnknownBeforeJoin"
	OnlySomeNodes     LabelCause = "OnlySomeNodes"
	// Undefined: neither the pool nor its instance types have the label.
	Undefined LabelCause = "Undefined"
	// UnknownValue: no instance type has the value. If the pool requires it, the pool launches nothing.
	UnknownValue LabelCause = "UnknownValue"
	// ImpossibleValue: the label never has the value.
	ImpossibleValue LabelCause = "ImpossibleValue"
	// OtherPool: the pod requires another pool.
	OtherPool LabelCause = "OtherNodePool"
	// PoolExcludes: the pool allows other values of the label.
	PoolExcludes LabelCause = "NodePoolExcludes"
	// NoTypeHas: no instance type of the pool has the labels together. By is ByPool with
	// Allowed if the pool's requirement could be dropped instead, and without if the pool launches nothing.
	NoTypeHas LabelCause = "NoInstanceTypeHas"
	// EmptyTerms: required node affinity has only empty terms.
	EmptyTerms LabelCause = "EmptyTerms"
)

// Contradiction is two requirements that exclude each other. With one of the pod and one of its volumes, these do; with two of the pod,
// the pod contradicts itself; without any of the pod, its volumes do over Key.
type Contradiction struct {
	Key     string  `json:"key"`
	Pod     []Label `json:"pod,omitempty"`
	Volumes []Label `json:"volumes,omitempty"`
}

// Label is a requirement on the value of a label.
type Label struct {
	Key string `json:"key"`
	// Operator is In, NotIn, Exists or DoesNotExist.
	Operator corev1.NodeSelectorOperator `json:"operator"`
	Values   []string                    `json:"values,omitempty"`
	// AtLeast and AtMost bound values that are integers; nil without a bound.
	AtLeast *int64 `json:"atLeast,omitempty"`
	AtMost  *int64 `json:"atMost,omitempty"`
	// MinValues counts how many values of the label the instance types of a launch must have; 0 for any.
	MinValues int `json:"minValues,omitempty"`
}

// LabelOf is a requirement as data.
func LabelOf(r requirement.Requirement) Label {
	lowest, highest := r.Bounds()
	return Label{Key: r.Key(), Operator: r.Operator(), Values: r.Values(), AtLeast: lowest, AtMost: highest, MinValues: r.MinValues()}
}

// LabelsOf are requirements as data.
func LabelsOf(list []requirement.Requirement) []Label {
	out := make([]Label, len(list))
	for i, r := range list {
		out[i] = LabelOf(r)
	}
	return out
}

// Requirement returns what LabelOf was called with. A contradiction becomes DoesNotExist.
func (l Label) Requirement() requirement.Requirement {
	var out requirement.Requirement
	switch l.Operator {
	case corev1.NodeSelectorOpIn:
		return requirement.In(l.Key, l.Values...).WithMinValues(l.MinValues)
	case corev1.NodeSelectorOpDoesNotExist:
		return requirement.DoesNotExist(l.Key).WithMinValues(l.MinValues)
	case corev1.NodeSelectorOpNotIn:
		out = requirement.NotIn(l.Key, l.Values...)
	default:
		out = requirement.Exists(l.Key)
	}
	if l.AtLeast != nil {
		out = out.Intersect(requirement.AtLeast(l.Key, *l.AtLeast))
	}
	if l.AtMost != nil {
		out = out.Intersect(requirement.AtMost(l.Key, *l.AtMost))
	}
	return out.WithMinValues(l.MinValues)
}
