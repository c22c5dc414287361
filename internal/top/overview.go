package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// From is a message of one of several clusters.
type From struct {
	// Cluster is the index of the cluster, in the order in which NewOverview was given them.
	Cluster int
	Message any
}

// Overview is the state of the screen over several clusters: one row for each, and the screen of each behind its row. It is a value,
// like Model.
type Overview struct {
	width, height int
	clusters      []Model
	cursor        int
	offset        int
	// open is the index of the cluster with a screen that is shown; -1 for the table.
	open int
	done bool
}

// NewOverview returns the state before anything is known of the clusters.
func NewOverview(links []Link) Overview {
	o := Overview{width: 80, height: 24, open: -1}
	for _, l := range links {
		o.clusters = append(o.clusters, NewModel(l))
	}
	return o
}

// HasQuit reports whether the user has quit.
func (m Model) HasQuit() bool { return m.Done }

// HasQuit reports whether the user has quit.
func (o Overview) HasQuit() bool { return o.done }

// Update returns the state after a message.
func (o Overview) Update(message any) Overview {
	o.clusters = slices.Clone(o.clusters)
	switch message := message.(type) {
	case Key:
		o.press(string(message))
	case From:
		if message.Cluster >= 0 && message.Cluster < len(o.clusters) {
			o.clusters[message.Cluster] = o.clusters[message.Cluster].Update(message.Message)
		}
	default:
		if size, ok := message.(Resize); ok {
			o.width, o.height = max(size.Width, 1), max(size.Height, 1)
		}
		for i := range o.clusters {
			o.clusters[i] = o.clusters[i].Update(message)
		}
	}
	o.offset = min(max(o.offset, o.cursor-o.body()+1), o.cursor)
	return o
}

// press handles a key: that of the open cluster, unless it leads back from its first page.
func (o *Overview) press(key string) {
	if o.open >= 0 {
		m := o.clusters[o.open]
		if m.first() && slices.Contains([]string{"esc", "backspace", "left"}, key) {
			o.open = -1
			return
		}
		m = m.Update(Key(key))
		o.clusters[o.open], o.done = m, m.Done
		return
	}
	last := max(len(o.clusters)-1, 0)
	switch key {
	case "ctrl+c", "q":
		o.done = true
	case "up", "k":
		o.cursor = max(o.cursor-1, 0)
	case "down", "j":
		o.cursor = min(o.cursor+1, last)
	case "pgup", "ctrl+b":
		o.cursor = max(o.cursor-o.body(), 0)
	case "pgdown", "ctrl+f", "space":
		o.cursor = min(o.cursor+o.body(), last)
	case "home":
		o.cursor = 0
	case "end", "G":
		o.cursor = last
	case "enter", "right", "l":
		if len(o.clusters) > 0 {
			o.open = o.cursor
		}
	}
}

// first reports whether the screen is where it began: escape leads nowhere.
func (m *Model) first() bool { return len(m.open) == 0 && !m.help && !m.editing && m.filter == "" }

// overviewHead sets how many lines are above the rows, and below them.
const overviewHead, overviewFoot = 4, 1

// body returns how many rows fit on the screen.
func (o *Overview) body() int { return max(o.height-overviewHead-overviewFoot, 1) }

// View draws the screen: exactly as many lines as the terminal has rows, each at most as wide as the terminal.
func (o Overview) View() string {
	if o.open >= 0 {
		return o.clusters[o.open].View()
	}
	rows := make([]*Model, len(o.clusters))
	for i := range o.clusters {
		rows[i] = &o.clusters[i]
	}
	t := newTable(overviewColumns(), rows, o.width-markWidth)
	var lines []string
	for _, l := range o.head(rows) {
		lines = append(lines, l.render(o.width, false))
	}
	lines = append(lines, append(line{{plain, " "}}, t.header()...).render(o.width, false))
	for i := o.offset; i < min(o.offset+o.body(), len(rows)); i++ {
		mark := line{{plain, " "}}
		if i == o.cursor {
			mark = line{{plain, "▸"}}
		}
		lines = append(lines, append(mark, t.row(rows[i])...).render(o.width, i == o.cursor))
	}
	for len(lines) < o.height-1 {
		lines = append(lines, "")
	}
	if o.height > 1 {
		lines = lines[:o.height-1]
	}
	var foot line
	foot.add(plain, " ")
	for _, k := range [][2]string{{"↑↓", "move"}, {"enter", "open"}, {"esc", "back"}, {"q", "quit"}} {
		foot.add(bold, k[0])
		foot.add(faint, " "+k[1]+"  ")
	}
	lines = append(lines, foot.render(o.width, false))
	return strings.Join(lines[max(0, len(lines)-o.height):], "\n")
}

// head is the sum over the clusters that have answered.
func (o *Overview) head(rows []*Model) []line {
	var nodes, pending, unpriced, known int
	var now float64
	for _, m := range rows {
		if m.fleet == nil {
			continue
		}
		known++
		spend := m.fleet.spend(m.forecast, &m.observed)
		nodes, pending, unpriced, now = nodes+len(m.fleet.Nodes), pending+len(m.fleet.Pending), unpriced+spend.Unpriced, now+spend.HourlyCost
	}
	var title, sum line
	title.add(accent, " dovetail top")
	title.add(faint, fmt.Sprintf("  %s, %d read", report.Plural(len(rows), "cluster"), known))
	sum.add(bold, " "+dollars(now))
	sum.add(faint, " · "+monthly(now)+"  ")
	sum.add(plain, report.Plural(nodes, "node"))
	if pending > 0 {
		sum.add(warn, "  "+report.Plural(pending, "pending pod"))
	}
	if unpriced > 0 {
		sum.add(warn, fmt.Sprintf("  %d unpriced", unpriced))
	}
	return []line{title, sum, nil}
}

// overviewColumns are the columns of the clusters. What is not known yet is empty.
func overviewColumns() []column[*Model] {
	number := func(title string, min, rank int, cell func(*Model) line) column[*Model] {
		return column[*Model]{title: title, min: min, rank: rank, right: true, cell: func(m *Model, _ int) line {
			if m.fleet == nil {
				return nil
			}
			return cell(m)
		}}
	}
	spend := func(m *Model) Spend { return m.fleet.spend(m.forecast, &m.observed) }
	return []column[*Model]{
		{title: "CLUSTER", min: 12, grow: true, cell: func(m *Model, n int) line { return words(plain, cut(clean(m.observed.Link.Name), n)) }},
		number("NODES", 5, 0, func(m *Model) line { return words(plain, fmt.Sprint(len(m.fleet.Nodes))) }),
		number("PODS", 6, 3, func(m *Model) line { return words(plain, fmt.Sprint(len(m.fleet.Pods))) }),
		number("PENDING", 7, 1, func(m *Model) line {
			if n := len(m.fleet.Pending); n > 0 {
				return words(warn, fmt.Sprint(n))
			}
			return words(faint, "0")
		}),
		number("CPU", 4, 2, func(m *Model) line { return words(plain, m.total().cpu.percent()) }),
		number("MEM", 4, 2, func(m *Model) line { return words(plain, m.total().memory.percent()) }),
		number("$/H", 8, 0, func(m *Model) line { return words(bold, report.Amount(spend(m).HourlyCost)) }),
		number("CHANGES", 7, 4, func(m *Model) line {
			if m.forecast == nil {
				return nil
			}
			return words(plain, fmt.Sprint(len(m.fleet.next(m.forecast))))
		}),
		number("AFTER", 8, 3, func(m *Model) line { return words(good, price(spend(m).PlannedHourlyCost)) }),
		{title: "STATE", min: 6, grow: true, rank: 1, cell: (*Model).overviewState},
	}
}

func (m *Model) total() (sum nodeGroup) {
	for _, n := range m.fleet.Nodes {
		sum.cpu.add(n.CPU)
		sum.memory.add(n.Memory)
	}
	return sum
}

// overviewState states what is wrong with the row, in the columns that there are.
func (m *Model) overviewState(n int) line {
	l := m.observed.Link
	s, text := good, "ok"
	switch {
	case !l.Lost.IsZero():
		s, text = bad, "no answer: "+l.LostWhy
	case m.fleet == nil:
		s, text = faint, "reading"
	case len(l.Missing) > 0:
		s, text = warn, "missing: "+l.Missing[0]
	case l.NotPlanned != "":
		s, text = warn, "not planned: "+l.NotPlanned
	case m.forecast == nil:
		s, text = faint, "planning"
	}
	return words(s, cut(clean(text), n))
}
