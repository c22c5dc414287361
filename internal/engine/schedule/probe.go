package schedule

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/explain"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// explain lists the pods that are left with the reasons why they get no node; nil if the plan is abandoned.
func (sv *solver) explain(left []*queuedPod) []Rejection {
	if len(left) == 0 {
		return nil
	}
	p := &prober{sv: sv, explainer: explain.New(sv.s, sv.pools, sv.axes), slots: sv.slots.Clone()}
	known := map[*class][]Reason{}
	out := make([]Rejection, 0, len(left))
	for _, q := range left {
		if known[q.class] == nil {
			known[q.class] = p.reasons(q.class)
		}
		if sv.stopRequested() {
			return nil
		}
		out = append(out, Rejection{Pod: q.pod, Reasons: known[q.class]})
	}
	return out
}

// prober answers what an explanation asks the search. It leaves nothing behind in the solver.
type prober struct {
	sv        *solver
	explainer *explain.Explainer
	// slots are the solver's, plus those of reservations that only the explainer's templates have.
	slots reservation.Slots
}

// reasons are the reasons why pods of the class cannot be scheduled.
func (p *prober) reasons(c *class) []Reason {
	sv := p.sv
	if sv.outOfSteps() || c.manyTerms && sv.budget.MaxSteps > 0 && sv.stepsOfClass[c.constraintClass] > sv.budget.MaxSteps/manyTermShares {
		return []Reason{{Code: BudgetSpent, Message: budgetSpentMessage}}
	}
	end := p.begin()
	out := p.explainer.Reasons(p.pods(c))
	end()
	if n := requiredTerms(c.pod); n > MaxAlternatives {
		out = append(slices.Clone(out), Reason{
			Code: TooComplex,
			Message: fmt.Sprintf(
				"of the pod's %d terms of required node affinity only the first %d are considered; use fewer terms",
				n,
				MaxAlternatives,
			),
		})
	}
	return out
}

// begin gives the solver the prober's slots, until the returned function is called. Explanations take no steps of the
// budget.
func (p *prober) begin() (end func()) {
	sv := p.sv
	steps := sv.steps
	sv.slots, p.slots = p.slots, sv.slots
	return func() {
		sv.steps = steps
		sv.slots, p.slots = p.slots, sv.slots
	}
}

// pods are the pods of a class, as explanations see them.
func (p *prober) pods(c *class) *explain.Pods {
	last := c.levels[len(c.levels)-1]
	out := &explain.Pods{
		Pod: c.pod, Selection: c.node, Volumes: c.volumes, Tolerations: last.tolerations,
		Requests: c.requests, ResourceList: c.resourceList, UnknownResources: c.unknownResources, Ports: c.ports.All(),
		Search: &classProber{sv: p.sv, c: c},
	}
	for _, d := range c.devices {
		out.DeviceClaims = append(out.DeviceClaims, d.Name)
	}
	return out
}

// classProber is the prober of one class.
type classProber struct {
	sv          *solver
	c           *class
	constraints []explain.Constraint // made on first use
}

// Try opens a bin for a pod of the class under waived rules.
func (p *classProber) Try(a explain.Attempt) (*Nearest, Code) {
	last, pools := p.c.levels[len(p.c.levels)-1], p.sv.pools
	level := &relaxationLevel{
		strict:         a.Required,
		full:           a.Required,
		internedStrict: pools.Intern(a.Required),
		internedFull:   pools.Intern(a.Required),
		tolerations:    last.tolerations,
		groups:         last.groups,
		views:          []view{},
	}
	if !a.AnyTaints {
		level.blocked = last.blocked
	}
	waived := func(g *group) bool {
		return slices.ContainsFunc(a.Waived, func(c explain.Constraint) bool { return c.(*constraint).v.g == g })
	}
	for _, v := range p.c.views(last) {
		if !waived(v.g) {
			v.pod = a.Required.Get(v.g.key)
			if a.AllDomains || slices.Contains(a.NewDomains, v.g.key) {
				v.g = v.g.withDomainsOf(a.Template)
			}
			level.views = append(level.views, v)
		}
	}
	k, c := *p.c.constraintClass, *p.c
	c.constraintClass = &k
	k.volumes = []requirement.Interned{{}}
	if a.Volume.Len() > 0 {
		k.volumes[0] = pools.Intern(a.Volume)
	}
	if a.AnyPorts {
		k.ports = resources.PortSet{}
	}
	g, why := p.sv.grow(p.sv.newBin(a.Template), &c, level, ceilingExplained)
	if why != nil {
		return nil, why.code
	}
	return nearest(g), ""
}

// withDomainsOf is the group as if the template's nodes could be in all of their domains.
func (g *group) withDomainsOf(t *nodepool.Template) *group {
	if g.key == corev1.LabelHostname || !g.filter.admitsTaints(t.Taints()) {
		return g
	}
	out := *g
	out.universe = slices.Concat(g.universe, t.Values(g.key))
	slices.Sort(out.universe)
	out.universe = slices.Compact(out.universe)
	out.usable = out.reachable()
	return &out
}

// nearest is the cheapest offering of a growth.
func nearest(g growth) *Nearest {
	ti := g.cands.TypeOf(g.cands.List()[g.first])
	o := ti.OfferingOf(g.cands.Requirements(), g.reservation)
	return &Nearest{InstanceType: ti.Name, Zone: o.Zone, CapacityType: o.CapacityType}
}

// Constraints are the class's views, one per group.
func (p *classProber) Constraints() []explain.Constraint {
	if p.constraints != nil {
		return p.constraints
	}
	byGroup := map[*group]*constraint{}
	for _, v := range p.c.views(p.c.levels[len(p.c.levels)-1]) {
		if byGroup[v.g] == nil {
			byGroup[v.g] = &constraint{p.sv, v}
		}
		p.constraints = append(p.constraints, byGroup[v.g])
	}
	return p.constraints
}

// FindDevices is the reason why no node of the candidates has devices for the class's pods; nil if some node has.
func (p *classProber) FindDevices(on *nodepool.Candidates) error {
	_, err := p.sv.deviceOptions(p.sv.newBin(on.Template()), p.c, on)
	return err
}

// VolumeClaim names a volume claim of the pods that requires something of the label.
func (p *classProber) VolumeClaim(label string) string {
	for _, v := range podVolumes(p.sv.s, p.c.pod) {
		if alternatives, err := v.alternatives(p.sv.s.Labels); err == nil &&
			slices.ContainsFunc(alternatives, func(s requirement.Set) bool { return s.Defines(label) }) {
			return v.key.Name
		}
	}
	return ""
}

// noType finds the rule by which no instance type holds the requests.
func (sv *solver) noType(b *bin, c *class, reqs requirement.Set, total resources.Vec) *refusal {
	t := b.t
	if len(b.pods) > 0 {
		return sv.refusal(Resources, true)
	}
	code := Requirement
	ports := t.ConflictingGroups(b.ports, c.ports.All())
	for i := range t.Types() {
		ti := &t.Types()[i]
		if !reqs.Overlaps(ti.Requirements) {
			continue
		}
		if code == Requirement {
			code = Resources
		}
		if !total.Fits(ti.Room()) {
			continue
		}
		if !ti.BlockedBy(ports) {
			return &refusal{code: Offering, final: true}
		}
		code = HostPort
	}
	return &refusal{code: code, final: true}
}
