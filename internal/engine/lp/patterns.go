package lp

import "slices"

// worthwhileNodes sets how many nodes of a pattern must be left for nodes to be filled along it: one may be a fraction that
// only whole pods of other patterns could complete.
const worthwhileNodes = 1.5

// MatchingPatterns are the patterns with pods like these that the last solution uses for more than one node. Patterns of
// a single bucket are left out: they have no balance to keep. The result is valid until the next call.
func (p *Program) MatchingPatterns(pods int) []int {
	p.matching = p.matching[:0]
	bucket := p.pods[pods].bucket
	if bucket < 0 {
		return p.matching
	}
	for row, j := range p.master.basis {
		if j >= 0 && p.master.level[row] >= worthwhileNodes && len(p.master.patterns[j].entries) > 1 &&
			p.master.patterns[j].has(bucket) {
			p.matching = append(p.matching, row)
		}
	}
	return p.matching
}

// PatternIsOf reports whether a pattern is the content of the offering, at this price.
func (p *Program) PatternIsOf(pattern, offering int, price float64) bool {
	k := p.master.patterns[p.master.basis[pattern]].column
	return k == p.columnOf(offering) && price == p.columns[k].price
}

// LaunchPattern counts one node of the pattern as launched.
func (p *Program) LaunchPattern(pattern int) { p.master.level[pattern]-- }

// has reports whether the pattern has some of the bucket.
func (p *pattern) has(bucket int) bool {
	return slices.ContainsFunc(p.entries, func(e entry) bool { return int(e.row) == bucket })
}

// Content describes what a pattern still has room for while a node is filled along it. It is valid until the next call of
// Program.Content.
type Content struct {
	p    *Program
	left []entry
}

// Content is the pattern's content besides one pod.
func (p *Program) Content(pattern, besides int) Content {
	p.left = append(p.left[:0], p.master.patterns[p.master.basis[pattern]].entries...)
	c := Content{p, p.left}
	c.Take(besides, 1)
	return c
}

// Pods returns how many whole pods the pattern has room for, to the nearest.
func (c *Content) Pods(pods int) int {
	g := &c.p.pods[pods]
	for i := range c.left {
		if e := &c.left[i]; int(e.row) == g.bucket {
			return int(e.amount/g.norm + 0.5)
		}
	}
	return 0
}

// Take takes n pods out of what is left.
func (c *Content) Take(pods, n int) {
	g := &c.p.pods[pods]
	for i := range c.left {
		if e := &c.left[i]; int(e.row) == g.bucket {
			e.amount -= float64(float64(n) * g.norm)
		}
	}
}
