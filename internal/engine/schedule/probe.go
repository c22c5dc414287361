package schedule

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/explain"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// explain lists the pods that are left with the reasons why they get no node; nil if the plan is abandoned.
func (r *run) explain(left []*queuedPod) []Rejection {
	if len(left) == 0 {
		return nil
	}
	if r.budget.Unexplained {
		return unexplained(left)
	}
	p := &prober{r: r, explainer: explain.New(r.s, r.pools, r.axes), slots: r.slots.Clone()}
	known := map[*class][]Reason{}
	out := make([]Rejection, 0, len(left))
	for _, q := range left {
		if known[q.class] == nil {
			known[q.class] = p.reasons(q.class)
		}
		if r.stopRequested() {
			return nil
		}
		out = append(out, Rejection{Pod: q.pod, Reasons: known[q.class]})
	}
	return out
}

// unexplained are rejections without reasons.
func unexplained(left []*queuedPod) []Rejection {
	out := make([]Rejection, len(left))
	for i, q := range left {
		out[i].Pod = q.pod
	}
	return out
}

// prober answers what an explanation queries the search. It leaves nothing behind in the solver.
type prober struct {
	r         *run
	explainer *explain.Explainer
	// slots are the solver's, plus those of reservations that only the explainer's templates have.
	slots reservation.Slots
	// widened are topology groups with the domains of the explainer's templates.
	widened topology.Widened
}

// reasons are the reasons why pods of the class cannot be scheduled.
func (p *prober) reasons(c *class) []Reason {
	r := p.r
	most := r.budget.MaxSteps / explainShare
	switch {
	case r.outOfSteps():
		return []Reason{{Code: BudgetSpent, Rule: &rejection.Rule{Bound: &rejection.Bound{Of: rejection.StepsOfPlan}}}}
	case c.ManyTerms() && (r.shareSpent(c) || most > 0 && r.shares.explained > most):
		return []Reason{{Code: BudgetSpent, Rule: &rejection.Rule{Bound: &rejection.Bound{Of: rejection.StepsOfManyTerms}}}}
	}
	end := p.begin()
	out := p.explainer.Reasons(p.pods(c))
	if taken := end(); c.ManyTerms() {
		r.shares.explained += taken
		r.shares.beside += taken
		r.chargeSteps(c, taken)
	}
	if why := c.LeftOut(); why.Code != "" {
		out = append(slices.Clone(out), why)
	}
	return out
}

// begin gives the solver the prober's slots, until the returned function is called, which returns the steps that were taken
// since. Explanations take no steps of the budget.
func (p *prober) begin() (end func() int) {
	r := p.r
	steps := r.steps
	r.slots, p.slots = p.slots, r.slots
	return func() int {
		taken := r.steps - steps
		r.steps = steps
		r.slots, p.slots = p.slots, r.slots
		return taken
	}
}

// pods are the pods of a class, as explanations see them.
func (p *prober) pods(c *class) *explain.Pods {
	last := c.Levels()[len(c.Levels())-1]
	out := &explain.Pods{
		Pod: c.Pod(), Selection: *c.Selection(), Volumes: c.Volumes(), Tolerations: last.Tolerations(), Needs: c.Needs(),
		Requests: c.Requests(), ResourceList: c.ResourceList(), UnknownResources: c.unknownResources, Ports: c.Ports().All(),
		Search: &classProber{sv: p.r.solver, c: c, widened: &p.widened},
	}
	for _, d := range c.Devices() {
		out.DeviceClaims = append(out.DeviceClaims, d.Name)
	}
	return out
}

// classProber is the prober of one class.
type classProber struct {
	sv          *solver
	c           *class
	widened     *topology.Widened
	constraints []explain.Constraint // made on first use
}

// Try opens a bin for a pod of the class under waived rules.
func (p *classProber) Try(a explain.Attempt) (*Nearest, Code) {
	last, pools := p.c.Levels()[len(p.c.Levels())-1], p.sv.pools
	all := p.c.Views(last)
	p.sv.steps += len(all)
	views := make([]topology.View, 0, len(all))
	waived := func(g *topology.Group) bool {
		return slices.ContainsFunc(a.Waived, func(c explain.Constraint) bool { return c.(*constraint).Group() == g })
	}
	for _, v := range all {
		g := v.Group()
		if waived(g) {
			continue
		}
		// A pod spreads over the domains in which it could be launched: without the taints these are more.
		if a.AllDomains || a.AnyTaints || len(a.Waived) > 0 || slices.Contains(a.NewDomains, g.Key()) {
			g = p.widened.Group(g, a.Template.ForTopology())
		}
		views = append(views, v.In(g, a.Required))
	}
	alternative := requirement.Interned{}
	if a.Volume.Len() > 0 {
		alternative = pools.Intern(a.Volume)
	}
	c := p.c.With(p.c.WithVolume(alternative, a.AnyPorts), p.c.Number())
	level := last.Alone(pools.Intern(a.Required), a.AnyTaints, views)
	g, why := p.sv.bins.Grow(p.sv.bins.Fresh(a.Template), c, level, bin.Explained)
	if why != nil {
		return nil, why.Code()
	}
	if len(a.Waived) > 0 && slices.ContainsFunc(views, func(v topology.View) bool { return !v.Group().OverHosts() }) {
		// Constraints depend on each other's labels, so that the others may count otherwise without the waived ones.
		return nil, ""
	}
	return nearest(g), ""
}

// nearest is the cheapest offering of a growth.
func nearest(g bin.Growth) *Nearest {
	ti := g.Candidates().TypeOf(g.Cheapest())
	o := ti.OfferingOf(g.Candidates().Requirements(), g.Reservation())
	return &Nearest{InstanceType: ti.Name, Zone: o.Zone, CapacityType: o.CapacityType}
}

// Constraints are the class's views, one per group.
func (p *classProber) Constraints() []explain.Constraint {
	if p.constraints != nil {
		return p.constraints
	}
	byGroup := map[*topology.Group]*constraint{}
	for _, v := range p.c.Views(p.c.Levels()[len(p.c.Levels())-1]) {
		if byGroup[v.Group()] == nil {
			byGroup[v.Group()] = &constraint{v, p.sv.topology}
		}
		p.constraints = append(p.constraints, byGroup[v.Group()])
	}
	return p.constraints
}

// FindDevices is the reason why no node of the candidates has devices for the class's pods; nil if some node has.
func (p *classProber) FindDevices(on *nodepool.Candidates) error {
	_, err := p.sv.devices.Options(p.c.Devices(), p.sv.bins.Len(), on)
	return err
}

// VolumeClaim names a volume claim of the pods that requires something of the label.
func (p *classProber) VolumeClaim(label string) string {
	for _, v := range volume.Of(p.sv.s, p.c.Pod()) {
		if alternatives, err := v.Alternatives(p.sv.volumes.Index()); err == nil &&
			slices.ContainsFunc(alternatives, func(s requirement.Set) bool { return s.Defines(label) }) {
			return v.Key().Name
		}
	}
	return ""
}
