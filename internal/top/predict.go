package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/bound"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Forecast describes what the engine would do with a cluster. It is computed now and then, so it is older than the Fleet beside it.
type Forecast struct {
	// At is the time of the state that was planned.
	At time.Time `json:"at"`
	// Changes are the planned changes: launches for pending pods, then consolidation in order.
	Changes []Change `json:"changes"`
	// LowerBound holds what no plan for the pods of this cluster can cost less than, in $/h; 0 if it is not known.
	LowerBound float64 `json:"lowerBound"`
	// Notes state what the engine ignored.
	Notes []string `json:"notes"`

	removals map[string]int // change by node
	stays    map[string]stay
	pods     map[types.UID]Outlook
}

// stay states why a node is not removed. Blocked nodes may not be disrupted at all.
type stay struct {
	blocked bool
	why     string
	// summary is why without the names and numbers in it.
	summary string
}

// Kept counts how many nodes stay for one reason.
type Kept struct {
	// Why is in words, without the names and numbers of single nodes.
	Why   string `json:"why"`
	Nodes int    `json:"nodes"`
}

// kept are the reasons why nodes stay that the forecast would not change, those of most nodes first. Nodes that are starting or leaving,
// and those that the search has not come to, count nowhere.
func (f *Fleet) kept(forecast *Forecast) []Kept {
	out, at := []Kept{}, map[string]int{}
	if forecast == nil {
		return out
	}
	for _, n := range f.Nodes {
		stays, known := forecast.stays[n.Name]
		if _, goes := forecast.removals[n.Name]; !known || goes || stays.summary == "" || n.inFlight() || n.leaves() {
			continue
		}
		i, counted := at[stays.summary]
		if !counted {
			i = len(out)
			at[stays.summary] = i
			out = append(out, Kept{Why: stays.summary})
		}
		out[i].Nodes++
	}
	slices.SortFunc(out, func(a, b Kept) int { return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Why, b.Why)) })
	return out
}

// Change is one planned change.
type Change struct {
	// Action is launch, remove or replace; Reason is the reason of the disruption, or what the launch is for.
	Action string `json:"action"`
	Reason string `json:"reason"`
	// Nodes are removed, Launches replace them or are for pending pods.
	Nodes    []string `json:"nodes"`
	Launches []Launch `json:"launches"`
	// Pods counts how many pods move or get a node.
	Pods int `json:"pods"`
	// Progress states how far a change is that has begun, in words; empty for one that is only planned.
	Progress string `json:"progress,omitempty"`
	// HourlySavings in $/h; negative for launches.
	HourlySavings float64 `json:"hourlySavings"`

	// pods are the pods that a launch is for.
	pods []types.UID
}

// Launch is a node that would be launched.
type Launch struct {
	NodePool     string  `json:"nodePool"`
	InstanceType string  `json:"instanceType"`
	CapacityType string  `json:"capacityType"`
	Zone         string  `json:"zone"`
	HourlyCost   float64 `json:"hourlyCost"`
}

// String names the node in words.
func (l Launch) String() string {
	return fmt.Sprintf("%s %s in %s", l.InstanceType, l.CapacityType, l.Zone)
}

// Outlook describes what becomes of a pending pod.
type Outlook struct {
	// Node is an existing node or one in flight on which it fits; else Launch is the node that would be launched for it; else
	// Reasons are why it gets none.
	Node    string   `json:"node"`
	Launch  *Launch  `json:"launch"`
	Reasons []string `json:"reasons"`

	// waits is true if nothing is to be done for the pod: the next plan decides.
	waits bool
}

// String is the outlook in one sentence.
func (o Outlook) String() string {
	switch {
	case o.Node != "":
		return "fits on " + o.Node
	case o.Launch != nil:
		return "gets a new node: " + o.Launch.String()
	}
	return strings.Join(o.Reasons, "; ")
}

// Predict runs the engine on a cluster: pending pods as provisioning would plan them, then one pass of consolidation within
// budgets. At 2,000 nodes it takes seconds. A panic in the engine, which is a bug, becomes an error: the screen goes on.
func Predict(view *inspect.View) (forecast *Forecast, err error) {
	defer func() {
		if caught := recover(); caught != nil {
			forecast, err = nil, fmt.Errorf("planning panicked, which is a bug in Dovetail: %v", caught)
		}
	}()
	return predict(view), nil
}

func predict(of *inspect.View) *Forecast {
	s := of.Snapshot
	out := &Forecast{
		At: s.Now, Changes: []Change{}, Notes: append([]string{}, of.Notes...),
		removals: map[string]int{}, stays: map[string]stay{}, pods: map[types.UID]Outlook{},
	}
	plan := schedule.Solve(s, schedule.DefaultBudget())
	out.addPending(&plan)
	decided, _ := pass.Decide(pass.Input{
		Snapshot: s, Plan: &plan, Work: pass.Ahead(s),
		Settings: pass.Settings{
			Consolidation: consolidate.Settings{MaxSteps: consolidate.DefaultMaxSteps, SpotToSpot: of.Search.SpotToSpot},
			MaxDrift:      pass.ManyDrifted, MaxDriftRejections: pass.ManyRejected,
		},
	})
	for i := range decided.Start {
		out.addCommand(&decided.Start[i].Command)
	}
	for _, stays := range decided.Stay {
		why := stay{why: stays.Message, summary: stays.Summary()}
		switch stays.Reason {
		case disrupt.NodeDoNotDisrupt, disrupt.PodDoNotDisrupt, disrupt.PDB, disrupt.Unplannable, disrupt.NoNodePool,
			disrupt.PodGroupTogether, disrupt.DoNotRepair:
			why.blocked = true
		}
		out.stays[stays.Node.Name] = why
	}
	out.LowerBound = bound.Of(s)
	return out
}

func (f *Forecast) addPending(plan *schedule.Plan) {
	for _, placed := range plan.Placements {
		for _, p := range placed.Pods {
			f.pods[p.UID] = Outlook{Node: placed.Node, Reasons: []string{}}
		}
	}
	for i := range plan.Launches {
		l := launchOf(&plan.Launches[i])
		pods := plan.Launches[i].Pods
		for _, p := range pods {
			f.pods[p.UID] = Outlook{Launch: &l, Reasons: []string{}}
		}
		f.Changes = append(f.Changes, Change{
			Action: "launch", Reason: "pending pods", Nodes: []string{}, Launches: []Launch{l}, Pods: len(pods), HourlySavings: -l.HourlyCost,
			pods: uids(pods),
		})
	}
	for i := range plan.Rejected {
		r := &plan.Rejected[i]
		o := Outlook{Reasons: byMessage(r.Reasons), waits: r.Deferred()}
		f.pods[r.Pod.UID] = o
	}
}

func uids(pods []*corev1.Pod) []types.UID {
	out := make([]types.UID, 0, len(pods))
	for _, p := range pods {
		out = append(out, p.UID)
	}
	return out
}

// byMessage are reasons in words. NodePools that exclude the pod by the same rule share a sentence.
func byMessage(reasons []rejection.Reason) []string {
	pools, messages := map[string][]string{}, []string{}
	for _, r := range reasons {
		message := wording.Reason(r)
		if pools[message] == nil {
			messages = append(messages, message)
			pools[message] = []string{}
		}
		if r.NodePool != "" {
			pools[message] = append(pools[message], r.NodePool)
		}
	}
	out := make([]string, 0, len(messages))
	for _, message := range messages {
		switch named := pools[message]; len(named) {
		case 0:
			out = append(out, message)
		case 1:
			out = append(out, "NodePool "+named[0]+": "+message)
		default:
			last := len(named) - 1
			out = append(out, "NodePools "+strings.Join(named[:last], ", ")+" and "+named[last]+": "+message)
		}
	}
	return out
}

func launchOf(l *schedule.Launch) Launch {
	out := Launch{Zone: l.Offering.Zone, CapacityType: l.Offering.CapacityType, HourlyCost: l.Offering.Price}
	if l.Pool != nil {
		out.NodePool = l.Pool.Name
	}
	if len(l.InstanceTypes) > 0 {
		out.InstanceType = l.InstanceTypes[0].Name
	}
	return out
}

func (f *Forecast) addCommand(c *disrupt.Command) {
	change := Change{
		Action: "remove", Reason: strings.ToLower(string(c.Reason)), Nodes: []string{}, Launches: []Launch{}, HourlySavings: c.Savings,
	}
	for _, candidate := range c.Candidates {
		change.Nodes = append(change.Nodes, candidate.Node.Name)
		change.Pods += len(candidate.Pods)
		f.removals[candidate.Node.Name] = len(f.Changes)
	}
	for i := range c.Plan.Launches {
		change.Action = "replace"
		change.Launches = append(change.Launches, launchOf(&c.Plan.Launches[i]))
	}
	f.Changes = append(f.Changes, change)
}

// Spend describes what the nodes cost, in $/h: HourlyCost now.
type Spend struct {
	HourlyCost float64 `json:"hourlyCost"`
	// PlannedHourlyCost is that after the planned changes; null before the first forecast.
	PlannedHourlyCost *float64 `json:"plannedHourlyCost"`
	// LowerBound holds what no plan can cost less than; null if it is not known.
	LowerBound *float64 `json:"lowerBound"`
	// Unpriced counts how many nodes have no known price. They count as 0.
	Unpriced int `json:"unpriced"`
	// Prices states where prices come from.
	Prices string `json:"prices"`
	// PricesProblem states why they are not those that were requested, or not all of them.
	PricesProblem string `json:"pricesProblem,omitempty"`
}

// spend sums up the nodes. The forecast may be nil.
func (f *Fleet) spend(forecast *Forecast, o *Observed) Spend {
	out := Spend{Prices: o.Prices, PricesProblem: o.PricesProblem}
	for _, n := range f.Nodes {
		if n.Unpriced() {
			out.Unpriced++
		}
		out.HourlyCost += n.price()
	}
	if forecast == nil {
		return out
	}
	after := out.HourlyCost
	for _, c := range f.next(forecast) {
		after -= c.HourlySavings
	}
	out.PlannedHourlyCost = &after
	if forecast.LowerBound > 0 {
		least := forecast.LowerBound + f.Unmanaged()
		out.LowerBound = &least
	}
	return out
}

// Unpriced reports whether the node costs something, and it is not known what.
func (n *Node) Unpriced() bool {
	return n.HourlyCost == nil && (n.node != nil || n.InstanceType != "" || condition.IsTrue(n.claim, karpv1.ConditionLaunched))
}

// Unmanaged returns what nodes without a NodeClaim cost, which LowerBound leaves out, in $/h.
func (f *Fleet) Unmanaged() (sum float64) {
	for _, n := range f.Nodes {
		if n.claim == nil {
			sum += n.price()
		}
	}
	return sum
}

// with is the fleet with the states and reasons of a forecast, which may be nil.
func (f *Fleet) with(forecast *Forecast) *Fleet {
	if forecast == nil {
		return f
	}
	out := *f
	out.Nodes, out.byName = make([]*Node, len(f.Nodes)), make(map[string]*Node, len(f.Nodes))
	for i, n := range f.Nodes {
		clone := *n
		clone.foresee(forecast)
		out.Nodes[i] = &clone
		if f.byName[n.Name] == n {
			out.byName[n.Name] = &clone
		}
	}
	return &out
}

// foresee adds what a forecast states about a node that is neither new nor leaving.
func (n *Node) foresee(forecast *Forecast) {
	if n.State == Draining || n.State == InFlight || n.State == NotReady {
		return
	}
	if i, goes := forecast.removals[n.Name]; goes && n.State != Planned {
		c := &forecast.Changes[i]
		n.Why = c.words()
		if n.State != Drifted || c.Reason != strings.ToLower(string(karpv1.DisruptionDrifted)) {
			n.State = Planned
		}
		return
	}
	kept, known := forecast.stays[n.Name]
	if !known {
		return
	}
	switch {
	case kept.blocked && n.State == Steady:
		n.State, n.Why = Blocked, kept.why
	case kept.blocked && n.State == Drifted: // both matter: it will be replaced, and not before what keeps it is gone
		n.Why += "; stays, since " + kept.why
	case n.State == Steady:
		n.Why = kept.why
	}
}

// words is the change in one sentence.
func (c Change) words() string {
	var into []string
	for _, l := range c.Launches {
		into = append(into, l.String())
	}
	moves := ""
	if c.Pods > 0 {
		moves = report.Plural(c.Pods, "pod") + " moved"
	}
	text := map[string]string{
		"launch": "launch for pending pods", "remove": "removed: " + c.Reason, "replace": "replaced: " + c.Reason,
	}[c.Action]
	if len(into) > 0 {
		text += ", by " + strings.Join(into, " and ")
	}
	if moves != "" {
		text += ", " + moves
	}
	return text + fmt.Sprintf(", saves %s", dollars(c.HourlySavings))
}
