package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// answer is a question that is answered at most once.
type answer int

const (
	unasked answer = iota
	yes
	no
)

// firstOpenLevel is the first relaxation level that a new node could satisfy, as far as is known; -1 if there is none.
func (sv *solver) firstOpenLevel(c *class) int {
	last := len(c.attempts) - 1
	for i := sv.leastLevel(c); i <= last; i++ {
		if !c.attempts[i].noNewBin && (i == last || sv.launchableAt(c.constraintClass, c.levels[i])) {
			return i
		}
	}
	return -1
}

// launchableAt reports whether some template has the labels that the level requires, together with those of a volume.
// A preferred zone in which nothing is offered must not keep pods out of the choice of new nodes until their turn comes.
//
// Cost: one lookup per template and volume, once per level.
func (sv *solver) launchableAt(k *constraintClass, level *relaxationLevel) bool {
	if level.launchable == unasked {
		level.launchable = no
		if slices.ContainsFunc(sv.pools.All(), func(t *nodepool.Template) bool { return offers(t, k, level) }) {
			level.launchable = yes
		}
	}
	return level.launchable == yes
}

// offers reports whether the template has a candidate for the level with some volume alternative.
func offers(t *nodepool.Template, k *constraintClass, level *relaxationLevel) bool {
	if t.Unusable().Code != "" || level.blocked.Has(t.Index()) {
		return false
	}
	cands := t.Candidates(t.Requirements()).Narrow(level.internedFull)
	return cands != nil && slices.ContainsFunc(k.volumes, func(alt requirement.Interned) bool {
		with := cands.Narrow(alt)
		return with != nil && len(with.List()) > 0
	})
}
