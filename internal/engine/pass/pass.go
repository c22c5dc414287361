// Package pass decides what a pass over a cluster does with its nodes, as a pure function over a Snapshot: which nodes go, in which order,
// and why the others stay.
//
// The controller performs what Decide returns. Commands that read a cluster, shadow mode and the replay of recordings call the same
// function, with a Memory of their own or none.
package pass

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Work is what a pass looks for, one or more of the constants.
type Work uint

// The kinds of work. Order has the order in which a pass does them.
const (
	// Repair finds the next unhealthy node to reboot or replace.
	Repair Work = 1 << iota
	// Due validates the proposals of the Memory that are due, and starts the valid ones.
	Due
	// Empty finds nodes without pods.
	Empty
	// Replicas finds drifted nodes of static pools to replace.
	Replicas
	// Drift finds drifted nodes of the other pools to replace.
	Drift
	// Expire finds nodes to replace since their expireAfter comes near.
	Expire
	// Savings finds nodes that cost more than what would replace them.
	Savings

	// held is the part of Drift and Expire that comes before Due: see Order. It is no work of its own.
	held

	// ahead is the work that commands show, which have no Memory, without Expire.
	ahead = Empty | Drift | Savings
)

// Ahead is the work on a Snapshot that commands show, which have no Memory.
func Ahead(s *snapshot.Snapshot) Work {
	if disrupt.ExpirationsOf(s) != nil {
		return ahead | Expire
	}
	return ahead
}

// Input is all that a pass depends on. It is not changed.
type Input struct {
	// Snapshot has the clock, Now.
	Snapshot *snapshot.Snapshot
	// Problem is that of the Snapshot, if the caller has it. It is as before when Decide returns.
	Problem *schedule.Problem
	// Plan is a plan for the pending pods of the Snapshot: the nodes that take them stay. Nil if there is none.
	Plan     *plan.Plan
	Work     Work
	Memory   Memory
	Facts    Facts
	Settings Settings
	// Resting leaves the search for savings out, for now. Whether anything has changed since the last search is looked at all the same.
	Resting bool
	// Interrupt stops the search for savings as soon as it is true; nil never does. It is called before each simulation of the search.
	Interrupt func() bool
	// Step is called as a kind of work begins, and with 0 when it is done; nil if the caller does not measure time.
	Step func(Work)
}

// Facts are what a pass depends on besides the Snapshot.
type Facts struct {
	// Rooms is the room of static pools in capacity reservations, by the name of the pool. A pool that is not in it has no reservations.
	Rooms map[string]Room `json:"rooms,omitempty"`
	// Limits state how many replacements may start. A pool and reason that are not in it have no limit.
	Limits []StartLimit `json:"limits,omitempty"`
	// Paused are the NodePools of which only empty nodes are deleted, since more would have been deleted than their blast radius allows.
	Paused []string `json:"paused,omitempty"`
}

// StartLimit is how many replacements of nodes of a pool may start for a reason now, since others have failed or have not shown yet that
// they stay ready.
type StartLimit struct {
	NodePool string                  `json:"nodePool"`
	Reason   karpv1.DisruptionReason `json:"reason"`
	Starts   int                     `json:"starts"`
	Why      string                  `json:"why"`
	// Zones counts the new nodes of a roll-out with canaries by zone: drifted nodes in zones with few are replaced first.
	Zones map[string]int `json:"zones,omitempty"`
}

const (
	// MaxSimulations is how many drifted nodes, and how many unhealthy ones, a pass of the controller tries with pods that fit nowhere. Each
	// takes a scheduling simulation, and the nodes that failed come last in the next pass.
	MaxSimulations = 50
	// ValidationDelay is how long a command that saves money must stay valid before it starts. It is Karpenter's.
	ValidationDelay = 15 * time.Second
	// ManyDrifted and ManyRejected are bounds for commands that show what passes would do: what changes beyond them is in the next passes.
	ManyDrifted, ManyRejected = 10, 5
)

// Settings are those of the controller, and bounds.
type Settings struct {
	Consolidation consolidate.Settings `json:"consolidation"`
	// Validate is true for a pass of the controller: what saves money is proposed, and must stay valid for ValidationDelay. Once a command
	// starts, what a later step would find on the same Snapshot is left to the next pass. If it is false, Decide shows at once what the
	// next passes would do.
	Validate        bool          `json:"validate,omitempty"`
	ValidationDelay time.Duration `json:"validationDelay,omitempty"`
	// MaxDrift is how many drifted nodes are replaced at most, MaxDriftRejections after how many that cannot be replaced the search for
	// them stops. Each takes a simulation.
	MaxDrift           int `json:"maxDrift,omitempty"`
	MaxDriftRejections int `json:"maxDriftRejections,omitempty"`
	// Reboots lets policies reboot nodes; else they are replaced. TerminateFirstDrift and TerminateFirstRepair let nodes go before their
	// replacements come, where these cannot come first.
	Reboots              bool `json:"reboots,omitempty"`
	TerminateFirstDrift  bool `json:"terminateFirstDrift,omitempty"`
	TerminateFirstRepair bool `json:"terminateFirstRepair,omitempty"`
}

// Decision is a command, and what the budgets left to it.
type Decision struct {
	disrupt.Command
	// Allowances are of the budgets for the reason of the command, before the command uses them.
	Allowances []disrupt.Allowance
	// Validated is true if the command was proposed, and is still valid.
	Validated bool
}

// Decisions are what a pass decides.
type Decisions struct {
	// View is the Snapshot with its nodes classified.
	View *disrupt.View
	// Start are the commands, in the order in which they are performed. Each is right by itself, as far as budgets allow at once.
	Start []Decision
	// Propose are commands that are to start once they have stayed valid. The Memory has them, in the same order, as its last proposals.
	Propose []Decision
	// Dropped are proposals that are no longer valid.
	Dropped []Dropped
	// Withheld are valid commands that do not start, since replacements in one of their pools pause.
	Withheld []Withheld
	// Stay are nodes that stay, and why. Nodes that the search did not come to are not in it.
	Stay []Stay
	// Limits are those of the pools with nodes that were to be replaced, each once. Why is empty where replacements may start.
	Limits []StartLimit
	// Found is the search for savings; nil if there was none.
	Found *consolidate.Result
	// Budgets are what the budgets allow, by reason, before any command of the pass.
	Budgets map[karpv1.DisruptionReason][]disrupt.Allowance
	// Costs are what the nodes of pools cost, in $/h, Unpriced how many nodes of them have no known price.
	Costs    map[string]float64
	Unpriced map[string]int
	Stats    Stats
	// Wake is the first instant at which time alone changes the result; zero if the pass has something to do.
	Wake time.Time
}

// Commands are those of Start.
func (d *Decisions) Commands() []disrupt.Command {
	out := make([]disrupt.Command, len(d.Start))
	for i := range d.Start {
		out[i] = d.Start[i].Command
	}
	return out
}

// Idle reports whether the pass did nothing but look at the Snapshot: no command, no simulation, and nothing to report of a node but what
// protects it.
func (d *Decisions) Idle() bool {
	return len(d.Start)+len(d.Propose)+len(d.Dropped)+len(d.Withheld) == 0 && d.Found == nil && d.Stats.InterruptedAt == 0 &&
		!slices.ContainsFunc(d.Stay, func(k Stay) bool { return k.By&(Repair|Replicas|Drift|Expire) != 0 })
}

// Stats are measures of a pass.
type Stats struct {
	// Ran is the work that was done.
	Ran Work
	// Unhealthy, Empty, Drifted and Expiring count the nodes that each work could choose from.
	Unhealthy, Empty, Drifted, Expiring int
	// Searched is how many candidates the search for savings had.
	Searched int
	// Postponed is true if the search was left out because many pods need nodes.
	Postponed bool
	// InterruptedAt is the number of the call of Input.Interrupt that stopped the search; 0 if none did.
	InterruptedAt int
}

// Dropped is a proposal that is no longer valid, or as much of it.
type Dropped struct {
	Proposal Proposal
	// Part is true if other nodes of the command go all the same. Nodes is how many do not.
	Part  bool
	Nodes int
	Why   *consolidate.Invalid
}

// Withheld is a command that does not start, and why.
type Withheld struct {
	Command disrupt.Command
	Why     string
}

// Stay is a node that stays.
type Stay struct {
	Node        *snapshot.Node
	disrupt.Why // empty if the search did not come to the node
	// By is the work that found it; 0 if the node is protected from all of it.
	By Work
	// Pool is the node's, where By is Repair. Breaker is set if too many nodes are unhealthy.
	Pool    *karpv1.NodePool
	Breaker *repair.Block
}

// Decide decides what a pass does with the nodes of a Snapshot. It costs a classification of the nodes; a simulation per drifted or
// unhealthy node that is tried; a few per proposal that is due; and for Savings, up to Settings.Consolidation.MaxSteps.
func Decide(in Input) (Decisions, Memory) {
	d := newDecider(in)
	for _, place := range Order() {
		if in.Work&place.Work != 0 || place.Work == held {
			d.run(place.Work)
		}
	}
	// Drift may replace a node that its pods protect from everything else.
	d.out.Stay = slices.DeleteFunc(d.out.Stay, func(k Stay) bool { return k.By == 0 && d.taken[k.Node.ClaimUID] })
	d.memory.Backoff = d.backoff.Record()
	d.out.Wake = d.wake()
	return d.out, d.memory
}

// decider decides one pass.
type decider struct {
	Input
	view    *disrupt.View
	memory  Memory
	backoff *disrupt.DriftBackoff
	// budgets are what the budgets still allow, by reason.
	budgets map[karpv1.DisruptionReason]*disrupt.RemainingBudgets
	// taken are the claims of commands and proposals.
	taken map[types.UID]bool
	// limits are what is left of Facts.Limits.
	limits []StartLimit
	// settled is true if the last search found nothing in the view as it is now.
	settled bool
	out     Decisions
}

func newDecider(in Input) *decider {
	d := &decider{
		Input: in, memory: in.Memory, backoff: disrupt.FromRecord(in.Memory.Backoff),
		budgets: map[karpv1.DisruptionReason]*disrupt.RemainingBudgets{}, taken: map[types.UID]bool{}, limits: slices.Clone(in.Facts.Limits),
	}
	d.Snapshot = nominated(in.Snapshot, in.Plan) // on which the Problem does not depend
	d.view = disrupt.NewView(d.Snapshot)
	d.memory.forget(d.view)
	d.backoff.Prune(d.view)
	d.out = Decisions{View: d.view, Budgets: map[karpv1.DisruptionReason][]disrupt.Allowance{}}
	d.readBudgets()
	d.out.Costs, d.out.Unpriced = d.memory.Prices.Update(d.view)
	for _, b := range d.view.BlockedNodes {
		d.stay(Stay{Node: b.Node, Why: b.Why})
	}
	return d
}

// readBudgets reads what budgets allow before any command of the pass.
func (d *decider) readBudgets() {
	for _, reason := range karpv1.DisruptionReasons() {
		allowances := disrupt.Allowances(d.Snapshot, reason)
		for i := range allowances {
			if reason != karpv1.DisruptionEmpty && slices.Contains(d.Facts.Paused, allowances[i].Pool.Name) {
				allowances[i].Allowed = 0
			}
		}
		d.out.Budgets[reason] = allowances
	}
	if allowances := d.view.ExpiryAllowances(d.out.Budgets); allowances != nil {
		for i := range allowances {
			if slices.Contains(d.Facts.Paused, allowances[i].Pool.Name) {
				allowances[i].Allowed = 0
			}
		}
		d.out.Budgets[karpv1.DisruptionExpired] = allowances
	}
	for reason, allowances := range d.out.Budgets {
		d.budgets[reason] = d.view.RemainingBudgets(allowances)
	}
}

func (d *decider) stay(s Stay) { d.out.Stay = append(d.out.Stay, s) }

// begin notes that work begins, and returns the function that notes its end.
func (d *decider) begin(w Work) (end func()) {
	d.out.Stats.Ran |= w
	if d.Step == nil {
		return func() {}
	}
	d.Step(w)
	return func() { d.Step(0) }
}

// free returns the candidates that no command has taken, and without a replacement that was rejected lately.
func (d *decider) free(candidates []*disrupt.Candidate) []*disrupt.Candidate {
	return slices.DeleteFunc(slices.Clone(candidates), func(c *disrupt.Candidate) bool {
		return d.taken[c.Node.ClaimUID] || d.Snapshot.Now.Before(d.memory.Refused[c.Node.ClaimUID].Until)
	})
}

// take counts candidates against the budgets of all reasons, and excludes them from other commands of this pass.
func (d *decider) take(candidates []*disrupt.Candidate) {
	for _, room := range d.budgets {
		room.Use(candidates)
	}
	for _, c := range candidates {
		d.taken[c.Node.ClaimUID] = true
	}
}

// decision is a command with nodes that are not taken yet.
func (d *decider) decision(c *disrupt.Command) Decision {
	return Decision{Command: *c, Allowances: d.budgets[c.Reason].Allowances()}
}

// start takes the nodes of a command and starts it, unless replacements in one of its pools pause.
func (d *decider) start(c *disrupt.Command) {
	decision := d.decision(c)
	d.take(c.Candidates)
	d.startTaken(decision)
}

// startTaken is start for a command with nodes that are taken.
func (d *decider) startTaken(c Decision) {
	if why := d.withheld(&c.Command); why != "" {
		d.out.Withheld = append(d.out.Withheld, Withheld{c.Command, why})
		return
	}
	d.out.Start = append(d.out.Start, c)
}

// moved reports whether a command uses or removes capacity which the Snapshot still shows as free, so that the rest is left to the next
// pass.
func (d *decider) moved() bool { return d.Settings.Validate && len(d.out.Start) > 0 }

// problem compiles the Snapshot at the first use.
func (d *decider) problem() *schedule.Problem {
	if d.Problem == nil {
		d.Problem = consolidate.Compile(d.Snapshot)
	}
	return d.Problem
}

// nominated is the Snapshot with the nodes nominated that take pods of the plan.
func nominated(s *snapshot.Snapshot, of *plan.Plan) *snapshot.Snapshot {
	if of == nil || len(of.Placements) == 0 {
		return s
	}
	takes := map[string]bool{}
	for i := range of.Placements {
		takes[of.Placements[i].Node] = true
	}
	out := *s
	out.Nodes = slices.Clone(s.Nodes)
	for i := range out.Nodes {
		if n := &out.Nodes[i]; takes[n.Name] {
			n.NominatedUntil = s.Now.Add(time.Minute) // any time after now: no time passes here
		}
	}
	return &out
}
