package assess

import (
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/attribution"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Report describes what a cluster costs, and what it would cost. Costs are in $/h unless the name states otherwise.
type Report struct {
	// TakenAt is the time when the cluster was read.
	TakenAt time.Time `json:"takenAt"`
	// Cluster names it, empty if its name is not known.
	Cluster string `json:"cluster"`
	// Prices states where the prices come from, and how old they are.
	Prices string `json:"prices"`
	// PricesProblem states why they are not those that were requested, or not all of them.
	PricesProblem string `json:"pricesProblem,omitempty"`
	// Now holds what the cluster has. Pending are the nodes that its pending pods get first, no matter who runs the autoscaler.
	Now     Fleet   `json:"now"`
	Pending Pending `json:"pending"`
	// Consolidatable counts the nodes of NodePools: consolidation can change only these. NodeGroups is true if the outcomes Repacked and
	// LowerBound are for the pods of the other nodes, too.
	Consolidatable int  `json:"consolidatable"`
	NodeGroups     bool `json:"nodeGroups"`
	// Outcomes holds what the same pods cost otherwise, in the order of Outcome's names.
	Outcomes []Outcome `json:"outcomes"`
	// Moves lead to the outcome Consolidated, in order.
	Moves []Move `json:"moves"`
	// Gate is the feature gate that saves more beyond Consolidated; nil if none does, or the only one is on.
	Gate *Gate `json:"gate,omitempty"`
	// Guards holds what keeps consolidation from saving more.
	Guards []Guard `json:"guards"`
	// Rules holds what constraints of pods and pools cost, those that cost most first.
	Rules []Rule `json:"rules"`
	// Kept are the nodes that consolidation keeps, by reason.
	Kept []Kept `json:"kept"`
	// Usage holds what pods request and use; nil if no metrics-server answers.
	Usage *Usage `json:"usage,omitempty"`
	// Doctor holds what the doctor finds; nil if it was not run.
	Doctor *Doctor `json:"doctor,omitempty"`
	// Search are the bounds of the searches behind all this.
	Search Search `json:"search"`
	// Notes are for people: what was ignored, and what is not known.
	Notes []string `json:"notes"`
}

// Fleet is nodes and what they cost.
type Fleet struct {
	Nodes       int     `json:"nodes"`
	Pods        int     `json:"pods"`
	HourlyCost  float64 `json:"hourlyCost"`
	MonthlyCost float64 `json:"monthlyCost"`
	// ByPool has the nodes of a NodePool or of a node group, ByType those of an instance type.
	ByPool         []Part `json:"byPool"`
	ByInstanceType []Part `json:"byInstanceType"`
	ByCapacityType []Part `json:"byCapacityType"`
	// Requested are the shares of what the nodes have that pods request, from 0 to 1.
	RequestedCPU    float64 `json:"requestedCPU"`
	RequestedMemory float64 `json:"requestedMemory"`
	// Unpriced are the nodes without a known price. They count as nothing, here and in all outcomes.
	Unpriced []Unpriced `json:"unpriced"`
}

// Part is some of the nodes.
type Part struct {
	Name string `json:"name"`
	// Managed is true for a NodePool: what it has can be consolidated. Others are node groups.
	Managed     bool    `json:"managed"`
	Nodes       int     `json:"nodes"`
	HourlyCost  float64 `json:"hourlyCost"`
	MonthlyCost float64 `json:"monthlyCost"`
	// RequestedCPU and RequestedMemory are shares of the allocatable amounts, from 0 to 1.
	RequestedCPU    float64 `json:"requestedCPU"`
	RequestedMemory float64 `json:"requestedMemory"`
	// Unpriced counts the nodes without a known price.
	Unpriced int `json:"unpriced"`
}

// Unpriced is a node without a known price.
type Unpriced struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

// Pending are the pods that wait for a node.
type Pending struct {
	Pods int `json:"pods"`
	// Nodes are the nodes to launch for them, and what these cost.
	Nodes      int     `json:"nodes"`
	HourlyCost float64 `json:"hourlyCost"`
	// Unschedulable counts the pods that get no node. They count nowhere else.
	Unschedulable int `json:"unschedulable"`
	// DeletedNodes are the nodes that are being deleted, and what these cost. Their pods are pending, too.
	DeletedNodes      int     `json:"deletedNodes"`
	DeletedHourlyCost float64 `json:"deletedHourlyCost"`
}

// The names of outcomes.
const (
	// Consolidated states where consolidation finishes, within all budgets, PodDisruptionBudgets, do-not-disrupt and consolidation policies.
	Consolidated = "consolidated"
	// Unguarded states where it finishes without these.
	Unguarded = "unguarded"
	// Repacked are new nodes for all pods of NodePools that launch for pods, planned at once.
	Repacked = "repacked"
	// LowerBound states what no plan can beat.
	LowerBound = "lowerBound"
)

// Outcome describes what the same pods cost otherwise.
type Outcome struct {
	Name        string  `json:"name"`
	HourlyCost  float64 `json:"hourlyCost"`
	MonthlyCost float64 `json:"monthlyCost"`
	// Savings are compared with the nodes now and those for the pending pods, without those that are being deleted.
	HourlySavings  float64 `json:"hourlySavings"`
	MonthlySavings float64 `json:"monthlySavings"`
	// Nodes is zero for the lower bound, which has none. Moves and Evictions are zero where nothing moves pod by pod.
	Nodes     int `json:"nodes"`
	Moves     int `json:"moves"`
	Evictions int `json:"evictions"`
	// Cut is true if the search was stopped early: more can be saved.
	Cut bool `json:"cut"`
}

// Move is one command: nodes that go together, and what takes their pods.
type Move struct {
	// Pass counts from 1; the commands of a pass start together. AfterSeconds is when it starts, from now, if each pass takes its
	// usual time.
	Pass         int     `json:"pass"`
	AfterSeconds float64 `json:"afterSeconds"`
	Reason       string  `json:"reason"`
	Removed      []Node  `json:"removed"`
	Launched     []Node  `json:"launched"`
	// ToExisting counts the pods that move to nodes that stay, Evictions all pods that move.
	ToExisting     int     `json:"toExisting"`
	Evictions      int     `json:"evictions"`
	HourlySavings  float64 `json:"hourlySavings"`
	MonthlySavings float64 `json:"monthlySavings"`
}

// Node is a node that goes or comes.
type Node struct {
	// Name is empty for a node that does not exist yet.
	Name         string  `json:"name"`
	NodePool     string  `json:"nodePool"`
	InstanceType string  `json:"instanceType"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	HourlyCost   float64 `json:"hourlyCost"`
	// Pods counts those that move from it, or to it.
	Pods int `json:"pods"`
}

// Search are the bounds of the searches. Steps do not depend on the speed of the computer; zero means no bound.
type Search struct {
	// LeastShare and LeastSaved stop the passes towards an outcome: when one saves less than LeastShare of what those before it saved
	// on average, and less than LeastSaved of what the nodes cost.
	LeastShare float64 `json:"leastShare"`
	LeastSaved float64 `json:"leastSaved"`
	// MaxPasses and OutcomeSteps stop those towards Consolidated, too, MaxPasses and FreeSteps those towards any other outcome: see
	// Outcome.Cut.
	MaxPasses    int `json:"maxPasses"`
	OutcomeSteps int `json:"outcomeSteps"`
	FreeSteps    int `json:"freeSteps"`
	// RuleSteps bounds the measurement of Rules; UnmeasuredRules are those that it did not reach.
	RuleSteps       int      `json:"ruleSteps"`
	UnmeasuredRules []string `json:"unmeasuredRules"`
}

// Gate is a feature gate that is off, and where consolidation finishes with it.
type Gate struct {
	Name string `json:"name"`
	// HourlyCost is that of all nodes in the end. Savings are compared with the outcome Consolidated.
	HourlyCost     float64 `json:"hourlyCost"`
	MonthlyCost    float64 `json:"monthlyCost"`
	HourlySavings  float64 `json:"hourlySavings"`
	MonthlySavings float64 `json:"monthlySavings"`
	Nodes          int     `json:"nodes"`
	// Cut is true if the search was stopped early: more can be saved.
	Cut bool `json:"cut"`
}

// Guard is a protection against disruption, and what it costs.
type Guard struct {
	Name string `json:"name"`
	// HourlyCost states how much less the nodes would cost in the end without it alone.
	HourlyCost  float64 `json:"hourlyCost"`
	MonthlyCost float64 `json:"monthlyCost"`
	// Cut is true if a search behind the cost was stopped early: the cost is then rough.
	Cut bool `json:"cut"`
	// Nodes counts how many it blocks now, by the objects that do it. Budgets that allow something block none: they bound how many nodes
	// change at once, so that sets that only pay together are not replaced.
	Nodes   int           `json:"nodes"`
	Objects []GuardObject `json:"objects"`
}

// GuardObject is an object that blocks nodes.
type GuardObject struct {
	Object string `json:"object"`
	Nodes  int    `json:"nodes"`
	// HourlyCost holds what the blocked nodes cost, all of it: consolidation might keep some of them anyway.
	HourlyCost float64 `json:"hourlyCost"`
}

// Rule is a constraint, and what it costs.
type Rule struct {
	// Rule is a sort of constraint of package attribution, Limits, or the key of a requirement of a NodePool.
	Rule string `json:"rule"`
	// Owner is the workload or NodePool that has it; empty for all together.
	Owner       string  `json:"owner"`
	HourlyCost  float64 `json:"hourlyCost"`
	MonthlyCost float64 `json:"monthlyCost"`
	// Unmeasured counts further owners that were not measured one by one.
	Unmeasured int `json:"unmeasured"`
}

// Limits is the rule of a NodePool's spec.limits.
const Limits = "limits"

// Kept counts how many nodes stay for one reason.
type Kept struct {
	Reason      string  `json:"reason"`
	Nodes       int     `json:"nodes"`
	HourlyCost  float64 `json:"hourlyCost"`
	MonthlyCost float64 `json:"monthlyCost"`
	// Example is one of the nodes, with the reason in full.
	Example string `json:"example"`
	// node is the name of that node; plain is true if the reason in full is Reason.
	node  string
	plain bool
}

// Outcome returns the outcome of a name.
func (r *Report) Outcome(name string) Outcome {
	for _, o := range r.Outcomes {
		if o.Name == name {
			return o
		}
	}
	return Outcome{Name: name}
}

// begun describes what has begun: nodes for pending pods, and nodes that are being deleted; empty if nothing has.
func (r *Report) begun() (title string, nodes int) {
	p := &r.Pending
	switch {
	case p.Nodes > 0 && p.DeletedNodes > 0:
		title = "With nodes for " + report.Count(p.Pods, "pending pod") + ", without deleted ones"
	case p.Nodes > 0:
		title = "With nodes for " + report.Count(p.Pods, "pending pod")
	case p.DeletedNodes > 0:
		title = "Without nodes that are being deleted"
	}
	return title, r.Now.Nodes + p.Nodes - p.DeletedNodes
}

// comparableOutcomes returns those that can differ from now. Without nodes of NodePools, consolidation does nothing, and if those of node
// groups stay, no outcome differs.
func (r *Report) comparableOutcomes() []Outcome {
	var out []Outcome
	for _, o := range r.Outcomes {
		ofPlans := o.Name == Repacked || o.Name == LowerBound
		if r.Consolidatable > 0 || r.Pending.Nodes > 0 || ofPlans && r.NodeGroups {
			out = append(out, o)
		}
	}
	return out
}

// comparable returns what the outcomes are compared with, in $/h.
func (r *Report) comparable() float64 {
	return r.Now.HourlyCost + r.Pending.HourlyCost - r.Pending.DeletedHourlyCost
}

func monthly(hourly float64) float64 { return report.HoursPerMonth * hourly }

// leastCost is the least cost that is reported, in $/h.
const leastCost = attribution.LeastCost
