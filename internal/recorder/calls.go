package recorder

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/replace"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// PassKind is the loop that a pass is of.
type PassKind string

// The kinds of passes.
const (
	Provisioning PassKind = "provisioning"
	Disruption   PassKind = "disruption"
)

// The calls of the engine, in the order of a pass. Each has an input, besides the Snapshot and the calls before it, and a result.
const (
	// CallSolve plans the pending pods: SolveInput, PlanRecord.
	CallSolve = "solve"
	// CallBuffers plans the capacity of capacity buffers: Exclusion, BuffersRecord.
	CallBuffers = "buffers"
	// CallTake counts nodes against the budgets: their claims, no result. It follows what the pass did.
	CallTake = "take"
	// CallRepair evaluates the repair of a node: RepairInput, OutcomeRecord.
	CallRepair = "repair"
	// CallConfirm checks that nodes are still empty and within the budgets: their claims, those that are.
	CallConfirm = "confirm"
	// CallRecheck validates a command that an earlier pass found, beside those that are validated before it: RecheckInput,
	// OutcomeRecord.
	CallRecheck = "recheck"
	// CallEmpty finds empty nodes within the budgets: no input, their claims.
	CallEmpty = "empty"
	// CallStatic finds drifted nodes of static pools: disrupt.BackoffRecord, []StaticRecord.
	CallStatic = "static"
	// CallRefill decides whether a node of a static pool is terminated first: RefillInput, OutcomeRecord.
	CallRefill = "refill"
	// CallDrift finds the next drifted node to replace: DriftInput, DriftRecord.
	CallDrift = "drift"
	// CallFind searches for nodes to consolidate: FindInput, FindRecord.
	CallFind = "find"
)

// Exclusion names pods and DaemonSets that were left out of a Snapshot, since planning with them fails.
type Exclusion struct {
	Pods       []string `json:"pods,omitempty"`       // UIDs
	DaemonSets []string `json:"daemonSets,omitempty"` // namespace/name
	Message    string   `json:"message,omitempty"`
}

// SolveInput states how the plan was computed.
type SolveInput struct {
	// Validated is true if launches that violate a rule were withheld.
	Validated bool `json:"validated,omitempty"`
}

// PlanRecord is a plan as plain data.
type PlanRecord struct {
	Launches   []LaunchRecord    `json:"launches,omitempty"`
	Placements []PlacementRecord `json:"placements,omitempty"`
	Rejected   []RejectionRecord `json:"rejected,omitempty"`
}

// LaunchRecord is a NodeClaim that a plan creates.
type LaunchRecord struct {
	NodePool string `json:"nodePool"`
	// InstanceTypes are all that the claim may become, cheapest first. Type, zone, capacity type and HourlyCost are those of
	// the cheapest offering.
	InstanceTypes []string             `json:"instanceTypes"`
	Zone          string               `json:"zone"`
	CapacityType  string               `json:"capacityType"`
	HourlyCost    number               `json:"hourlyCost"`
	Requirements  []karpv1.Requirement `json:"requirements"`
	Requests      corev1.ResourceList  `json:"requests"`
	Pods          []string             `json:"pods"`
	Drivers       []string             `json:"drivers,omitempty"`
	Relaxed       bool                 `json:"minValuesRelaxed,omitempty"`
}

// PlacementRecord are pods that a plan puts on an existing node.
type PlacementRecord struct {
	Node string   `json:"node"`
	Pods []string `json:"pods"`
}

// RejectionRecord is a pod that a plan leaves pending.
type RejectionRecord struct {
	Pod string `json:"pod"`
	// Codes are the reasons, each with its pool; Message is the first in words.
	Codes   []string `json:"codes"`
	Message string   `json:"message,omitempty"`
	// Rule is the first as data; nil if the code states all, and in recordings of versions before it existed.
	Rule *rejection.Rule `json:"rule,omitempty"`
}

// BuffersRecord is the capacity of capacity buffers.
type BuffersRecord struct {
	Nodes    map[string]int `json:"nodes,omitempty"`
	Launches []LaunchRecord `json:"launches,omitempty"`
}

// RepairInput is a node that is due for repair.
type RepairInput struct {
	Claim string `json:"claim"`
	// Reboots is true if nodes may be rebooted, Freed if they may be terminated before their replacements come.
	Reboots bool `json:"reboots,omitempty"`
	Freed   bool `json:"freed,omitempty"`
}

// RecheckInput is a command that an earlier pass found.
type RecheckInput struct {
	ID string `json:"id"`
	// Claims are the nodes of it that are left.
	Claims []string `json:"claims"`
	// SpotToSpot is the feature gate SpotToSpotConsolidation.
	SpotToSpot bool `json:"spotToSpot,omitempty"`
}

// OutcomeRecord is a command, or why there is none.
type OutcomeRecord struct {
	Command *CommandRecord `json:"command,omitempty"`
	Why     string         `json:"why,omitempty"`
}

// StaticRecord are drifted nodes of a static pool.
type StaticRecord struct {
	NodePool string   `json:"nodePool"`
	Claims   []string `json:"claims"`
}

// RefillInput is a node of a static pool, and what its pool may do.
type RefillInput struct {
	Claim         string                   `json:"claim"`
	NodePool      string                   `json:"nodePool"`
	Reason        karpv1.DisruptionReason  `json:"reason"`
	Room          reservation.TemplateRoom `json:"room"`
	Enabled       bool                     `json:"enabled,omitempty"`
	InReservation bool                     `json:"inReservation,omitempty"`
}

// DriftInput are the drifted nodes in the order in which they are tried.
type DriftInput struct {
	Claims        []string `json:"claims"`
	MaxRejections int      `json:"maxRejections"`
	Freed         bool     `json:"freed,omitempty"`
}

// DriftRecord is what a search for a drifted node found.
type DriftRecord struct {
	Command *CommandRecord `json:"command,omitempty"`
	Stays   []StayRecord   `json:"stays,omitempty"`
}

// FindInput is what a search for nodes to consolidate depends on.
type FindInput struct {
	// Without are candidates that are left out.
	Without []string `json:"without,omitempty"`
	// Costs of the pools, in $/h.
	Costs      map[string]number `json:"costs,omitempty"`
	SpotToSpot bool              `json:"spotToSpot,omitempty"`
	MaxSteps   int               `json:"maxSteps"`
	PoolsFirst []string          `json:"poolsFirst,omitempty"`
}

// FindRecord is what the search found.
type FindRecord struct {
	Commands   []CommandRecord `json:"commands,omitempty"`
	Rejected   []CommandRecord `json:"rejected,omitempty"`
	Stays      []StayRecord    `json:"stays,omitempty"`
	OverBudget bool            `json:"overBudget,omitempty"`
	TimedOut   string          `json:"timedOut,omitempty"`
	Unexamined []string        `json:"unexamined,omitempty"`
}

// StayRecord is a node that stays, and why.
type StayRecord struct {
	Claim string `json:"claim"`
	Why   string `json:"why"`
}

// CommandRecord is a disruption command.
type CommandRecord struct {
	ID     string                  `json:"id,omitempty"`
	Reason karpv1.DisruptionReason `json:"reason"`
	Kind   string                  `json:"kind,omitempty"`
	Claims []string                `json:"claims"`
	Plan   PlanRecord              `json:"plan,omitzero"`
	// Savings in $/h.
	Savings        number          `json:"savings"`
	Verdicts       []VerdictRecord `json:"verdicts,omitempty"`
	Bound          *time.Duration  `json:"bound,omitempty"`
	Reboot         bool            `json:"reboot,omitempty"`
	TerminateFirst string          `json:"terminateFirst,omitempty"`
	RefillPools    []string        `json:"refillPools,omitempty"`
}

// VerdictRecord is how a pool of policy Balanced scores a command.
type VerdictRecord struct {
	NodePool string `json:"nodePool"`
	Approved bool   `json:"approved"`
	Score    number `json:"score"`
}

func podNames(pods []*corev1.Pod) []string {
	out := make([]string, len(pods))
	for i, p := range pods {
		out[i] = p.Namespace + "/" + p.Name
	}
	return out
}

func claimNames(candidates []*disrupt.Candidate) []string {
	out := make([]string, len(candidates))
	for i, c := range candidates {
		out[i] = c.Node.Claim
	}
	return out
}

// RecordPlan returns a plan as plain data. Pods that were not planned at all, by one of the codes, are left out.
func RecordPlan(p *schedule.Plan, without ...schedule.Code) PlanRecord {
	out := PlanRecord{Launches: recordLaunches(p.Launches)}
	for i := range p.Placements {
		out.Placements = append(out.Placements, PlacementRecord{p.Placements[i].Node, podNames(p.Placements[i].Pods)})
	}
	for i := range p.Rejected {
		r := &p.Rejected[i]
		if slices.Contains(without, r.Reasons[0].Code) {
			continue
		}
		record := RejectionRecord{Pod: r.Pod.Namespace + "/" + r.Pod.Name, Message: wording.Reason(r.Reasons[0]), Rule: r.Reasons[0].Rule}
		for _, why := range r.Reasons {
			record.Codes = append(record.Codes, strings.TrimPrefix(why.NodePool+" "+string(why.Code), " "))
		}
		out.Rejected = append(out.Rejected, record)
	}
	return out
}

func recordLaunches(launches []schedule.Launch) []LaunchRecord {
	out := make([]LaunchRecord, 0, len(launches))
	for i := range launches {
		l := &launches[i]
		types := make([]string, len(l.InstanceTypes))
		for k, t := range l.InstanceTypes {
			types[k] = t.Name
		}
		out = append(out, LaunchRecord{
			NodePool: l.Pool.Name, InstanceTypes: types, Zone: l.Offering.Zone, CapacityType: l.Offering.CapacityType,
			HourlyCost: number(l.Offering.Price), Requirements: l.Requirements.API(), Requests: l.Requests, Pods: podNames(l.Pods),
			Drivers: l.Drivers, Relaxed: l.MinValuesRelaxed,
		})
	}
	return out
}

// RecordBuffers returns the capacity of buffers as plain data.
func RecordBuffers(p *buffer.Placement) BuffersRecord {
	return BuffersRecord{Nodes: p.Nodes, Launches: recordLaunches(p.Launches)}
}

// RecordCommand returns a command as plain data; nil for nil.
func RecordCommand(c *disrupt.Command) *CommandRecord {
	if c == nil {
		return nil
	}
	out := &CommandRecord{
		ID: c.ID, Reason: c.Reason, Kind: c.ConsolidationType, Claims: claimNames(c.Candidates), Plan: RecordPlan(&c.Plan),
		Savings: number(c.Savings), Bound: c.Bound, Reboot: c.Reboot, TerminateFirst: string(c.TerminateFirst), RefillPools: c.RefillPools,
	}
	for _, v := range c.Verdicts {
		out.Verdicts = append(out.Verdicts, VerdictRecord{v.Pool.Name, v.Approved, number(v.Score)})
	}
	return out
}

func recordCommands(commands []disrupt.Command) []CommandRecord {
	out := make([]CommandRecord, 0, len(commands))
	for i := range commands {
		out = append(out, *RecordCommand(&commands[i]))
	}
	return out
}

func recordStays(list []disrupt.Unconsolidatable) []StayRecord {
	out := make([]StayRecord, 0, len(list))
	for i := range list {
		out = append(out, StayRecord{list[i].Candidate.Node.Claim, list[i].Message})
	}
	return out
}

// RecordFind returns what a search found as plain data.
func RecordFind(r *consolidate.Result) FindRecord {
	return FindRecord{
		Commands: recordCommands(r.Commands), Rejected: recordCommands(r.Rejected), Stays: recordStays(r.Unconsolidatable),
		OverBudget: r.OverBudget, TimedOut: r.TimedOut, Unexamined: r.Unexamined,
	}
}

// RecordDrift returns what a search for a drifted node found as plain data.
func RecordDrift(c *disrupt.Command, stays []disrupt.Unconsolidatable) DriftRecord {
	return DriftRecord{RecordCommand(c), recordStays(stays)}
}

// RecordRepair returns the repair of a node as plain data.
func RecordRepair(c *disrupt.Command, held *replace.HeldBack) OutcomeRecord {
	out := OutcomeRecord{Command: RecordCommand(c)}
	switch {
	case held != nil && held.Breaker != nil:
		out.Why = "too many nodes are unhealthy"
	case held != nil:
		out.Why = held.Message
	}
	return out
}

// RecordError is the outcome of validating a command.
func RecordError(err error) OutcomeRecord {
	if err == nil {
		return OutcomeRecord{}
	}
	return OutcomeRecord{Why: err.Error()}
}

// RecordStatic returns the turns of static pools as plain data.
func RecordStatic(turns []disrupt.StaticBatch) []StaticRecord {
	out := make([]StaticRecord, 0, len(turns))
	for _, t := range turns {
		out = append(out, StaticRecord{t.Pool.Name, claimNames(t.Candidates)})
	}
	return out
}

// ClaimNames are the NodeClaims of candidates.
func ClaimNames(candidates []*disrupt.Candidate) []string { return claimNames(candidates) }

// Costs returns the costs of pools as plain data.
func Costs(costs map[string]float64) map[string]number {
	out := make(map[string]number, len(costs))
	for pool, cost := range costs {
		out[pool] = number(cost)
	}
	return out
}
