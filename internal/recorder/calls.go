package recorder

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
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

// The calls of the engine, in the order of a pass. Each has an input, besides the Snapshot and the calls before it, and a result. Earlier
// versions recorded several calls for what CallPass is now; those can be read, and are not replayed.
const (
	// CallSolve plans the pending pods: SolveInput, PlanRecord.
	CallSolve = "solve"
	// CallBuffers plans the capacity of capacity buffers: Exclusion, BuffersRecord.
	CallBuffers = "buffers"
	// CallPass decides about nodes: PassInput, PassResult.
	CallPass = "pass"
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

// PassInput is what a pass over the nodes depends on besides the Snapshot.
type PassInput struct {
	Work     pass.Work     `json:"work"`
	Settings pass.Settings `json:"settings"`
	Facts    pass.Facts    `json:"facts,omitzero"`
	Resting  bool          `json:"resting,omitempty"`
	// InterruptedAt is the number of the simulation before which the search was stopped; 0 if it was not.
	InterruptedAt int         `json:"interruptedAt,omitempty"`
	Memory        pass.Memory `json:"memory"`
}

// PassResult is what a pass decided about the nodes.
type PassResult struct {
	Start    []CommandRecord `json:"start,omitempty"`
	Propose  []CommandRecord `json:"propose,omitempty"`
	Dropped  []DroppedRecord `json:"dropped,omitempty"`
	Withheld []DroppedRecord `json:"withheld,omitempty"`
	Rejected []CommandRecord `json:"rejected,omitempty"`
	Stays    []StayRecord    `json:"stays,omitempty"`
	// OverBudget, TimedOut and Unexamined are of the search for savings: see consolidate.Result.
	OverBudget bool     `json:"overBudget,omitempty"`
	TimedOut   string   `json:"timedOut,omitempty"`
	Unexamined []string `json:"unexamined,omitempty"`
}

// DroppedRecord is a command that does not start, and why.
type DroppedRecord struct {
	ID     string   `json:"id,omitempty"`
	Claims []string `json:"claims"`
	Why    string   `json:"why"`
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

// RecordInput returns what a pass depends on besides the Snapshot as plain data.
func RecordInput(in *pass.Input, decided *pass.Decisions) PassInput {
	return PassInput{
		Work: in.Work, Settings: in.Settings, Facts: in.Facts, Resting: in.Resting, InterruptedAt: decided.Stats.InterruptedAt, Memory: in.Memory,
	}
}

// RecordDecisions returns what a pass decided as plain data. Nodes that are protected from all of it are left out: the Snapshot shows it.
func RecordDecisions(d *pass.Decisions) PassResult {
	out := PassResult{Start: recordDecided(d.Start), Propose: recordDecided(d.Propose)}
	for i := range d.Dropped {
		p := &d.Dropped[i].Proposal
		out.Dropped = append(out.Dropped, DroppedRecord{p.ID, p.Claims(), d.Dropped[i].Why.Message})
	}
	for i := range d.Withheld {
		c := &d.Withheld[i].Command
		out.Withheld = append(out.Withheld, DroppedRecord{c.ID, claimNames(c.Candidates), d.Withheld[i].Why})
	}
	for i := range d.Stay {
		if k := &d.Stay[i]; k.By != 0 {
			why := k.Message
			if k.Breaker != nil {
				why = "too many nodes are unhealthy"
			}
			out.Stays = append(out.Stays, StayRecord{k.Node.Claim, why})
		}
	}
	if found := d.Found; found != nil {
		out.Rejected = recordCommands(found.Rejected)
		out.OverBudget, out.TimedOut, out.Unexamined = found.OverBudget, found.TimedOut, found.Unexamined
	}
	return out
}

func recordDecided(decisions []pass.Decision) []CommandRecord {
	out := make([]CommandRecord, 0, len(decisions))
	for i := range decisions {
		out = append(out, *RecordCommand(&decisions[i].Command))
	}
	return out
}
