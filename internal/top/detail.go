package top

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// page collects the rows of a detail.
type page struct {
	width int
	rows  []row
}

func (p *page) line(l line) { p.rows = append(p.rows, fixed(l)) }

func (p *page) blank() { p.line(line{{plain, " "}}) }

func (p *page) title(text string) {
	p.blank()
	p.line(words(bold, text))
}

// factWidth sets how wide the names of facts are: as the longest of them.
const factWidth = 12

// fact is a name and a value, which continues on lines of its own if it is long.
func (p *page) fact(name, value string) { p.styled(name, value, plain) }

func (p *page) styled(name, value string, s style) {
	for i, part := range wrapped(clean(value), p.width-factWidth-4) {
		if i > 0 {
			name = ""
		}
		var l line
		l.add(faint, pad(name, factWidth)+" ")
		l.add(s, part)
		p.line(l)
	}
}

// detail are the rows of an open node or pod.
func (m *Model) detail(at place) []row {
	p := &page{width: m.width}
	if at.node != "" {
		for _, n := range m.fleet.Nodes {
			if n.key() == at.node {
				m.nodeDetail(p, n)
				return p.rows
			}
		}
		p.line(words(faint, "Node "+at.node+" is gone. Esc goes back."))
		return p.rows
	}
	pod := m.fleet.pod(at.pod)
	if pod == nil {
		p.line(words(faint, "The pod is gone. Esc goes back."))
		return p.rows
	}
	m.podDetail(p, pod)
	return p.rows
}

func (m *Model) nodeDetail(p *page, n *Node) {
	var head line
	head.add(n.State.style(), n.State.Glyph()+" ")
	head.add(bold, n.Name)
	head.add(n.State.style(), "  "+string(n.State))
	p.line(head)
	if n.Why != "" {
		p.styled("why", n.Why, n.State.style())
	}
	p.blank()
	p.fact("type", join(n.InstanceType, n.CapacityType, n.Zone))
	p.fact("price", m.priceText(n))
	p.fact("NodePool", n.Pool)
	p.fact("NodeClaim", n.Claim)
	p.fact("created", sinceText(m.now, n.Created))
	m.useFact(p, "cpu", n.CPU, cores)
	m.useFact(p, "memory", n.Memory, bytesOf)
	p.fact("pods", fmt.Sprintf("%s of %d", n.podCount(), n.MaxPods))
	m.podsOf(p, n)
	if n.node != nil {
		p.taints(n.node.Spec.Taints)
		p.labels(n.node.Labels)
	} else if n.claim != nil {
		p.taints(n.claim.Spec.Taints)
		p.labels(n.claim.Labels)
	}
	if n.node != nil {
		p.title("Explain")
		p.line(words(accent, "dovetail explain node "+n.Name))
	}
}

func join(parts ...string) (out string) {
	for _, part := range parts {
		switch {
		case part == "":
		case out == "":
			out = part
		default:
			out += " · " + part
		}
	}
	return out
}

func (m *Model) priceText(n *Node) string {
	if n.HourlyCost == nil {
		return "not known: the catalog has no such offering"
	}
	text := dollars(*n.HourlyCost)
	if m.observed.Prices != "" {
		text += " by " + m.observed.Prices
	}
	return text
}

func (m *Model) useFact(p *page, name string, u Use, text func(int64) string) {
	var l line
	l.add(faint, pad(name, factWidth)+" ")
	l = append(l, bar(u.Share(), u.UsedShare(), min(max(p.width/4, 6), 30))...)
	requested := "?"
	if u.Requested != nil {
		requested = text(*u.Requested)
	}
	l.add(plain, fmt.Sprintf(" %s of %s requested", requested, text(u.Allocatable)))
	if u.Used != nil {
		l.add(faint, fmt.Sprintf(", %s used", text(*u.Used)))
	}
	p.line(l)
}

// podsOf lists the pods of a node, the largest first.
func (m *Model) podsOf(p *page, n *Node) {
	pods := make([]*Pod, 0, len(n.pods))
	for _, i := range n.pods {
		pods = append(pods, &m.fleet.Pods[i])
	}
	slices.SortStableFunc(pods, func(a, b *Pod) int { return int(min(max(b.CPU-a.CPU, -1), 1)) })
	p.title("Pods")
	if m.fleet.PodsUnknown {
		p.line(words(faint, "not known: no permission to read them"))
		return
	}
	if len(pods) == 0 {
		p.line(words(faint, "none"))
		return
	}
	t := newTable(m.podColumns(), pods, m.width-2)
	p.line(t.header())
	for _, pod := range pods {
		p.rows = append(p.rows, row{
			id: "pod " + string(pod.UID), opens: place{pod: pod.UID}, draw: func() line { return t.row(pod) },
		})
	}
}

func (m *Model) podColumns() []column[*Pod] {
	return []column[*Pod]{
		{title: "POD", min: 20, grow: true, rank: 0, cell: func(p *Pod, _ int) line { return words(plain, p.Namespace+"/"+p.Name) }},
		{title: "CPU", min: 5, rank: 1, right: true, cell: func(p *Pod, _ int) line { return words(plain, cores(p.CPU)) }},
		{title: "MEM", min: 6, rank: 2, right: true, cell: func(p *Pod, _ int) line { return words(plain, bytesOf(p.Memory)) }},
		{title: "AGE", min: 4, rank: 3, right: true, cell: func(p *Pod, _ int) line {
			return words(plain, age(m.now, p.CreationTimestamp.Time))
		}},
		{title: "PHASE", min: 11, rank: 4, cell: func(p *Pod, _ int) line { return words(faint, phase(p.Pod)) }},
		{title: "OWNER", min: 10, grow: true, rank: 5, cell: func(p *Pod, _ int) line { return words(faint, owner(p.Pod)) }},
	}
}

func phase(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	return string(p.Status.Phase)
}

// owner is the controller of a pod.
func owner(p *corev1.Pod) string {
	for _, o := range p.OwnerReferences {
		if o.Controller != nil && *o.Controller {
			return o.Kind + "/" + o.Name
		}
	}
	return ""
}

func (p *page) taints(taints []corev1.Taint) {
	p.title("Taints")
	if len(taints) == 0 {
		p.line(words(faint, "none"))
	}
	for i := range taints {
		p.line(words(plain, taints[i].ToString()))
	}
}

func (p *page) labels(labels map[string]string) {
	p.title("Labels")
	if len(labels) == 0 {
		p.line(words(faint, "none"))
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		var l line
		l.add(faint, key+"=")
		l.add(plain, labels[key])
		p.line(l)
	}
}

func (m *Model) podDetail(p *page, pod *Pod) {
	p.line(words(bold, pod.Namespace+"/"+pod.Name))
	if pod.Spec.NodeName == "" {
		o := m.outlook(pod)
		s := bad
		if o.fits {
			s = InFlight.style()
		}
		p.styled("pending", o.cause, s)
		if pod.Scheduler != "" && pod.Scheduler != o.cause {
			p.styled("scheduler", pod.Scheduler, faint)
		}
	}
	p.blank()
	p.fact("phase", phase(pod.Pod))
	p.fact("owner", owner(pod.Pod))
	p.fact("created", sinceText(m.now, pod.CreationTimestamp.Time))
	p.fact("requests", fmt.Sprintf("cpu %s · memory %s", cores(pod.CPU), bytesOf(pod.Memory)))
	if n := m.fleet.byName[pod.Spec.NodeName]; n != nil {
		p.title("Node")
		p.rows = append(p.rows, row{id: "node " + n.key(), opens: place{node: n.key()}, draw: func() line {
			var l line
			l.add(n.State.style(), n.State.Glyph()+" ")
			l.add(plain, n.Name)
			l.add(faint, "  "+join(n.InstanceType, n.CapacityType, n.Zone, string(n.State)))
			return l
		}})
		if n.Why != "" {
			p.styled("", n.Why, faint)
		}
	}
	p.constraints(pod.Pod)
	p.labels(pod.Labels)
	p.title("Explain")
	p.line(words(accent, "dovetail explain pod "+pod.Namespace+"/"+pod.Name))
}

// constraints lists what of the pod limits where it runs.
func (p *page) constraints(pod *corev1.Pod) {
	p.title("Constraints")
	before := len(p.rows)
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		p.fact("selector", key+"="+pod.Spec.NodeSelector[key])
	}
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		p.fact("spread", fmt.Sprintf("%s, max skew %d, %s", c.TopologyKey, c.MaxSkew, c.WhenUnsatisfiable))
	}
	if a := pod.Spec.Affinity; a != nil {
		for _, known := range []struct {
			name string
			set  bool
		}{
			{"node affinity", a.NodeAffinity != nil}, {"pod affinity", a.PodAffinity != nil}, {"pod anti-affinity", a.PodAntiAffinity != nil},
		} {
			if known.set {
				p.fact("affinity", known.name)
			}
		}
	}
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		p.fact("toleration", join(t.Key, t.Value, string(t.Operator), string(t.Effect)))
	}
	if len(p.rows) == before {
		p.line(words(faint, "none"))
	}
}
