package top

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// column is a column of a table of T.
type column[T any] struct {
	title string
	// min is the least width. A column with grow takes what is left, up to what its widest cell needs.
	min  int
	grow bool
	// rank states which columns a narrow screen leaves out: those with the highest.
	rank int
	// right aligns numbers.
	right bool
	// cell is the content of a row. It should be at most width columns wide: a column may have a short form for that.
	cell func(row T, width int) line
}

// gap is the space between columns.
const gap = 1

// fit chooses the columns that fit into n columns of the screen, and their widths. It leaves out the column with the highest
// rank until the others fit, then divides what is left among those that grow, each up to its widest cell.
func fit[T any](columns []column[T], rows []T, n int) (chosen []column[T], widths []int) {
	chosen = slices.Clone(columns)
	for len(chosen) > 1 && least(chosen) > n {
		worst := 0
		for i := range chosen {
			if chosen[i].rank >= chosen[worst].rank {
				worst = i
			}
		}
		chosen = slices.Delete(chosen, worst, worst+1)
	}
	widths = make([]int, len(chosen))
	for i, c := range chosen {
		widths[i] = c.min
	}
	left := n - least(chosen)
	// First all columns get what their short form needs, then their long form.
	for _, form := range []func(column[T]) int{func(c column[T]) int { return c.min }, func(column[T]) int { return n }} {
		for i, c := range chosen {
			if !c.grow || left <= 0 {
				continue
			}
			most := 0
			for _, r := range rows {
				most = max(most, c.cell(r, form(c)).width())
			}
			more := min(max(most-widths[i], 0), left)
			widths[i], left = widths[i]+more, left-more
		}
	}
	return chosen, widths
}

func least[T any](columns []column[T]) int {
	sum := gap * (len(columns) - 1)
	for _, c := range columns {
		sum += c.min
	}
	return sum
}

// table is the chosen columns with their widths.
type table[T any] struct {
	columns []column[T]
	widths  []int
}

func newTable[T any](columns []column[T], rows []T, n int) table[T] {
	chosen, widths := fit(columns, rows, n)
	return table[T]{chosen, widths}
}

// header is the line of titles.
func (t table[T]) header() (out line) {
	for i, c := range t.columns {
		if i > 0 {
			out.add(plain, " ")
		}
		if c.right {
			out.add(faint, padLeft(c.title, t.widths[i]))
		} else {
			out.add(faint, pad(c.title, t.widths[i]))
		}
	}
	return out
}

// row is the line of a row.
func (t table[T]) row(row T) (out line) {
	for i, c := range t.columns {
		if i > 0 {
			out.add(plain, " ")
		}
		cell := c.cell(row, t.widths[i])
		rest := t.widths[i] - cell.width()
		if c.right {
			out.add(plain, pad("", rest))
		}
		if rest < 0 {
			cell = line{{cell[0].style, cut(cell.text(), t.widths[i])}}
		}
		out = append(out, cell...)
		if !c.right {
			out.add(plain, pad("", rest))
		}
	}
	return out
}

func words(s style, text string) line { return line{{s, clean(text)}} }

// useCell is a bar and the percentage requested. Below nine columns there is only the percentage.
func useCell(u Use, n int) line {
	text := padLeft(u.percent(), 4)
	if n < 9 {
		return words(plain, text)
	}
	return append(bar(u.Share(), u.UsedShare(), min(n, 16)-5), span{plain, " " + text})
}

// hostCell is the name of a node. If it is too wide, the domain is left out that EC2 appends to private names: every node of a
// region has the same.
func hostCell(name string, n int) line {
	if name = clean(name); width(name) > n {
		name = withoutDomain(name)
	}
	return words(plain, name)
}

func withoutDomain(name string) string {
	host, domain, found := strings.Cut(name, ".")
	if found && (domain == "ec2.internal" || strings.HasSuffix(domain, ".compute.internal")) {
		return host
	}
	return name
}

// nodeColumns are the columns of nodes. A table that is grouped leaves out what its groups have in common, and use if
// metrics-server has reported none.
func nodeColumns(now time.Time, g grouping, nodes []*Node) []column[*Node] {
	all := []column[*Node]{
		{title: "", min: 1, rank: 0, cell: func(n *Node, _ int) line { return words(n.State.style(), n.State.Glyph()) }},
		{title: "NODE", min: 14, grow: true, rank: 0, cell: func(n *Node, w int) line { return hostCell(n.Name, w) }},
		{title: "TYPE", min: 12, grow: true, rank: 4, cell: func(n *Node, _ int) line { return words(plain, n.InstanceType) }},
		{title: "CPU REQ", min: 9, grow: true, rank: 1, cell: func(n *Node, w int) line { return useCell(n.CPU, w) }},
		{title: "MEM REQ", min: 9, grow: true, rank: 3, cell: func(n *Node, w int) line { return useCell(n.Memory, w) }},
		{title: "PODS", min: 4, rank: 5, right: true, cell: func(n *Node, _ int) line { return words(plain, n.podCount()) }},
		{title: "$/H", min: 5, rank: 6, right: true, cell: func(n *Node, _ int) line { return words(plain, price(n.HourlyCost)) }},
		{title: "AGE", min: 4, rank: 7, right: true, cell: func(n *Node, _ int) line { return words(plain, age(now, n.Created)) }},
		{title: "STATE", min: 9, rank: 2, cell: func(n *Node, _ int) line { return words(n.State.style(), string(n.State)) }},
		{title: "CAPACITY", min: 9, rank: 8, cell: func(n *Node, _ int) line { return words(plain, n.CapacityType) }},
		{title: "ZONE", min: 12, rank: 9, cell: func(n *Node, _ int) line { return words(plain, n.Zone) }},
		{title: "NODEPOOL", min: 10, grow: true, rank: 10, cell: func(n *Node, _ int) line { return words(plain, n.Pool) }},
		{title: "CPU USED", min: 9, rank: 13, right: true, cell: func(n *Node, _ int) line { return words(plain, amounts(n.CPU, cores)) }},
		{title: "MEM USED", min: 11, rank: 14, right: true, cell: func(n *Node, _ int) line { return words(plain, amounts(n.Memory, bytesOf)) }},
		{title: "NODECLAIM", min: 13, grow: true, rank: 12, cell: func(n *Node, _ int) line { return words(plain, n.Claim) }},
		{title: "WHY", min: 16, grow: true, rank: 11, cell: func(n *Node, w int) line { return words(faint, cut(clean(n.Why), w)) }},
	}
	common := map[grouping]string{byPool: "NODEPOOL", byZone: "ZONE", byType: "TYPE"}[g]
	measured := slices.ContainsFunc(nodes, func(n *Node) bool { return n.CPU.Used != nil })
	return slices.DeleteFunc(all, func(c column[*Node]) bool {
		return c.title != "" && c.title == common || !measured && strings.HasSuffix(c.title, " USED")
	})
}

// amounts are used of allocatable.
func amounts(u Use, text func(int64) string) string {
	if u.Used == nil {
		return "?"
	}
	return text(*u.Used) + "/" + text(u.Allocatable)
}

// pendingPod is a pending pod with its outlook.
type pendingPod struct {
	*Pod
	cause string
	// fits is true if there is a node for it, or one would be launched; waits if nothing is to be done: kube-scheduler or the next plan
	// decides. Another pod needs a change.
	fits, waits bool
}

// rank is the order of pending pods: those first that need a change.
func (p pendingPod) rank() int {
	switch {
	case p.fits:
		return 2
	case p.waits:
		return 1
	}
	return 0
}

func pendingColumns(now time.Time) []column[pendingPod] {
	return []column[pendingPod]{
		{title: "", min: 1, rank: 0, cell: func(p pendingPod, _ int) line {
			switch {
			case p.fits:
				return words(InFlight.style(), InFlight.Glyph())
			case p.waits:
				return words(faint, "·")
			}
			return words(bad, "✕")
		}},
		{title: "POD", min: 20, grow: true, rank: 0, cell: func(p pendingPod, w int) line {
			return words(plain, cut(clean(p.Namespace+"/"+p.Name), min(w, 60)))
		}},
		{title: "CPU", min: 5, rank: 3, right: true, cell: func(p pendingPod, _ int) line { return words(plain, cores(p.CPU)) }},
		{title: "MEM", min: 6, rank: 4, right: true, cell: func(p pendingPod, _ int) line { return words(plain, bytesOf(p.Memory)) }},
		{title: "AGE", min: 4, rank: 2, right: true, cell: func(p pendingPod, _ int) line {
			return words(plain, age(now, p.CreationTimestamp.Time))
		}},
		{title: "WHY", min: 10, grow: true, rank: 1, cell: func(p pendingPod, w int) line { return words(faint, cut(clean(p.cause), w)) }},
	}
}

func changeColumns() []column[Change] {
	return []column[Change]{
		{title: "ACTION", min: 7, rank: 1, cell: func(c Change, _ int) line { return words(accent, c.Action) }},
		{title: "SAVES $/H", min: 9, rank: 0, right: true, cell: func(c Change, _ int) line {
			if c.HourlySavings < 0 {
				return words(warn, amount(c.HourlySavings))
			}
			return words(good, amount(c.HourlySavings))
		}},
		{title: "PODS", min: 4, rank: 4, right: true, cell: func(c Change, _ int) line { return words(plain, fmt.Sprint(c.Pods)) }},
		{title: "NODES", min: 16, grow: true, rank: 0, cell: func(c Change, w int) line { return words(plain, c.subjects(w)) }},
		{title: "NEW NODES", min: 16, grow: true, rank: 2, cell: func(c Change, w int) line { return words(plain, cut(clean(c.results()), w)) }},
		{title: "REASON", min: 14, grow: true, rank: 3, cell: func(c Change, _ int) line { return words(faint, c.state()) }},
	}
}

// state is the reason, after how far a change is that has begun.
func (c Change) state() string {
	if c.Progress == "" {
		return c.Reason
	}
	return clean(c.Progress) + ", " + c.Reason
}
