package recorder

import (
	"slices"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/savings"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
)

// Realized is what EC2 has given for a decision, and what that has saved since.
type Realized struct {
	// Launched are the instances that EC2 launched, by time.
	Launched []Instance `json:"launched,omitempty"`
	// HourlyCost is that of these instances, in $/h; null while the price of one is not known.
	HourlyCost *number `json:"hourlyCost"`
	// HourlyCostAbovePlan is by how much that is more than the plan expected, in $/h; null until all nodes of the plan are launched.
	HourlyCostAbovePlan *number `json:"abovePlanHourlyCost"`
	// HourlySavings is the price of the removed nodes less that of their replacements, in $/h; null until all nodes are removed, for
	// launches, and while a price is not known.
	HourlySavings *number `json:"hourlySavings"`
	// Saved is what that adds up to, in $: as long as no later launch for pods costs as much, and to the end of the recording.
	Saved *number `json:"totalSavings,omitempty"`
}

// NewInstance is the instance of a node with labels, and with a price in $/h.
func NewInstance(labels map[string]string, hourly float64) Instance {
	o := fleet.OfferingOf(labels)
	return Instance{
		NodePool: labels[karpv1.LabelNodePool], InstanceType: o.InstanceType, Zone: o.Zone, CapacityType: o.CapacityType,
		HourlyCost: number(hourly),
	}
}

// Saved is what decisions have saved together, up to a time. Amounts are negative if replacements cost more than what they replace.
type Saved struct {
	Until time.Time `json:"until"`
	// HourlySavings is saved now, in $/h, Dollars is what was saved in all, in $.
	HourlySavings number `json:"hourlySavings"`
	Dollars       number `json:"totalSavings"`
	// NodePools have the same for each NodePool in which decisions have removed nodes, by name.
	NodePools []PoolSaved `json:"nodePools"`
}

// PoolSaved is what decisions have saved in a NodePool, as in Saved.
type PoolSaved struct {
	NodePool      string `json:"nodePool"`
	HourlySavings number `json:"hourlySavings"`
	Dollars       number `json:"totalSavings"`
}

// realized follows from the steps. It is nil while EC2 has given nothing, and no node is removed.
func (d *Decision) realized() *Realized {
	out := &Realized{}
	cost, priced := number(0), true
	for _, s := range d.gave() {
		out.Launched = append(out.Launched, s.Instance)
		cost, priced = cost+s.Instance.HourlyCost, priced && s.Instance.HourlyCost > 0
	}
	if len(out.Launched) > 0 && priced {
		out.HourlyCost = &cost
		if len(out.Launched) == len(d.Launches) {
			above := cost - d.HourlyCost
			out.HourlyCostAbovePlan = &above
		}
	}
	if c, known := d.command(out.Launched); known {
		saved := number(c.Hourly())
		out.HourlySavings = &saved
	}
	if len(out.Launched) == 0 && out.HourlySavings == nil {
		return nil
	}
	return out
}

// command is a decision that has removed its nodes, if all of their prices, and those of the instances that it launched, are known.
func (d *Decision) command(launched []Instance) (c savings.Command, known bool) {
	if d.Kind == KindLaunch || len(d.Removes) == 0 || d.Outcome != OutcomeDone || len(launched) < len(d.Launches) {
		return c, false
	}
	removed := make([]savings.Node, 0, len(d.Removes))
	for i := range d.Removes {
		n := &d.Removes[i]
		at := slices.IndexFunc(d.Steps, func(s Step) bool { return s.What == StepTerminated && s.Object == n.NodeClaim })
		if at < 0 {
			return c, false
		}
		removed = append(removed, savings.Node{NodePool: n.NodePool, HourlyCost: float64(n.HourlyCost), At: d.Steps[at].At})
	}
	return savings.Finished(d.ID, removed, d.launched())
}

// launched are the nodes that EC2 launched for the decision.
func (d *Decision) launched() (out []savings.Node) {
	for _, s := range d.gave() {
		out = append(out, savings.Node{NodePool: s.Instance.NodePool, HourlyCost: float64(s.Instance.HourlyCost), At: s.At})
	}
	return out
}

// gave are the steps with the instances that EC2 gave for the decision.
func (d *Decision) gave() []Step {
	return slices.DeleteFunc(slices.Clone(d.Steps), func(s Step) bool { return s.What != StepLaunched || s.Instance == (Instance{}) })
}

// Account adds up what decisions have saved until a time, and notes on each what it has. They are all of a time to that: launches
// among them take back savings of commands before them. It costs one sort.
func Account(decisions []Decision, now time.Time) Saved {
	type happened struct {
		at time.Time
		in func(*savings.Ledger)
	}
	var events []happened
	for i := range decisions {
		d := &decisions[i]
		if d.Realized != nil && d.Realized.HourlySavings != nil {
			c, _ := d.command(d.Realized.Launched)
			events = append(events, happened{d.Ended, func(l *savings.Ledger) { l.Finish(c) }})
		}
		if d.Kind == KindLaunch {
			for _, n := range d.launched() {
				events = append(events, happened{n.At, func(l *savings.Ledger) { l.Launch(n) }})
			}
		}
	}
	slices.SortStableFunc(events, func(a, b happened) int { return a.at.Compare(b.at) })
	var ledger savings.Ledger
	for _, e := range events {
		e.in(&ledger)
	}
	of := ledger.Commands(now)
	for i := range decisions {
		if r := decisions[i].Realized; r != nil && r.HourlySavings != nil {
			dollars := number(of[decisions[i].ID].Dollars)
			r.Saved = &dollars
		}
	}
	return savedOf(&ledger, now)
}

// Recently is how far back lists of decisions reach by default: the night and the day before it.
const Recently = 24 * time.Hour

// Recent returns the decisions of the last day of the recording, without alternatives and prices, and what they have saved together until
// its end.
func (r *Recording) Recent() ([]Decision, Saved) {
	_, end, ok := r.Span()
	if !ok {
		return nil, Account(nil, end)
	}
	decisions, _ := r.Decisions(Selection{From: end.Add(-Recently), Brief: true})
	return decisions, Account(decisions, end)
}

func savedOf(ledger *savings.Ledger, now time.Time) Saved {
	out := Saved{Until: now, NodePools: []PoolSaved{}}
	for _, p := range ledger.Pools(now) {
		out.NodePools = append(out.NodePools, PoolSaved{p.NodePool, number(p.Hourly), number(p.Dollars)})
		out.HourlySavings += number(p.Hourly)
		out.Dollars += number(p.Dollars)
	}
	return out
}

// Account notes on a decision of the recording what it has saved until its end. It reads all decisions since.
func (r *Recording) Account(d *Decision) {
	_, end, _ := r.Span()
	if d.Realized == nil || d.Realized.HourlySavings == nil {
		return
	}
	since, _ := r.Decisions(Selection{From: d.At, Brief: true})
	Account(since, end)
	if i := slices.IndexFunc(since, func(other Decision) bool { return other.ID == d.ID && other.Realized != nil }); i >= 0 {
		d.Realized.Saved = since[i].Realized.Saved
	}
}
