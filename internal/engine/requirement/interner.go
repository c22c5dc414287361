package requirement

import corev1 "k8s.io/api/core/v1"

// Interned is a set with a small number: equal sets of one Interner have equal IDs. The zero value is for no set at all;
// its Set is empty.
type Interned struct {
	ID  int
	Set Set
}

// Interner numbers sets, from 0 on, so that results for a set can be kept in a slice. The zero value is ready to use.
type Interner struct {
	ids map[string]int
	// absent are the labels that some set requires nodes to lack.
	absent map[string]bool
	key    []byte // buffer
}

// Intern returns the interned form of a set. Cost: linear in the set.
func (n *Interner) Intern(set Set) Interned {
	n.key = set.AppendKey(n.key[:0])
	id, known := n.ids[string(n.key)]
	if !known {
		if n.ids == nil {
			n.ids = map[string]int{}
		}
		id = len(n.ids)
		n.ids[string(n.key)] = id
		n.NoteAbsent(set)
	}
	return Interned{id, set}
}

// NoteAbsent records the labels that a set requires nodes to lack, as Intern does.
func (n *Interner) NoteAbsent(set Set) {
	for _, r := range set.All() {
		if r.Operator() == corev1.NodeSelectorOpDoesNotExist {
			if n.absent == nil {
				n.absent = map[string]bool{}
			}
			n.absent[r.Key()] = true
		}
	}
}

// RequiresAbsent reports whether some set so far requires nodes to lack the label.
func (n *Interner) RequiresAbsent(key string) bool { return n.absent[key] }
