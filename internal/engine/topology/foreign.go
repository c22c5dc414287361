package topology

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Nodes for other pods make domains, too: kube-scheduler counts every node that the policies of a constraint admit, also where none
// can be launched for the pods themselves, since they request more, state, or do not tolerate a taint. A plan hopes at first that
// no such node comes up. If one may, it is kept out of there, or the domain is counted: then the pods wait for each other.

func (g *Group) isForeign(domain string) bool { return slices.Contains(g.foreign, domain) }

// HasForeign reports whether nodes for other pods may come up in domains of a spread in which none can be launched for its own.
func (g *Group) HasForeign() bool {
	return len(g.foreign) > 0 || g.arrivals != nil && g.arrivals.leavesOut
}

// Intruder is a planned node that may come up in a domain in which none can be launched for a spread's pods.
type Intruder struct {
	// Index is the place of the node among the planned ones, Key and Domain are where it may come up.
	Index       int
	Key, Domain string
	// Nodes are the nodes that would count there.
	Nodes requirement.Pod
}

// Intruders are the planned nodes with which pods of the spread in other domains are too many.
//
// Cost: planned nodes, for each such domain, if there is any.
func (r *Registry) Intruders(g *Group, planned []NewNode) (out []Intruder) {
	most := 0
	for _, n := range g.counts {
		most = max(most, n)
	}
	if most <= g.maxSkew {
		return nil
	}
	for _, d := range g.foreign {
		if most <= g.maxSkew+g.least(d) || slices.Contains(g.usable, d) {
			continue
		}
		for i := range planned {
			if r.mayBeIn(g, &planned[i], d) {
				out = append(out, Intruder{i, g.key, d, g.nodesIn(d)})
			}
		}
	}
	if g.arrivals == nil || !g.arrivals.leavesOut {
		return out
	}
	for _, d := range g.usable {
		if most <= g.maxSkew+g.SureCount(d) || g.arrivals.stands(g, d) {
			continue
		}
		for i := range planned {
			if g.isKeptOut(planned[i].Pool) && r.mayBeIn(g, &planned[i], d) {
				out = append(out, Intruder{i, g.key, d, g.nodesIn(d)})
			}
		}
	}
	return out
}

// isKeptOut reports whether the taints of the pool keep the spread's own pods out. Its nodes may bring fewer pods of DaemonSets to a domain
// than theirs.
func (g *Group) isKeptOut(p Pool) bool {
	_, blocked := snapshot.UntoleratedHard(g.filter.tolerations, p.Taints)
	return blocked
}

// CountForeign makes the domains of nodes for other pods usable: pods are to be spread over them, too, until Release lets them
// go. Undo takes it back.
func (r *Registry) CountForeign(g *Group) {
	r.touch(g)
	if g.unreleased == nil {
		g.unreleased = &domainsBefore{g.usable, g.requested}
	}
	g.usable = union(g.usable, g.foreign)
	if g.arrivals != nil {
		g.arrivals.ofAllPools, g.arrivals.fewest = true, map[string]int{}
	}
}

// nodesIn selects the nodes of a domain that count for the spread, but for their taints. A new host is in the domain "".
func (g *Group) nodesIn(domain string) requirement.Pod {
	out := requirement.Pod{}
	if domain != "" {
		out.Selector = requirement.NewSet(requirement.In(g.key, domain))
	}
	if g.filter.affinity {
		out.Selector, out.Required = g.filter.node.Selector.Intersect(out.Selector), g.filter.node.Required
	}
	return out
}
