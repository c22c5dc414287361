package schedule

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/preference"
)

// preferenceRecord is what a run finds out about the preferences of a constraint class.
type preferenceRecord struct {
	list preference.List
	// uses are by preference.
	uses []preferenceUse
	// pays is what one pod would pay for each relaxation level above what it does pay, by class, in $/h; infinity if the
	// level cannot be met.
	pays map[*class][]float64
}

// preferenceUse is what is known of one preference.
type preferenceUse struct {
	keptCost, droppedCost float64 // of all pods, in $/h
	priced, unmet         int     // pods that drop it at a known cost, and pods for which nothing meets it
}

// record is what the run knows of the preferences of the class.
func (w *weighing) record(c *class) *preferenceRecord {
	k := c.undivided().Constraints
	r := w.records[k]
	if r == nil {
		r = &preferenceRecord{list: k.PreferenceList(), pays: map[*class][]float64{}}
		r.uses = make([]preferenceUse, len(r.list.Texts))
		w.records[k] = r
	}
	return r
}

// recordPlaced records that the pod is placed at a level, at a rate of its own price. The levels before cost the excess
// more, in $/h.
func (r *run) recordPlaced(q *queuedPod, level int, rate float64, excess []float64) {
	c := q.class
	r.placed(q, level)
	if c.ManyTerms() {
		return
	}
	record := r.weighing.record(c)
	cost := 0.0
	if rate > 0 && c.Levels()[level].Preferences() > 0 {
		cost = rate * r.ownPrice(c)
	}
	kept := record.kept(c.Levels()[level].Preferences())
	for _, i := range kept {
		record.uses[i].keptCost += cost / float64(len(kept))
	}
	for i := range record.uses {
		if record.list.Fate(i, c.Levels()[level].Preferences()) != preference.Dropped {
			continue
		}
		at := -1 // the last level that keeps it
		for j := range min(level, len(excess)) {
			if record.list.Fate(i, c.Levels()[j].Preferences()) == preference.Kept {
				at = j
			}
		}
		switch u := &record.uses[i]; {
		case at < 0:
		case math.IsInf(excess[at], 1):
			u.unmet++
		default:
			u.priced++
			u.droppedCost += max(0, excess[at]-cost)
		}
	}
}

// kept are the preferences that a level keeps.
func (r *preferenceRecord) kept(n int) (out []int) {
	for i := range r.uses {
		if r.list.Fate(i, n) == preference.Kept {
			out = append(out, i)
		}
	}
	return out
}

// knownExcess is what the levels before the given one would cost a pod that has found room that is paid for. It is found
// out once per class and run: later pods would pay about the same.
func (r *run) knownExcess(q *queuedPod, level int) []float64 {
	c := q.class
	if level == 0 || c.ManyTerms() {
		return nil
	}
	record := r.weighing.record(c)
	pays, known := record.pays[c]
	if !known {
		for i := range c.Bare() {
			cost := math.Inf(1)
			if o := r.cheapestOffer(q, i, fillWithAll); o != nil {
				cost = r.pays(c, o)
			}
			pays = append(pays, cost)
		}
		record.pays[c] = pays
	}
	return pays
}

// preferenceCosts lists the preferences of the pods of this run, in the order of the queue.
func (r *run) preferenceCosts() []PreferenceCost {
	p := r.pricing
	if p == nil || r.budget.FirstFitOnly {
		return nil
	}
	var out []PreferenceCost
	var uses []preferenceUse                 // of out
	first := map[*podclass.Constraints]int{} // where its preferences are in out
	for _, c := range r.classes {
		k := c.undivided().Constraints
		if k.ManyTerms() || !k.Prefers() {
			continue
		}
		record := r.weighing.record(c)
		at, known := first[k]
		if !known {
			at = len(out)
			first[k], uses = at, append(uses, record.uses...)
			for _, text := range record.list.Texts {
				out = append(out, PreferenceCost{Pod: k.Pod(), Text: text})
			}
		}
		for i := range record.list.Texts {
			for level := range c.attempts {
				switch n := c.Levels()[level].Preferences(); record.list.Fate(i, n) {
				case preference.Kept:
					out[at+i].Kept += c.attempts[level].placed
					out[at+i].OwnPrice += r.ownPrice(c) * float64(c.attempts[level].placed) / float64(len(record.kept(n)))
				case preference.Dropped:
					out[at+i].Dropped += c.attempts[level].placed
				}
			}
		}
	}
	for i := range out {
		addUse(&out[i], uses[i], r.mode)
	}
	return out
}

// addUse completes the counts with what a run knows.
func addUse(c *PreferenceCost, u preferenceUse, mode preferenceMode) {
	switch mode {
	case preferencesRespected: // only what nothing meets is dropped
		c.Dropped, c.Unmet, c.Respected = 0, c.Dropped, true
		return
	case preferencesIgnored:
		c.DroppedCost = math.NaN()
		return
	}
	c.KeptCost = u.keptCost
	c.Unmet = min(u.unmet, c.Dropped)
	if c.Dropped -= c.Unmet; c.Dropped == 0 {
		return
	}
	c.DroppedCost = math.NaN()
	if u.priced > 0 {
		c.DroppedCost = u.droppedCost / float64(u.priced) * float64(c.Dropped)
	}
}

// ignoredAfter are the preferences of a plan that ignores them, with what a plan that weighs them has found out about
// keeping them.
func ignoredAfter(ignored, weighed []PreferenceCost) []PreferenceCost {
	type key struct {
		pod  *corev1.Pod
		text string
	}
	known := make(map[key]*PreferenceCost, len(weighed))
	for i := range weighed {
		known[key{weighed[i].Pod, weighed[i].Text}] = &weighed[i]
	}
	for i := range ignored {
		c := &ignored[i]
		w := known[key{c.Pod, c.Text}]
		if w == nil {
			continue
		}
		c.Unmet = min(c.Dropped, w.Unmet)
		if c.Dropped -= c.Unmet; c.Dropped == 0 {
			c.DroppedCost = 0
		} else if w.Kept+w.Dropped > 0 {
			c.DroppedCost = (w.KeptCost + w.DroppedCost) / float64(w.Kept+w.Dropped) * float64(c.Dropped)
		}
	}
	return ignored
}
