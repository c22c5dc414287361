package topology

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// The anti-affinity of another pod may keep a DaemonSet's pod off a new node, and so may the host port of another DaemonSet. Such a pod
// takes room, for it comes as soon as nothing keeps it off; but no other pod can count on it. Of DaemonSets that all want one host port,
// one comes: pods can count on it if they can on each of them (ComingDaemon.Among).

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

// Inside is what the planned node must require so that a running pod keeps the DaemonSet's pod off it; false if none does.
func (r *Registry) Inside(number int, at *NewNode) (requirement.Set, bool) {
	for _, g := range r.daemons[number].keepers {
		var domains []string
		for _, domain := range r.DomainsOf(g, at.Labels) {
			if g.CountBefore(domain) > 0 {
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

// Admitted are those of the DaemonSets, by number, that no running pod keeps off the planned node wherever it comes up. The others take
// room, for they may come later; until then no spread counts them there.
func (r *Registry) Admitted(of resources.Bitset, at *NewNode) resources.Bitset {
	return r.certain(of, func(number int) bool { return r.isKeptOff(number, at) })
}

// isKeptOff reports whether a running pod keeps the DaemonSet's pod off the planned node wherever that comes up.
func (r *Registry) isKeptOff(number int, at *NewNode) bool {
	return slices.ContainsFunc(r.daemons[number].keepers, func(g *Group) bool {
		var taken []string
		for domain := range g.counts {
			if g.CountBefore(domain) > g.unsure[domain] {
				taken = append(taken, domain)
			}
		}
		if len(taken) == 0 {
			return false
		}
		if domain, single := at.Labels.Get(g.key).Single(); single {
			return slices.Contains(taken, domain)
		}
		return at.Outcomes != nil && at.Outcomes.AllSatisfy(requirement.Pod{Selector: requirement.NewSet(requirement.In(g.key, taken...))})
	})
}

// Certain are those of the DaemonSets, by number, with pods that nothing keeps off the planned node.
func (r *Registry) Certain(of resources.Bitset, at *NewNode) resources.Bitset {
	return r.certain(of, func(number int) bool { return r.MayBeKeptOff(number, at) })
}

// certainIn is Certain for all nodes of the pool with the value of the key, or with any if it is empty, as long as no pod of the plan
// counts.
func (r *Registry) certainIn(of resources.Bitset, p Pool, key, value string) resources.Bitset {
	return r.certain(of, func(number int) bool {
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

func (r *Registry) certain(of resources.Bitset, keptOff func(number int) bool) resources.Bitset {
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

// findKeepers finds what may keep pods of DaemonSets off new nodes, and stops counting on those to come to nodes in flight that it may keep
// off.
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
			at := &NewNode{Labels: n.Labels}
			if keptOff := r.isKeptOff(c.Number, at); keptOff || c.Surely && r.MayBeKeptOff(c.Number, at) {
				r.addComingOf(n, c, -1)
				n.Coming[k].Surely, n.Coming[k].KeptOff = false, keptOff
				r.addComingOf(n, n.Coming[k], 1)
			}
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
