package nodepool

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// Daemons are known to others by number: their index in Config.

// MarkDaemons marks the daemon groups with one of the daemons, besides those that are marked. Nil marks none.
func (t *Template) MarkDaemons(marked []bool, daemons ...resources.Bitset) []bool {
	for i := range t.daemonGroups {
		if !slices.ContainsFunc(daemons, t.daemonGroups[i].members.Overlaps) {
			continue
		}
		if marked == nil {
			marked = make([]bool, len(t.daemonGroups))
		}
		marked[i] = true
	}
	return marked
}

// DaemonTerms returns what the daemon requires of nodes of the template, one of which must hold; none if it runs on no
// such node.
func (t *Template) DaemonTerms(number int) []requirement.Set {
	for i := range t.daemons {
		if t.daemons[i].number == number {
			return t.daemons[i].alternatives
		}
	}
	return nil
}

// RivalsOf returns the daemons that want the same host ports as this one: on a node, one of them runs.
func (t *Template) RivalsOf(number int) resources.Bitset {
	return t.models.config.Daemons[number].Rivals
}

// DaemonsOn returns those of the daemons that run on some types of the template.
func (t *Template) DaemonsOn(of resources.Bitset) (out []int) {
	for i := range t.daemons {
		number := t.daemons[i].number
		if of.Has(number) && slices.ContainsFunc(t.daemonGroups, func(g daemonGroup) bool { return g.members.Has(number) }) {
			out = append(out, number)
		}
	}
	return out
}

// MayGet reports whether the daemon may run on a node of the candidates outside the marked groups; surely whether it
// does on each.
func (c *Candidates) MayGet(number int, marked []bool) (may, surely bool) {
	surely = true
	for _, cand := range c.list {
		ti := &c.t.types[cand.Type]
		if ti.BlockedBy(marked) {
			continue
		}
		has := c.t.daemonGroups[ti.daemonGroup].members.Has(number)
		may, surely = may || has, surely && has
	}
	may = may && c.mayAdmitDaemon(number)
	return may, may && surely && c.satisfyDaemon(number)
}

// Coming are those of the daemons that may run on a node of the candidates outside the marked groups.
func (c *Candidates) Coming(of resources.Bitset, marked []bool) (out []topology.ComingDaemon) {
	for _, number := range c.t.DaemonsOn(of) {
		if may, surely := c.MayGet(number, marked); may {
			rivals, sureRivals := c.Rivals(number, marked)
			out = append(out, topology.ComingDaemon{Number: number, Surely: surely, Rivals: rivals, SureRivals: sureRivals})
		}
	}
	return out
}

// Rivals are the daemons that may run on a node of the candidates outside the marked groups instead of this one, and those of them that do
// on each.
func (c *Candidates) Rivals(number int, marked []bool) (may, surely resources.Bitset) {
	for _, rival := range c.t.RivalsOf(number).Members() {
		some, all := c.MayGet(rival, marked)
		if some {
			may.Add(rival)
		}
		if all {
			surely.Add(rival)
		}
	}
	return may, surely
}

// Arriving returns how many of the daemons surely run on each node of the template that the pod selects; certain are those that nothing but
// another DaemonSet keeps off. Some is false if there can be no such node.
func (t *Template) Arriving(of, certain resources.Bitset, pod requirement.Pod) (n int, some bool) {
	terms := pod.Required
	if len(terms) == 0 {
		terms = []requirement.Set{{}}
	}
	sure := func(d *topology.ComingDaemon) { d.Surely = d.Surely && certain.Has(d.Number) }
	for _, term := range terms {
		cands := t.Candidates(t.reqs).NarrowBy(pod.Selector.Intersect(term).Without(corev1.LabelHostname))
		if cands == nil || len(cands.list) == 0 {
			continue
		}
		if _, here := cands.MayHave(of, nil, sure); !some || here < n {
			n, some = here, true
		}
	}
	return n, some
}

// MayHave returns how many of the daemons may run on a node of the candidates outside the marked groups, and how many of them do on each.
// See notes what keeps the pod of one off.
func (c *Candidates) MayHave(of resources.Bitset, marked []bool, see func(*topology.ComingDaemon)) (may, surely int) {
	for _, coming := range c.Coming(of, marked) {
		see(&coming)
		switch counts, sure := coming.Among(of); {
		case !counts || coming.KeptOff:
		case sure:
			may, surely = may+1, surely+1
		default:
			may++
		}
	}
	return may, surely
}

// mayAdmitDaemon reports whether the requirements of the candidates leave a node that the daemon selects.
func (c *Candidates) mayAdmitDaemon(number int) bool {
	return slices.ContainsFunc(c.t.DaemonTerms(number), c.reqs.Overlaps)
}

// satisfyDaemon reports whether nodes of the candidates have the labels that the daemon requires, whatever they are
// launched as.
func (c *Candidates) satisfyDaemon(number int) bool {
	terms := c.t.DaemonTerms(number)
	return slices.ContainsFunc(terms, func(term requirement.Set) bool { return term.Len() == 0 }) ||
		c.AllSatisfy(requirement.Pod{Required: terms})
}
