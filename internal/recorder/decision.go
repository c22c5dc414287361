package recorder

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Decision is one decision, for people. Amounts are in $/h.
type Decision struct {
	ID string `json:"id"`
	// Pass is the pass that decided it.
	Pass string    `json:"pass"`
	At   time.Time `json:"at"`
	// Kind is launch, adoption, or the reason of a disruption in lower case. In JSON, kind is that of the document.
	Kind     string `json:"type"`
	NodePool string `json:"nodePool,omitempty"`
	// What was decided, and Why, in a line each.
	What string `json:"what"`
	Why  string `json:"why"`
	// HourlyCost is that of the nodes that are launched, HourlySavings those of the whole decision, both in $/h.
	HourlyCost    number `json:"hourlyCost,omitempty"`
	HourlySavings number `json:"hourlySavings,omitempty"`
	// Evictions is how many pods must move.
	Evictions int `json:"evictions,omitempty"`
	// Removes are the nodes that go, Launches those that come.
	Removes  []NodeRecord   `json:"removes,omitempty"`
	Launches []LaunchRecord `json:"launches,omitempty"`
	// Moves are pods that must move to existing nodes.
	Moves []PlacementRecord `json:"moves,omitempty"`
	// Rule has the numbers that allowed it.
	Rule Rule `json:"rule"`
	// Alternatives that were examined, the chosen one first. MoreAlternatives counts those that are left out.
	Alternatives     []Alternative `json:"alternatives,omitempty"`
	MoreAlternatives int           `json:"moreAlternatives,omitempty"`
	// Prices states where the prices come from, by capacity type; PriceTable has those of the instance types that it is about.
	Prices     []PriceSource `json:"prices,omitempty"`
	PriceTable []PriceRow    `json:"priceTable,omitempty"`
	// Inputs are what it was decided on.
	Inputs Inputs `json:"inputs,omitzero"`
	// Outcome so far, when it was reached, and the Steps by time. They are recorded apart, see Step.
	Outcome Outcome   `json:"outcome,omitempty"`
	Ended   time.Time `json:"ended,omitzero"`
	Steps   []Step    `json:"steps,omitempty"`
	// Realized is what EC2 has given, and what that has saved; null while that is nothing, and where it was not recorded.
	Realized *Realized `json:"realized,omitempty"`
}

// Inputs are what a decision was made on. Replay has them whole, by the ID of the pass.
type Inputs struct {
	// Version is that of the program.
	Version string `json:"version,omitempty"`
	// Nodes and Pods of the cluster, and how many of these wait for a node.
	Nodes   int `json:"nodes"`
	Pods    int `json:"pods"`
	Pending int `json:"pending"`
	// PoolGeneration is that of the NodePool.
	PoolGeneration int64 `json:"poolGeneration,omitempty"`
}

// PriceRow has the offerings of an instance type.
type PriceRow struct {
	InstanceType string            `json:"instanceType"`
	CPU          resource.Quantity `json:"cpu"`
	Memory       resource.Quantity `json:"memory"`
	Offerings    []PriceRecord     `json:"offerings"`
}

// PriceRecord is the price of an offering in $/h. One that is not available states why, as far as that is known.
type PriceRecord struct {
	CapacityType string `json:"capacityType"`
	Zone         string `json:"zone"`
	Price        number `json:"price,omitempty"`
	Unavailable  string `json:"unavailable,omitempty"`
}

// NodeRecord is a node that a decision removes.
type NodeRecord struct {
	Name         string `json:"name"`
	NodeClaim    string `json:"nodeClaim"`
	NodePool     string `json:"nodePool"`
	InstanceType string `json:"instanceType,omitempty"`
	Zone         string `json:"zone,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	// HourlyCost is 0 if it is unknown. Pods are those that must move.
	HourlyCost number   `json:"hourlyCost"`
	Pods       []string `json:"pods,omitempty"`
}

// Rule is what a decision had to obey.
type Rule struct {
	// Text is the rule in words.
	Text                string         `json:"text,omitempty"`
	ConsolidationPolicy string         `json:"consolidationPolicy,omitempty"`
	ConsolidateAfter    string         `json:"consolidateAfter,omitempty"`
	Budgets             []BudgetRecord `json:"budgets,omitempty"`
	// Scores of pools of policy Balanced, which approve from Threshold on.
	Scores    []Score `json:"scores,omitempty"`
	Threshold number  `json:"threshold,omitempty"`
	// Preferences is the policy for preferences of pods.
	Preferences string `json:"preferences,omitempty"`
}

// Score is how a pool of policy Balanced scores a command: its part of the savings over its part of the disruption.
type Score struct {
	VerdictRecord
	// HourlySavings of PoolHourlyCost, in $/h; Disturbed of PoolDisruption, in plain pods.
	HourlySavings  number `json:"hourlySavings"`
	PoolHourlyCost number `json:"poolHourlyCost"`
	Disturbed      number `json:"disturbed"`
	PoolDisruption number `json:"poolDisruption"`
}

// BudgetRecord is how many nodes of a pool the budgets allowed to be disrupted at once, and how many were before the decision.
type BudgetRecord struct {
	NodePool   string `json:"nodePool"`
	Nodes      int    `json:"nodes"`
	Allowed    int    `json:"allowed"`
	Disrupting int    `json:"disrupting"`
	Error      string `json:"error,omitempty"`
}

// Alternative is another way that was examined. HourlyCost and HourlySavings are in $/h.
type Alternative struct {
	What          string `json:"what"`
	HourlyCost    number `json:"hourlyCost,omitempty"`
	HourlySavings number `json:"hourlySavings,omitempty"`
	Evictions     int    `json:"evictions,omitempty"`
	Chosen        bool   `json:"chosen,omitempty"`
	WhyNot        string `json:"whyNot,omitempty"`
}

// maxAlternatives is how many alternatives a decision has: a page shows no more.
const maxAlternatives = 50

// PriceSource states where the prices of a capacity type come from.
type PriceSource struct {
	CapacityType string `json:"capacityType"`
	// Read is when they were read from the cloud; zero if they are built in.
	Read time.Time `json:"read,omitzero"`
}

// Step is one step of the outcome of a decision.
type Step struct {
	Decision string    `json:"decision"`
	At       time.Time `json:"at"`
	// What happened: one of the constants.
	What StepKind `json:"what"`
	// Object that it happened to: a NodeClaim.
	Object  string `json:"object,omitempty"`
	Message string `json:"message,omitempty"`
	// Instance is what EC2 gave, of a step StepLaunched.
	Instance Instance `json:"instance,omitzero"`
}

// Instance is what EC2 gave for a NodeClaim.
type Instance struct {
	NodePool     string `json:"nodePool"`
	InstanceType string `json:"instanceType"`
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
	// HourlyCost is its price in $/h when the launch was recorded; 0 if it was not known then.
	HourlyCost number `json:"hourlyCost,omitempty"`
}

// StepKind is what happened after a decision.
type StepKind string

// The steps.
const (
	StepCreated     StepKind = "created"
	StepLaunched    StepKind = "launched"
	StepRegistered  StepKind = "registered"
	StepInitialized StepKind = "initialized"
	StepFailed      StepKind = "failed"
	StepWaiting     StepKind = "waiting"
	StepValidated   StepKind = "validated again"
	StepStarted     StepKind = "started"
	StepRejected    StepKind = "rejected"
	StepRolledBack  StepKind = "rolled back"
	StepDeleting    StepKind = "deleting"
	StepDrained     StepKind = "drained"
	StepDetached    StepKind = "volumes detached"
	StepTerminated  StepKind = "terminated"
	// StepAdopted and StepFailed are of each instance that a decision adopts.
	StepAdopted StepKind = "adopted"
)
