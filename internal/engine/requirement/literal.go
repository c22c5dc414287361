package requirement

import (
	"iter"
	"slices"
	"strings"
)

// earlier is part of the names of labels that each node has twice: kubelet and the cloud controller manager set them beside the present
// names.
const earlier = "beta.kubernetes.io/"

// LackedBy lists, by the name of a label, the nodes that do not have the label under this name, sorted; all of them have it under its
// other name. kube-scheduler goes by names alone. It is nil if all nodes have both, as those do that have joined a cluster of EC2.
//
// Cost: two lookups per node and name.
func (l Labels) LackedBy(nodes iter.Seq2[string, map[string]string]) map[string][]string {
	var out map[string][]string
	lacks := func(key, node string) {
		if out == nil {
			out = map[string][]string{}
		}
		out[key] = append(out[key], node)
	}
	var names [][2]string
	for alias, key := range l.Normalized {
		if strings.Contains(alias, earlier) { // drivers set the others, after a node has joined
			names = append(names, [2]string{alias, key})
		}
	}
	for node, labels := range nodes {
		for _, both := range names {
			alias, key := both[0], both[1]
			early, hasEarly := labels[alias]
			now, has := labels[key]
			switch {
			case has && (!hasEarly || early != now):
				lacks(alias, node)
			case hasEarly && !has:
				lacks(key, node)
			}
		}
	}
	for _, nodes := range out {
		slices.Sort(nodes)
	}
	return out
}

// notOn excludes the nodes that have one of the labels only under its other name. It is for what needs the labels to be there.
func (l Labels) notOn(set Set, keys iter.Seq[string]) Set {
	if len(l.Lacking) == 0 {
		return set
	}
	for key := range keys {
		if nodes := l.Lacking[key]; len(nodes) > 0 {
			set = set.With(NotIn(FieldName, nodes...))
		}
	}
	return set
}
