package topology

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// The anti-affinity of another pod may keep a DaemonSet's pod off a new node, and so may the host port of another DaemonSet. Such a pod
// takes room, for it comes as soon as nothing keeps it off; but no other pod can count on it. Where a running pod surely keeps it off,
// spreads do not count it either. Of DaemonSets that all want one host port, one comes: pods can count on it if they can on each of them
// (ComingDaemon.Among).

// MayBeKeptOff reports whether the DaemonSet's pod may not come to the planned node, although it belongs there, and no rival comes instead.
func (r *Registry) MayBeKeptOff(number int, at *NewNode) bool {
	d := &r.daemons[number]
	return d.contested || slices.ContainsFunc(d.keepers, func(g *Group) bool {
		for domain, n := range g.counts {
			if n > 0 && r.mayComeUpIn(g, at, domain) {
				return true
			}
		}
		return false
	})
}

// SeeKeepers notes whether other pods may keep the DaemonSet's off the planned node, and forgets rivals that running pods keep off.
func (r *Registry) SeeKeepers(c *ComingDaemon, at *NewNode) {
	if !r.keepsOff {
		return
	}
	c.Surely, c.KeptOff = c.Surely && !r.MayBeKeptOff(c.Number, at), r.isKeptOff(c.Number, at)
	c.Rivals = r.without(c.Rivals, func(rival int) bool { return r.isKeptOff(rival, at) })
}

// isKeptOff reports whether running pods keep the DaemonSet's pod off the planned node, whatever that becomes.
func (r *Registry) isKeptOff(number int, at *NewNode) bool {
	return slices.ContainsFunc(r.daemons[number].keepers, func(g *Group) bool {
		own := at.Labels.Get(g.key)
		if own.Operator() == corev1.NodeSelectorOpIn && !slices.ContainsFunc(own.Values(), g.lacksKeeper) {
			return true
		}
		if _, single := own.Single(); single || at.Outcomes == nil {
			return false
		}
		kept := slices.DeleteFunc(slices.Collect(maps.Keys(g.counts)), g.lacksKeeper)
		return len(kept) > 0 && at.Outcomes.AllSatisfy(requirement.Pod{Selector: requirement.NewSet(requirement.In(g.key, kept...))})
	})
}

// lacksKeeper reports whether no running pod on a node that stays declares the group in the domain. DaemonSets' pods that are yet to come
// do not count.
func (g *Group) lacksKeeper(domain string) bool { return g.CountBefore(domain) <= g.unsure[domain] }

// KeepsDaemonsOff reports whether something may keep pods of DaemonSets off new nodes.
func (r *Registry) KeepsDaemonsOff() bool { return r.keepsOff }

// Displaced reports whether the DaemonSet's pod never comes to the planned node: running pods keep it off, and then one of the rivals,
// which run there whatever the node becomes, has its host port.
func (r *Registry) Displaced(number int, rivals resources.Bitset, at *NewNode) bool {
	return r.isKeptOff(number, at) && r.someComes(rivals, at)
}

// someComes reports whether nothing keeps some of the DaemonSets' pods off the planned node.
func (r *Registry) someComes(of resources.Bitset, at *NewNode) bool {
	return slices.ContainsFunc(of.Members(), func(number int) bool { return !r.MayBeKeptOff(number, at) })
}

// Inside is what the planned node must require so that a running pod keeps the DaemonSet's pod off it; false if none does.
func (r *Registry) Inside(number int, at *NewNode) (requirement.Set, bool) {
	for _, g := range r.daemons[number].keepers {
		var domains []string
		for _, domain := range r.DomainsOf(g, at.Labels) {
			if !g.lacksKeeper(domain) {
				domains = append(domains, domain)
			}
		}
		if len(domains) > 0 {
			return requirement.NewSet(requirement.In(g.key, domains...)), true
		}
	}
	return requirement.NewSet(), false
}

// Outside is what the planned node must require so that nothing but a rival keeps the DaemonSet's pod off it; false if that is not in its
// labels.
func (r *Registry) Outside(number int, at *NewNode) (requirement.Set, bool) {
	d, out := &r.daemons[number], []requirement.Requirement(nil)
	for _, g := range d.keepers {
		var domains []string
		for domain, n := range g.counts {
			if n > 0 && r.mayComeUpIn(g, at, domain) {
				domains = append(domains, domain)
			}
		}
		if len(domains) > 0 {
			out = append(out, requirement.NotIn(g.key, domains...))
		}
	}
	return requirement.NewSet(out...), !d.contested
}

// mayComeUpIn reports whether the planned node may come up in a domain of a group that counts pods on all nodes.
func (r *Registry) mayComeUpIn(g *Group, at *NewNode, domain string) bool {
	return slices.Contains(r.DomainsOf(g, at.Labels), domain) && (at.Outcomes == nil ||
		at.Outcomes.MaySatisfy(requirement.Pod{Selector: requirement.NewSet(requirement.In(g.key, domain))}))
}

// Certain are those of the DaemonSets, by number, with pods that nothing keeps off the planned node.
func (r *Registry) Certain(of resources.Bitset, at *NewNode) resources.Bitset {
	return r.without(of, func(number int) bool { return r.MayBeKeptOff(number, at) })
}

// certainIn is Certain for all nodes of the pool with the value of the key, or with any if it is empty, as long as no pod of the plan
// counts.
func (r *Registry) certainIn(of resources.Bitset, p Pool, key, value string) resources.Bitset {
	return r.without(of, func(number int) bool {
		return r.daemons[number].contested || slices.ContainsFunc(r.daemons[number].keepers, func(g *Group) bool {
			for domain := range g.counts {
				switch {
				case g.CountBefore(domain) == 0 || g.key == key && value != "" && domain != value:
				case g.key == key || slices.Contains(p.Labels.Values(g.key), domain):
					return true
				}
			}
			return false
		})
	})
}

// without are those of the DaemonSets that are not kept off.
func (r *Registry) without(of resources.Bitset, keptOff func(number int) bool) resources.Bitset {
	if !r.keepsOff || !slices.ContainsFunc(of.Members(), keptOff) {
		return of
	}
	var out resources.Bitset
	for _, number := range of.Members() {
		if !keptOff(number) {
			out.Add(number)
		}
	}
	return out
}

// findKeepers finds what may keep pods of DaemonSets off new nodes, and counts those to come to nodes in flight again with that.
func (r *Registry) findKeepers() {
	for i := range r.daemons {
		d := &r.daemons[i]
		_, blocking := r.Find(d.pod)
		d.keepers = slices.DeleteFunc(blocking, func(g *Group) bool { return g.OverHosts() })
		r.keepsOff = r.keepsOff || d.contested || len(d.keepers) > 0
	}
	if !r.keepsOff {
		return
	}
	for _, n := range r.nodes {
		for k, c := range n.Coming {
			r.addComingOf(n, c, -1)
			r.SeeKeepers(&n.Coming[k], &NewNode{Labels: n.Labels})
			r.addComingOf(n, n.Coming[k], 1)
		}
	}
}

// addComingOf is AddComing for one DaemonSet.
func (r *Registry) addComingOf(n *Node, c ComingDaemon, by int) {
	for _, list := range r.daemons[c.Number].groups() {
		for _, g := range list {
			if r.Counts(g, n) {
				r.addComing(g, n, c, by)
			}
		}
	}
}
