package lp

import "slices"

// worthwhileNodes is how many nodes of a pattern must be left for nodes to be filled along it: one may be a fraction that
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
		if j >= 0 && p.master.level[row] >= worthwhileNodes && len(p.master.patterns[j].rows) > 1 &&
			slices.Contains(p.master.patterns[j].rows, bucket) {
			p.matching = append(p.matching, row)
		}
	}
	return p.matching
}

// PatternIsOf reports whether a pattern is the content of the offering, at this price.
func (p *Program) PatternIsOf(pattern, offering int, price float64) bool {
	k := p.master.patterns[p.master.basis[pattern]].column
	return k == int(p.representative[offering]) && price == p.columns[k].price
}

// LaunchPattern counts one node of the pattern as launched.
func (p *Program) LaunchPattern(pattern int) { p.master.level[pattern]-- }

// Content is what a pattern still has room for while a node is filled along it. It is valid until the next call of
// Program.Content.
type Content struct {
	p    *Program
	rows []int
	left []float64
}

// Content is the pattern's content besides one pod.
func (p *Program) Content(pattern, besides int) Content {
	from := &p.master.patterns[p.master.basis[pattern]]
	p.left = append(p.left[:0], from.amounts...)
	c := Content{p, from.rows, p.left}
	c.Take(besides, 1)
	return c
}

// Pods is how many whole pods the pattern has room for, to the nearest.
func (c *Content) Pods(pods int) int {
	g := &c.p.pods[pods]
	if i := slices.Index(c.rows, g.bucket); i >= 0 {
		return int(c.left[i]/g.norm + 0.5)
	}
	return 0
}

// Take takes n pods out of what is left.
func (c *Content) Take(pods, n int) {
	g := &c.p.pods[pods]
	if i := slices.Index(c.rows, g.bucket); i >= 0 {
		c.left[i] -= float64(n) * g.norm
	}
}
