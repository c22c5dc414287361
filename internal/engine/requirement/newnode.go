package requirement

import (
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// FieldName is the key of a requirement on the name of a Node, metadata.name. Only fields are matched by it: no label has a
// key like this.
const FieldName = "field:metadata.name"

// No label has values like these. They stand for values that are not known.
const (
	ownName   = "(a name of its own)"
	someValue = "(not known before the node joins)"
)

// NewNode describes what is known of the labels that each new node gets, whatever its pool and its type. The labels of the pool,
// the type and the offering come in addition.
type NewNode struct {
	// Labels are the labels that each new node has once it is initialized. The name is one that no node has, so only Exists and
	// NotIn hold for it. A value that is not known satisfies Exists and NotIn.
	Labels Set
	// open are the keys of labels that a node may get with any value: those of Labels without a known value are sure to be
	// there, the others are not.
	open []string
}

// OfNewNode returns what is known of new nodes. Values are those of labels that Vocabulary.SetOnJoin names, where they are known
// from other nodes.
func (l Labels) OfNewNode(values map[string]string) NewNode {
	reqs := []Requirement{
		In(karpv1.LabelRegistered, "true"), In(karpv1.LabelInitialized, "true"), In(corev1.LabelHostname, ownName),
	}
	n := NewNode{open: l.MaySetOnJoin}
	for _, key := range l.SetOnJoin {
		if v, known := values[key]; known {
			reqs = append(reqs, In(key, v))
			continue
		}
		reqs = append(reqs, In(key, someValue))
		n.open = append(n.open[:len(n.open):len(n.open)], key)
	}
	n.Labels = NewSet(reqs...)
	return n
}

// Join adds the labels to a set that describes nodes, as far as it does not define them.
func (n *NewNode) Join(set Set) Set {
	missing := make([]Requirement, 0, len(n.Labels.list))
	for _, r := range n.Labels.list {
		if !set.Defines(r.key) {
			missing = append(missing, r)
		}
	}
	return set.With(missing...)
}

// Stated is the part of a set that a NodeClaim states: without what Join has added.
func (n *NewNode) Stated(set Set) Set {
	drop := make([]string, 0, len(n.Labels.list))
	for _, r := range n.Labels.list {
		if set.Get(r.key).Equal(r) {
			drop = append(drop, r.key)
		}
	}
	return set.Without(drop...)
}

// Possible returns what is left of a set of requirements where it is enough that a node may satisfy them once it has joined:
// without those on labels that it may get with any value. Known are its labels as far as they are known.
func (n *NewNode) Possible(set, known Set) Set {
	var drop []string
	for _, key := range n.open {
		sure := n.Labels.Defines(key)
		switch {
		case !set.Defines(key), sure && onlyAbsent(set.Get(key)):
		case !known.Defines(key), sure && known.Get(key).Equal(n.Labels.Get(key)):
			drop = append(drop, key)
		}
	}
	if len(drop) == 0 {
		return set
	}
	return set.Without(drop...)
}

// Unknown reports whether each new node has the label, with a value that is not known.
func (n *NewNode) Unknown(key string) bool { return n.Labels.Get(key).Unknown() }

// Unknown reports whether the value of the label is one that is not known: see OfNewNode.
func (r Requirement) Unknown() bool {
	v, _ := r.Single()
	return v == someValue || v == ownName
}

func onlyAbsent(r Requirement) bool { return !r.complement && len(r.values) == 0 }
