package schedule

import "github.com/dovetail-k8s/dovetail/internal/engine/topology"

// stepsPerCheck is how many steps the check of an instance type or offering counts: its labels are compared.
const stepsPerCheck = 8

// commit narrows new nodes to the domains where they can really come up, after no more pods fit: see bin.Set. The queue is
// the waiting pods. It returns whether anything changed. What it costs for pods with many terms is a part of their share.
func (r *run) commit(queue []*queuedPod) bool {
	relevant, seen := map[*topology.Group]bool{}, map[*class]bool{}
	for _, q := range queue {
		if seen[q.class] || r.shareSpent(q.class) {
			continue
		}
		seen[q.class] = true
		for _, level := range q.class.Levels() {
			for _, g := range level.Groups() {
				relevant[g] = true
			}
		}
		for _, g := range q.class.BlockedBy() {
			relevant[g] = true
		}
	}
	changed, checked := r.bins.Commit(relevant)
	r.chargeBeside(seen, stepsPerCheck*checked)
	if changed {
		r.generation++
	}
	return changed
}

// decide chooses the domain of a new node that may still come up in several, once nothing else lets a waiting pod be
// placed that must follow pods on it, or keep apart from them. It takes the cheapest domain that the waiting pod can use, or
// that leaves one for it. The queue is the waiting pods. It returns whether it chose one.
//
// Cost: waiting classes times bins, and that of bin.Set.
func (r *run) decide(queue []*queuedPod) bool {
	seen := map[*class]bool{}
	for _, q := range queue {
		if seen[q.class] || r.shareSpent(q.class) {
			continue
		}
		seen[q.class] = true
		views := q.class.Views(q.class.Levels()[len(q.class.Levels())-1])
		r.steps += len(views)
		for _, v := range views {
			decided, checked := false, 0
			switch {
			case v.CountsUndecided():
				decided, checked = r.bins.Decide(v)
			case v.KeepsApart() && !v.OverHosts() && v.Excluded():
				decided, checked = r.bins.Separate(v)
			}
			r.chargeBeside(map[*class]bool{q.class: true}, stepsPerCheck*checked)
			if decided {
				r.generation++
				return true
			}
		}
	}
	return false
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
