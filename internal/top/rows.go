package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

// row is one line of a list or detail. Rows without an ID cannot be selected.
type row struct {
	id    string
	opens place
	// draw makes the line; only rows on the screen are drawn.
	draw func() line
}

func fixed(l line) row { return row{draw: func() line { return l }} }

// list is rows with the titles of their columns, which may be empty.
type list struct {
	header line
	rows   []row
}

// makeList makes the list or detail that is open.
func (m *Model) makeList() (out list) {
	switch last := len(m.open) - 1; {
	case m.fleet == nil:
		return list{rows: []row{fixed(words(faint, " "+m.observed.Link.waiting()))}}
	case last >= 0:
		return list{rows: m.detail(m.open[last])}
	case m.view == viewNodes:
		out = m.nodeList()
	case m.view == viewPending:
		out = m.pendingList()
	case m.view == viewChanges:
		out = m.changeList()
	}
	if len(out.rows) == 0 {
		for _, part := range wrapped(clean(m.emptiness()), m.width-3) {
			out.rows = append(out.rows, fixed(words(faint, " "+part)))
		}
	}
	return out
}

func (l Link) waiting() string {
	if l.Loading != "" {
		return l.Loading
	}
	return "Reading the cluster"
}

func (l Link) planning() string {
	if l.NotPlanned != "" {
		return "Nothing is planned: " + l.NotPlanned
	}
	return "The first plan is being computed."
}

// emptiness states why the list is empty.
func (m *Model) emptiness() string {
	if m.filter != "" {
		return fmt.Sprintf("Nothing matches %q. Esc clears the filter.", m.filter)
	}
	switch m.view {
	case viewPending:
		if m.fleet.PodsUnknown {
			return "Not known: no permission to read pods."
		}
		return "All pods have a node."
	case viewChanges:
		if m.forecast == nil {
			return m.observed.Link.planning()
		}
		return "No change is planned: no node can be removed or replaced at a lower price within the budgets."
	}
	if m.observed.Link.Loading != "" {
		return m.observed.Link.Loading
	}
	return "The cluster has no nodes."
}

// nodeList is the nodes in their groups, each group below its title.
func (m *Model) nodeList() (out list) {
	groups := m.groups()
	var shown []*Node
	for _, g := range groups {
		shown = append(shown, g.nodes...)
	}
	t := newTable(nodeColumns(m.now, m.group, shown), shown, m.width-markWidth)
	out.header = t.header()
	for _, g := range groups {
		if m.group != ungroup {
			out.rows = append(out.rows, fixed(g.title(m.width)))
		}
		for _, n := range g.nodes {
			out.rows = append(out.rows, row{id: "node " + n.key(), opens: place{node: n.key()}, draw: func() line { return t.row(n) }})
		}
	}
	return out
}

// key identifies a node among nodes and claims, which may have equal names.
func (n *Node) key() string {
	if n.node == nil {
		return "claim/" + n.Claim
	}
	return n.Name
}

// nodeGroup is nodes with a common property.
type nodeGroup struct {
	name        string
	nodes       []*Node
	cpu, memory Use
	// price in $/h is that of the nodes with a known one; unpriced is how many have none.
	price    float64
	unpriced int
	pods     int
}

// groups are the nodes that the filter selects, in order, by group; groups are sorted by name.
func (m *Model) groups() []*nodeGroup {
	filter := ParseFilter(m.filter)
	byName := map[string]*nodeGroup{}
	var out []*nodeGroup
	for _, n := range m.fleet.Nodes {
		if !filter.node(n) {
			continue
		}
		name := m.group.of(n)
		g := byName[name]
		if g == nil {
			g = &nodeGroup{name: name}
			byName[name], out = g, append(out, g)
		}
		g.nodes = append(g.nodes, n)
		g.cpu.add(n.CPU)
		g.memory.add(n.Memory)
		g.price += n.price()
		if n.HourlyCost == nil {
			g.unpriced++
		}
		g.pods += n.Pods
	}
	slices.SortFunc(out, func(a, b *nodeGroup) int { return strings.Compare(a.name, b.name) })
	for _, g := range out {
		slices.SortFunc(g.nodes, m.order.compare)
		if m.reversed {
			slices.Reverse(g.nodes)
		}
	}
	return out
}

// podCount returns how many pods run on the nodes, in words.
func (g *nodeGroup) podCount() string {
	if slices.ContainsFunc(g.nodes, func(n *Node) bool { return n.CPU.Requested == nil }) {
		return "? pods"
	}
	return report.Plural(g.pods, "pod")
}

func (g *nodeGroup) title(width int) (out line) {
	out.add(bold, g.name)
	numbers := fmt.Sprintf("  %s · cpu %s · mem %s · %s · %s", report.Plural(len(g.nodes), "node"), g.cpu.percent(), g.memory.percent(),
		g.podCount(), priced(g.price, g.unpriced))
	if width < 60 {
		numbers = "  " + report.Plural(len(g.nodes), "node")
	}
	out.add(faint, numbers)
	return out
}

// pending are the pending pods that the filter selects, those without a way to a node first, then the oldest.
func (m *Model) pending() (out []pendingPod) {
	filter := ParseFilter(m.filter)
	for _, i := range m.fleet.Pending {
		p := m.outlook(&m.fleet.Pods[i])
		if filter.pending(p) {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b pendingPod) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return out
}

// outlook adds to a pod what becomes of it: by the engine, else in the words of kube-scheduler.
func (m *Model) outlook(p *Pod) pendingPod {
	out := pendingPod{Pod: p, cause: p.Scheduler, waits: m.forecast != nil || p.Scheduler == ""}
	if m.forecast != nil {
		if o, planned := m.forecast.pods[p.UID]; planned {
			out.cause, out.fits = o.String(), o.Node != "" || o.Launch != nil
			out.waits = o.waits && !out.fits
		}
	}
	if out.cause == "" {
		out.cause = "kube-scheduler has not tried it yet"
	}
	return out
}

func (m *Model) pendingList() (out list) {
	pods := m.pending()
	t := newTable(pendingColumns(m.now), pods, m.width-markWidth)
	out.header = t.header()
	for _, p := range pods {
		out.rows = append(out.rows, row{id: "pod " + string(p.UID), opens: place{pod: p.UID}, draw: func() line { return t.row(p) }})
	}
	return out
}

func (m *Model) changeList() (out list) {
	if m.forecast == nil {
		return list{}
	}
	filter := ParseFilter(m.filter)
	changes := slices.DeleteFunc(m.fleet.next(m.forecast), func(c Change) bool { return !filter.change(c) })
	t := newTable(changeColumns(), changes, m.width-markWidth)
	out.header = t.header()
	for i, c := range changes {
		r := row{id: fmt.Sprintf("change %d", i), draw: func() line { return t.row(c) }}
		if len(c.Nodes) > 0 {
			r.opens = place{node: c.Nodes[0]}
		}
		out.rows = append(out.rows, r)
	}
	return out
}

// sinceText is a time for people: when, and how long ago.
func sinceText(now, then time.Time) string {
	if then.IsZero() {
		return "not known"
	}
	return then.UTC().Format(time.DateTime) + " UTC, " + age(now, then) + " ago"
}
