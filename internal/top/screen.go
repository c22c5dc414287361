package top

import (
	"fmt"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// tall and wide are from where on the screen has its head with bars and spend; below, there is one line.
const (
	tallScreen = 14
	wideScreen = 60
)

func (m *Model) small() bool { return m.height < tallScreen || m.width < wideScreen }

// body returns how many rows of the list fit on the screen.
func (m *Model) body() int {
	return max(m.height-len(m.top)-1, 1)
}

// View draws the screen: exactly as many lines as the terminal has rows, each at most as wide as the terminal.
func (m Model) View() string {
	var lines []string
	put := func(l line) { lines = append(lines, l.render(m.width, false)) }
	for _, l := range m.top {
		put(l)
	}
	if m.help {
		all := m.helpLines()
		for i := m.helpTop; i < min(m.helpTop+m.body(), len(all)); i++ {
			put(all[i])
		}
	} else {
		lines = append(lines, m.listLines()...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	if m.height > 1 {
		lines = lines[:m.height-1]
	}
	lines = append(lines, m.footer().render(m.width, false))
	return strings.Join(lines[max(0, len(lines)-m.height):], "\n")
}

// markWidth sets how many columns the mark of the selected row takes.
const markWidth = 1

// listLines draws the rows on the screen. The selected one is marked, also without color.
func (m *Model) listLines() (out []string) {
	c := m.cursors[m.page()]
	for i := c.offset; i < min(c.offset+m.body(), len(m.list.rows)); i++ {
		r := m.list.rows[i]
		mark := line{{plain, " "}}
		selected := i == c.index && r.id != ""
		if selected {
			mark = line{{plain, "▸"}}
		}
		out = append(out, append(mark, r.draw()...).render(m.width, selected))
	}
	return out
}

// makeTop makes what is above the list: the summary, the tabs, what is wrong, and the titles of columns.
func (m *Model) makeTop() (out []line) {
	if !m.small() {
		out = append(out, m.summary()...)
	}
	out = append(append(out, m.tabs()), m.banners()...)
	if m.list.header != nil && !m.help {
		out = append(out, append(line{{plain, " "}}, m.list.header...))
	}
	return out
}

// summary returns what the cluster requests, and what it costs.
func (m *Model) summary() []line {
	if m.fleet == nil {
		return []line{m.title(), nil, nil}
	}
	total := m.total()
	right := m.spendLines(m.fleet.spend(m.forecast, &m.observed))
	left := []line{m.title(), m.meter("CPU", total.cpu, cores), m.meter("Mem", total.memory, bytesOf)}
	for i := range left {
		rest := m.width - left[i].width() - right[i].width() - 1
		left[i].add(plain, pad("", rest))
		left[i] = append(left[i], right[i]...)
	}
	return left
}

func (m *Model) title() (out line) {
	out.add(accent, " dovetail top")
	name := m.observed.Link.Name
	out.add(faint, "  "+cut(clean(name), max(m.width-58, 10)))
	return out
}

func (m *Model) meter(name string, u Use, text func(int64) string) (out line) {
	out.add(bold, " "+name+" ")
	out = append(out, bar(u.Share(), u.UsedShare(), min(max(m.width/5, 8), 40))...)
	out.add(plain, " "+u.percent())
	out.add(faint, " of "+text(u.Allocatable))
	if u.Used != nil && m.width >= 100 {
		out.add(faint, fmt.Sprintf(" requested, %s used", report.Share(u.UsedShare())))
	}
	return out
}

// spendLines are the costs now, after the planned changes, and at the lower bound.
func (m *Model) spendLines(s Spend) [3]line {
	var now, after, bound line
	now.add(faint, "Now ")
	switch {
	case m.observed.Prices == "" && m.observed.Link.NotPlanned != "":
		now.add(faint, "not known")
	case m.observed.Prices == "":
		now.add(faint, "prices are being read")
	default:
		now.add(bold, dollars(s.HourlyCost))
		now.add(faint, " · "+monthly(s.HourlyCost))
		if s.Unpriced > 0 {
			now.add(warn, fmt.Sprintf(" + %d unpriced", s.Unpriced))
		}
	}
	switch {
	case s.PlannedHourlyCost != nil:
		after.add(faint, fmt.Sprintf("After %s ", report.Plural(len(m.fleet.next(m.forecast)), "change")))
		after.add(bold, dollars(*s.PlannedHourlyCost))
		bound.add(faint, fmt.Sprintf("planned %s ago  ", age(m.now, m.forecast.At)))
	case m.observed.Link.NotPlanned != "":
		after.add(faint, "not planned")
	default:
		after.add(faint, "planning")
	}
	if s.LowerBound != nil {
		bound.add(faint, "Lower bound ")
		bound.add(plain, dollars(*s.LowerBound))
	}
	return [3]line{now, after, bound}
}

// tabs are the lists with their lengths, the filter, and how nodes are sorted.
func (m *Model) tabs() (out line) {
	out.add(plain, " ")
	nodes, pods, pending, changes := "", "", "", ""
	if f := m.fleet; f != nil {
		nodes = fmt.Sprint(" ", len(f.Nodes))
		if !f.PodsUnknown {
			pending = fmt.Sprint(" ", len(f.Pending))
			pods = fmt.Sprintf(" %s, %d running ", report.Plural(len(f.Pods), "pod"), f.Running)
		}
	}
	if m.forecast != nil {
		changes = fmt.Sprint(" ", len(m.fleet.next(m.forecast)))
	}
	for i, tab := range []struct{ name, count string }{{"Nodes", nodes}, {"Pending", pending}, {"Changes", changes}} {
		s := faint
		if view(i) == m.view {
			s = "1;7"
		}
		out.add(s, " "+tab.name+tab.count+" ")
		out.add(plain, " ")
	}
	if !m.small() {
		out.add(faint, pods)
	}
	switch {
	case m.editing:
		out.add(accent, "/"+m.filter+"▏")
	case m.filter != "":
		out.add(accent, "/"+m.filter)
	}
	if m.view == viewNodes && !m.small() && len(m.open) == 0 {
		var right line
		right.add(faint, fmt.Sprintf("sort %s%s  group %s", m.order, m.direction(), m.group))
		out.add(plain, pad("", m.width-out.width()-right.width()-1))
		out = append(out, right...)
	}
	return out
}

// direction is ↑ if the least is first: names begin with the least, everything else with the largest.
func (m *Model) direction() string {
	if (m.order == byName) != m.reversed {
		return "↑"
	}
	return "↓"
}

// banners report what is wrong with what is shown: one line each.
func (m *Model) banners() (out []line) {
	l := m.observed.Link
	if !l.Lost.IsZero() {
		text := fmt.Sprintf("! stale for %s: the API server does not answer. %s", age(m.now, l.Lost), l.LostWhy)
		out = append(out, words("1;31", " "+cut(clean(text), m.width-2)))
	}
	if l := m.observed.PricesProblem; l != "" {
		out = append(out, words(warn, " "+cut(clean("! "+l), m.width-2)))
	}
	if !m.realized.Until.IsZero() {
		out = append(out, words(faint, " "+cut(m.realized.text(), m.width-2)))
	}
	if l.Loading != "" && m.fleet != nil {
		out = append(out, words(warn, " "+l.Loading))
	}
	missing := l.Missing
	if l.NotPlanned != "" && len(missing) == 0 { // what is missing is the cause, else
		missing = []string{"not planned: " + l.NotPlanned}
	}
	for i, missing := range missing {
		const most = 2
		if i == most && len(l.Missing) > most+1 {
			return append(out, words(warn, fmt.Sprintf(" ! %d more: press ? for the list", len(l.Missing)-i)))
		}
		out = append(out, words(warn, " "+cut(clean("! "+missing), m.width-2)))
	}
	return out
}

// footer lists the keys that do something now, the most useful first.
func (m *Model) footer() (out line) {
	keys := [][2]string{
		{"↑↓", "move"}, {"enter", "open"}, {"tab", "list"}, {"/", "filter"}, {"s", "sort"}, {"g", "group"}, {"?", "help"}, {"q", "quit"},
	}
	switch {
	case m.help:
		keys = [][2]string{{"↑↓", "scroll"}, {"esc", "close"}}
	case m.editing:
		keys = [][2]string{{"enter", "keep"}, {"esc", "undo"}, {"pool: zone: type: state: capacity: node:", "!word excludes"}}
	case len(m.open) > 0:
		keys = [][2]string{{"esc", "back"}, {"↑↓", "move"}, {"enter", "open"}, {"?", "help"}, {"q", "quit"}}
	}
	out.add(plain, " ")
	for _, k := range keys {
		if out.width()+width(k[0])+width(k[1])+3 > m.width {
			break
		}
		out.add(bold, k[0])
		out.add(faint, " "+k[1]+"  ")
	}
	return out
}

// helpLines explain keys, states and filters, and list what is missing.
func (m *Model) helpLines() (out []line) {
	section := func(title string, rows [][2]string) {
		out = append(out, words(bold, " "+title))
		for _, r := range rows {
			var l line
			l.add(accent, "   "+pad(r[0], 18))
			l.add(plain, r[1])
			out = append(out, l)
		}
		out = append(out, nil)
	}
	if len(m.observed.Link.Missing) > 0 {
		out = append(out, words(bold, " Missing"))
		for _, missing := range m.observed.Link.Missing {
			for _, part := range wrapped(clean(missing), m.width-4) {
				out = append(out, words(warn, "   "+part))
			}
		}
		out = append(out, nil)
	}
	section("Keys", [][2]string{
		{"↑ ↓ j k", "move; PgUp, PgDn, Home, End"},
		{"enter", "open a node or a pod; esc goes back"},
		{"tab, 1 2 3", "nodes, pending pods, planned changes"},
		{"s, r", "sort by name, price, use, age or pods; reverse"},
		{"g", "group by pool, zone, type, or not"},
		{"/", "filter; esc clears it"},
		{"q, ctrl-c", "quit"},
	})
	section("Filter", [][2]string{
		{"web", "rows with this text"},
		{"pool:general", "also zone: type: state: capacity: node: namespace:"},
		{"!spot", "rows without it; all words must hold"},
	})
	var known [][2]string
	for _, s := range states {
		known = append(known, [2]string{s.glyph + " " + string(s.State), s.meaning})
	}
	section("States", known)
	section("Bars", [][2]string{
		{"██████····", "requested of allocatable"},
		{"███┃··", "┃ what containers use, if metrics-server answers"},
	})
	return out
}
