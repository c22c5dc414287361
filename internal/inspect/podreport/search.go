package podreport

import (
	"slices"
	"strings"
)

// Bounds of the search for changes. Every try is a plan: at 2,000 pending pods one takes some tens of milliseconds.
const (
	// maxPlans bounds all plans of a search; podsPlanned does in large clusters, where the pods of all plans together must not
	// exceed it: 100,000 pods leave 20 plans.
	maxPlans, podsPlanned, minPlans = 150, 2_000_000, 20
	// maxPaired limits how many candidates, smallest first, are combined in pairs: 12 make 66 pairs.
	maxPaired = 12
	// maxAlternatives limits how many changes are reported besides the smallest.
	maxAlternatives = 2
)

// search finds the smallest change that works, and alternatives.
func (g *generator) search() {
	candidates := g.generate()
	bound := min(maxPlans, max(minPlans, podsPlanned/max(1, len(g.view.Pods))))
	effort := &Effort{Candidates: len(candidates), Complete: true}
	g.Search = effort
	before := g.lab.plans
	spent := func() bool {
		effort.Complete = effort.Complete && g.lab.plans-before < bound
		return !effort.Complete
	}
	defer func() { effort.Plans = g.lab.plans }()
	for i := range candidates {
		if g.full() || spent() {
			return
		}
		g.tryOut(&candidates[i])
	}
	if g.Change != nil {
		return
	}
	for _, c := range pairs(candidates[:min(len(candidates), maxPaired)]) {
		if g.full() || spent() {
			return
		}
		g.tryOut(&c)
	}
}

// full reports whether the report has all changes that it shows.
func (g *generator) full() bool { return g.Change != nil && len(g.Alternatives) == maxAlternatives }

// tryOut plans a candidate, and reports it if the pod gets a node.
func (g *generator) tryOut(c *candidate) {
	if g.similar(c) {
		return
	}
	result, ok := g.lab.try(c.edits)
	if !ok || result.place == nil {
		return
	}
	change := Change{Summary: c.summary, Edits: []Edit{}, Node: result.place}
	for i := range c.edits {
		change.Edits = append(change.Edits, c.edits[i].Edit)
	}
	if g.Change == nil {
		g.Change = &change
		return
	}
	g.Alternatives = append(g.Alternatives, change)
}

// similar reports whether a change of the same fields is reported: a lower request than needed, or another zone, is no alternative.
func (g *generator) similar(c *candidate) bool {
	id := c.touches()
	reported := func(r *Change) bool {
		var edits []edit
		for _, e := range r.Edits {
			edits = append(edits, edit{Edit: e})
		}
		return (&candidate{edits: edits}).touches() == id
	}
	return g.Change != nil && (reported(g.Change) || slices.ContainsFunc(g.Alternatives, func(r Change) bool { return reported(&r) }))
}

// touches are the objects and fields that a candidate changes.
func (c *candidate) touches() string {
	out := ""
	for i := range c.edits {
		out += c.edits[i].String() + "\n"
		for _, op := range c.edits[i].Patch {
			out += strings.TrimSuffix(op.Path, "/-") + "\n"
		}
	}
	return out
}

// pairs are all combinations of two candidates, smallest first. Two edits of one object would be one larger edit, with indices
// of lists that the first has moved: they are tried where they are of different fields.
func pairs(candidates []candidate) []candidate {
	var out []candidate
	for i := range candidates {
		for k := i + 1; k < len(candidates); k++ {
			a, b := &candidates[i], &candidates[k]
			if overlap(a, b) {
				continue
			}
			out = append(out, candidate{
				summary: a.summary + " And: " + lowerFirst(b.summary), edits: slices.Concat(a.edits, b.edits), reach: max(a.reach, b.reach),
			})
		}
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return smaller(&a, &b) })
	return out
}

// overlap reports whether two candidates change the same list of an object, or fields in each other.
func overlap(a, b *candidate) bool {
	for i := range a.edits {
		for k := range b.edits {
			if a.edits[i].Object != b.edits[k].Object {
				continue
			}
			for _, x := range a.edits[i].Patch {
				for _, y := range b.edits[k].Patch {
					if under(x.Path, y.Path) || under(y.Path, x.Path) || parent(x.Path) == parent(y.Path) && x.Op == "remove" {
						return true
					}
				}
			}
		}
	}
	return false
}

func under(path, of string) bool { return path == of || strings.HasPrefix(path, of+"/") }

func parent(path string) string { return path[:strings.LastIndex(path, "/")] }

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
