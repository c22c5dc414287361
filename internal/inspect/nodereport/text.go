package nodereport

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// podsShown sets how many lines the list of pods has at most: more are counted.
const podsShown = 12

// Text prints the report, folded at width columns; 0 folds nothing, and lists all pods.
func (r *Report) Text(w io.Writer, width int) error {
	p := &report.Page{Width: width}
	p.Line("%s", r.Verdict.Text)
	r.start(p)
	r.staying(p)
	r.leaving(p)
	r.remaining(p)
	r.identity(p)
	r.launched(p)
	p.Source(r.Prices, r.Now)
	_, err := p.WriteTo(w)
	return err
}

// identity is what the node is.
func (r *Report) identity(p *report.Page) {
	p.Heading("What it is")
	what := strings.Join(slices.DeleteFunc([]string{r.InstanceType, r.Zone, r.CapacityType}, func(s string) bool { return s == "" }), ", ")
	if r.HourlyCost > 0 {
		what += fmt.Sprintf(", %s/h", report.Money(r.HourlyCost))
	}
	if !r.CreatedAt.IsZero() {
		what += fmt.Sprintf(", %s old", report.Age(r.Now.Sub(r.CreatedAt)))
	}
	p.Item("%s", strings.TrimPrefix(what, ", "))
	if r.NodePool != "" || r.NodeClaim != "" {
		p.Item("NodePool %s, NodeClaim %s, Node %s", cmp.Or(r.NodePool, "none"), cmp.Or(r.NodeClaim, "none"), cmp.Or(r.Node, "none yet"))
	}
	var parts []string
	for _, u := range r.Use {
		parts = append(parts, fmt.Sprintf("%s of %s %s (%d%%)", u.Requested, u.Allocatable, u.Resource, report.Percent(u.Share)))
	}
	if len(parts) > 0 {
		p.Item("requested: %s", strings.Join(parts, ", "))
	}
	if r.ExpiresAt != nil {
		p.Item("%s", r.Expiration.text(*r.ExpiresAt, r.Now))
	}
}

// start is where a node stands that is not up.
func (r *Report) start(p *report.Page) {
	if r.Verdict.State != Starting {
		return
	}
	p.Heading("Where it stands")
	for _, s := range r.Stages {
		line := s.Name + ": not yet"
		if s.Done {
			line = s.Name + ": yes"
		}
		if s.At != nil {
			line += " since " + report.Time(*s.At, r.Now)
		}
		if s.Message != "" {
			line += ", " + s.Message
		}
		p.Item("%s", line)
	}
}

// staying are the blockers.
func (r *Report) staying(p *report.Page) {
	if len(r.Blockers) == 0 || r.said() && r.Blockers[0].Object == "" && r.Blockers[0].Change == "" {
		return
	}
	p.Heading("Why it stays")
	detail := p.Detail
	if r.said() {
		detail = p.Item
	}
	for i := range r.Blockers {
		k := &r.Blockers[i]
		if !r.said() {
			p.Item("%d. %s", i+1, k.Message)
		}
		if k.Object != "" {
			detail("%s", strings.TrimSpace(k.Object+" "+k.Field))
		}
		if k.Change != "" {
			detail("to lift it: %s", k.Change)
		}
	}
	if m := r.Removal; m != nil && !m.Accepted && m.Why != "" && !r.Blockers[0].Saving {
		p.Item("Without these it would still stay: %s", m.Why)
	}
}

// said reports whether the verdict has the text of the only blocker.
func (r *Report) said() bool {
	return len(r.Blockers) == 1 && r.Verdict.State == Stays && r.Verdict.Reason == r.Blockers[0].Code
}

// leaving is how it drifted.
func (r *Report) leaving(p *report.Page) {
	if r.Drift == nil {
		return
	}
	if r.Drift.Since != nil {
		p.Heading("How it drifted (%s, since %s)", r.Drift.Reason, report.Time(*r.Drift.Since, r.Now))
	} else {
		p.Heading("How it drifted (%s, not marked yet)", r.Drift.Reason)
	}
	for _, f := range r.Drift.Fields {
		p.Item("%s", f.String())
	}
	if len(r.Drift.Fields) == 0 {
		p.Item("no object of the cluster shows the field")
	}
}

// launched is why it is of its type.
func (r *Report) launched(p *report.Page) {
	l := r.Launch
	if l == nil {
		return
	}
	p.Heading("Why this type")
	line := l.Reason
	if l.Requests != "" {
		line += ", to hold " + l.Requests
	}
	if l.Types > 0 {
		line += fmt.Sprintf("; it could become %s", report.Plural(l.Types, "instance type"))
	}
	p.Item("%s", line)
	if len(l.Pods) > 0 {
		gone := ""
		if l.Gone > 0 {
			gone = fmt.Sprintf(" (%d are gone)", l.Gone)
		}
		p.Item("still there: %s%s", wording.List(l.Pods), gone)
	}
	l.today(p)
}

// today are the alternatives at the prices of now.
func (l *Launch) today(p *report.Page) {
	if len(l.Alternatives) > 0 {
		p.Item("cheapest nodes that hold its pods today:")
		var rows [][]string
		for _, a := range l.Alternatives {
			rows = append(rows, []string{a.InstanceType, a.Zone, a.CapacityType, report.Money(a.HourlyCost)})
		}
		p.Table([]string{"  TYPE", "ZONE", "CAPACITY", "$/H"}, indented(rows))
	}
	if l.Split > 1 {
		p.Item("no single new node is cheapest for its pods today: %d are", l.Split)
	}
	if len(l.Excluded) > 0 {
		p.Item("types that cost less, and why not%s:", nearest(len(l.Excluded), l.Rules))
		for _, e := range l.Excluded {
			p.Detail("%s %s/h: %s", e.InstanceType, report.Money(e.HourlyCost), e.Rule)
		}
	}
	if len(l.Rules) > 1 || len(l.Rules) == 1 && l.Rules[0].Types > len(l.Excluded) {
		p.Item("all types that cost less, by rule:")
		for _, rule := range l.Rules {
			p.Detail("%d: %s", rule.Types, rule.Rule)
		}
	}
}

// nearest states how many of the types are listed; empty if all are.
func nearest(n int, rules []Rule) string {
	all := 0
	for _, r := range rules {
		all += r.Types
	}
	if n == all {
		return ""
	}
	return fmt.Sprintf(" (the %d nearest in price of %d)", n, all)
}

func indented(rows [][]string) [][]string {
	for _, row := range rows {
		row[0] = "  " + row[0]
	}
	return rows
}

// remaining is what becomes of the pods.
func (r *Report) remaining(p *report.Page) {
	if r.Removal == nil {
		r.list(p)
		return
	}
	m := r.Removal
	p.Heading("If it were removed now")
	switch {
	case m.Blocks != "":
		p.Item("not all of its pods would run elsewhere")
	case len(m.Launches) == 0:
		p.Item("%s, nothing launched", m.saved())
	default:
		for _, l := range m.Launches {
			p.Item("launched: %s in %s, %s, %s/h, of NodePool %s", l.InstanceType, l.Zone, l.CapacityType, report.Money(l.HourlyCost), l.NodePool)
		}
		p.Item("%s", m.saved())
	}
	if r.Drain != nil && r.Verdict.State == Goes && len(m.Pods) > 0 {
		p.Item("%s", r.Drain)
	}
	lines := moves(m.Pods)
	for i, line := range lines {
		if p.Width > 0 && i == podsShown {
			p.Item("and %d more lines: -o wide", len(lines)-podsShown)
			break
		}
		p.Item("%s", line)
	}
	r.notes(p)
}

// saved returns what the removal saves or costs.
func (m *Removal) saved() string {
	const cent = 0.00005 // what prices are rounded to
	switch {
	case m.HourlySavings > cent:
		return report.Money(m.HourlySavings) + "/h saved"
	case m.HourlySavings < -cent:
		return report.Money(-m.HourlySavings) + "/h more"
	}
	return "nothing saved"
}

// moves has a line for each destination, with its pods; pods that go nowhere come first, each with the reason.
func moves(pods []Move) []string {
	var nowhere, out, order []string
	to := map[string][]string{}
	for i := range pods {
		m := &pods[i]
		where := m.Why
		switch {
		case m.Nowhere:
			nowhere = append(nowhere, m.Pod+" "+m.Why)
			continue
		case m.Why == "" && m.New:
			where = "to a new " + m.Node
		case m.Why == "":
			where = "to " + m.Node
		}
		if to[where] == nil {
			order = append(order, where)
		}
		to[where] = append(to[where], m.Pod)
	}
	for _, where := range order {
		out = append(out, where+": "+wording.List(to[where]))
	}
	return append(nowhere, out...)
}

// notes are the remarks on pods that the moves do not show.
func (r *Report) notes(p *report.Page) {
	for i := range r.Pods {
		if pod := &r.Pods[i]; pod.Warns {
			p.Item("%s %s", pod.Name, pod.Note)
		}
	}
}

// list are the pods of a node that nothing is simulated for.
func (r *Report) list(p *report.Page) {
	if len(r.Pods) == 0 {
		p.Heading("No pod runs there")
		return
	}
	p.Heading("Pods there (%d)", len(r.Pods))
	for i := range r.Pods {
		if p.Width > 0 && i == podsShown {
			p.Item("and %d more: -o wide", len(r.Pods)-podsShown)
			break
		}
		line := r.Pods[i].Name
		if r.Pods[i].Note != "" {
			line += ": " + r.Pods[i].Note
		}
		p.Item("%s", line)
	}
}
