package sizing

import (
	"math"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// maxLookahead limits how many packing classes of the queue are considered for a new node. It bounds the cost of opening a
// bin in queues of jobs with all different sizes. The first thousand in order of size leave enough choice to fill any
// node.
const maxLookahead = 1000

// demand describes what is left of a packing class while a new node is filled.
type demand struct {
	pods  *Pods // the first class of it
	n     int
	cands *nodepool.Candidates // the candidates where its pods fit together with the first pod
	// value of one pod
	value float64
	// taken counts how many are in the room that is being packed.
	taken int
	// quota is an index into hostQuotas that bounds, together with other classes, the pods on one node; -1 if there is
	// none.
	quota int
	// coarse is true once n has decided how many pods one turn takes: see untilBalanced.
	coarse   bool
	requests resources.Vec // of one pod
}

// mayBeIn reports whether the pods can run in the zone, given by its number. A node that could be in several zones is
// filled for the one of its cheapest offering: pods of different zones cannot share it.
func (d *demand) mayBeIn(zone int) bool {
	return d.cands.Zone() == 0 || zone == 0 || d.cands.Zone() == zone
}

// hostQuotas counts how many pods one node can have of each group that spreads or separates pods over hosts.
type hostQuotas struct {
	groups []*topology.Group
	most   []int // for an empty node
	left   []int
	// demands are the indexes of the demands with a quota.
	demands []int32
}

// of is the quota that the class's pods share; -1 if there is none.
func (q *hostQuotas) of(first, c *podclass.Class, level *podclass.Level) int {
	views := c.SortedViews(level).Own()
	for i := range views {
		v := &views[i]
		if !v.OverHosts() || v.Type() != topology.Spread && v.Type() != topology.AntiAffinity {
			continue
		}
		if k := slices.Index(q.groups, v.Group()); k >= 0 {
			return k
		}
		most := 1
		if v.Type() == topology.Spread {
			most = v.Group().MostOnNewHost()
		}
		if slices.Contains(first.Matches(), v.Group()) { // the first pod is on the node already
			most--
		}
		q.groups, q.most = append(q.groups, v.Group()), append(q.most, most)
		return len(q.groups) - 1
	}
	return -1
}

// demandsOf are the demands that the bin can be filled with, as lookAhead lists them.
func (s *Sizer) demandsOf(o *Opening) []demand {
	if s.demandsFor == o.Bin { // bins of other pools may have been sized after this one was
		return s.demands
	}
	return s.lookAhead(o)
}

// lookAhead lists the packing classes of the queue that could join the bin, as far as is known without placing them.
//
// Cost: linear in packing classes, of which it sees maxLookahead with pods left.
func (s *Sizer) lookAhead(o *Opening) []demand {
	s.rankings.removeDemands(s.demands)
	out := s.demands[:0]
	s.quotas.groups, s.quotas.most, s.quotas.demands = s.quotas.groups[:0], s.quotas.most[:0], s.quotas.demands[:0]
	seen, placed := 0, 0
	for _, f := range s.waiting {
		p := f.First()
		if p == nil {
			placed++
			continue
		}
		if seen++; seen > maxLookahead {
			break
		}
		s.rankings.lookedAt = max(s.rankings.lookedAt, f.number+1)
		if d := s.demand(o, p); d.n > 0 {
			if d.quota >= 0 {
				s.quotas.demands = append(s.quotas.demands, int32(len(out)))
			}
			out = append(out, d)
		}
	}
	s.rankings.indexDemands(out)
	s.demands, s.demandsFor, s.touched = out, o.Bin, s.touched[:0]
	// Not each time, since it goes through the whole list, of which the loop above sees only the beginning.
	if placed > maxLookahead {
		s.waiting = slices.DeleteFunc(s.waiting, func(f *PackingClass) bool { return f.left == 0 })
	}
	return out
}

// demand returns what a packing class, of which p is the first class, could add to the bin; without pods if nothing.
func (s *Sizer) demand(o *Opening, p *Pods) (d demand) {
	level := s.c.Level(p)
	if level == nil || level.Blocked().Has(o.Bin.Template().Index()) {
		return d
	}
	cands := o.Growth.Candidates().Narrow(level.InternedFull())
	// Of several alternatives for volumes, the pod takes one when it is placed. Here any may do.
	if cands != nil && len(p.Volumes()) == 1 {
		cands = cands.Narrow(p.Volumes()[0])
	}
	if cands == nil || !affinityAllows(o.First.Class, p.Class, level, cands) {
		return d
	}
	n, started := p.packing.left, p.packing == o.First.packing
	if started {
		n--
	}
	if n = min(n, p.maxPerNode(level, started)); n <= 0 {
		return d
	}
	quota := s.quotas.of(o.First.Class, p.Class, level)
	return demand{pods: p, n: n, cands: cands, value: p.value, quota: quota, requests: p.Requests()}
}

// affinityAllows reports whether pods that must be near others could go to the domain of the candidates, after the
// first pod.
func affinityAllows(first, c *podclass.Class, level *podclass.Level, cands *nodepool.Candidates) bool {
	views := c.SortedViews(level).Domains()
	for i := range views {
		v := &views[i]
		if v.Type() == topology.Affinity && (slices.Contains(first.Matches(), v.Group()) || len(v.Daemons()) > 0) {
			continue
		}
		if domain, ok := cands.Domain(v.Key()); ok && !v.Allows(domain) {
			return false
		}
	}
	return true
}

// maxPerNode bounds how many more pods of the class one new node can hold, by the topology constraints of the class.
func (p *Pods) maxPerNode(level *podclass.Level, started bool) int {
	most := math.MaxInt
	views := p.SortedViews(level).Own()
	for i := range views {
		v := &views[i]
		switch {
		case v.Type() == topology.AntiAffinity:
			most = 1
		case v.Type() == topology.Spread && v.OverHosts():
			most = min(most, v.Group().MostOnNewHost())
		case v.Type() == topology.Spread: // a node is in one domain, and evenly spread pods have their share there
			if n := len(v.Group().Usable()); n > 0 {
				most = min(most, (p.packing.left+n-1)/n)
			}
		}
	}
	if p.Ports().Len() > 0 { // the pods of a class have the same ports
		most = 1
	}
	if started && most != math.MaxInt {
		most--
	}
	return most
}
