package top

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// next are the changes of the fleet: those in progress, as the objects show them, and then what the forecast has that is still to come.
// The forecast is older than the fleet: what has begun or happened since counts once. It costs O(nodes + changes).
func (f *Fleet) next(forecast *Forecast) []Change {
	moving := f.inProgress()
	if forecast == nil {
		return moving
	}
	begun, waiting := f.begunSince(forecast.At), f.waiting()
	for _, c := range forecast.Changes {
		if c.Action == "launch" && !slices.ContainsFunc(c.pods, func(uid types.UID) bool { return waiting[uid] }) {
			continue
		}
		if c.Action == "launch" && begun[c.Launches[0].NodePool] > 0 {
			begun[c.Launches[0].NodePool]--
			continue
		}
		if !slices.ContainsFunc(c.Nodes, f.changes) {
			moving = append(moving, c)
		}
	}
	return moving
}

// changes reports whether a node is gone, or in flight out.
func (f *Fleet) changes(name string) bool {
	n := f.byName[name]
	return n == nil || n.leaves()
}

// leaves reports whether the node is being removed, or waits for its replacements.
func (n *Node) leaves() bool {
	return n.deleted() || n.node != nil && n.disrupted() || n.claim != nil && n.claim.Annotations[karpv1.AnnotationDisruptionCommand] != ""
}

func (n *Node) deleted() bool {
	return n.node != nil && n.node.DeletionTimestamp != nil || n.claim != nil && n.claim.DeletionTimestamp != nil
}

// inFlight reports whether the node is launched, or about to be, and not initialized yet.
func (n *Node) inFlight() bool { return n.claim != nil && !n.deleted() && !n.initialized() }

// begunSince counts by NodePool the claims that were created after a forecast, for pods that it may have planned. Karpenter's do not
// list them.
func (f *Fleet) begunSince(at time.Time) map[string]int {
	out := map[string]int{}
	for _, n := range f.Nodes {
		if n.claim == nil || len(n.claim.Replaces()) > 0 || n.claim.CreationTimestamp.Time.Before(at.Truncate(time.Second)) {
			continue
		}
		if _, listed := n.claim.Annotations[karpv1.AnnotationNominatedPods]; !listed {
			out[n.Pool]++
		}
	}
	return out
}

// waiting are the pending pods that nothing has been launched for.
func (f *Fleet) waiting() map[types.UID]bool {
	out := make(map[types.UID]bool, len(f.Pending))
	for _, i := range f.Pending {
		out[f.Pods[i].UID] = true
	}
	for _, n := range f.Nodes {
		if n.claim != nil {
			for _, uid := range n.claim.Nominated(karpv1.AnnotationNominatedPods) {
				delete(out, uid)
			}
		}
	}
	return out
}

// inProgress are the changes that have begun: a disruption command with all its nodes and replacements is one.
func (f *Fleet) inProgress() []Change {
	out, of := f.removals()
	for _, n := range f.Nodes {
		if !n.inFlight() || n.leaves() {
			continue
		}
		l := Launch{NodePool: n.Pool, InstanceType: n.InstanceType, CapacityType: n.CapacityType, Zone: n.Zone, HourlyCost: n.price()}
		if at, replaces := replaced(n.claim, of); replaces {
			out[at].Action, out[at].Launches = "replace", append(out[at].Launches, l)
			if out[at].Progress != draining {
				out[at].Progress = "waits for its replacement"
			}
			continue
		}
		reason := "pending pods"
		if len(n.claim.Replaces()) > 0 {
			reason = "replacement"
		}
		out = append(out, Change{
			Action: "launch", Reason: reason, Nodes: []string{}, Launches: []Launch{l}, Progress: n.waitsFor(),
			Pods: len(n.claim.Nominated(karpv1.AnnotationNominatedPods)),
		})
	}
	return out
}

// draining is the progress of a node that is being deleted.
const draining = "draining"

// removals are the nodes that leave, by command. of has the change of each claim that a command removes, or has launched in its place.
func (f *Fleet) removals() (out []Change, of map[string]int) {
	out, of = []Change{}, map[string]int{}
	commands := map[string]int{}
	for _, n := range f.Nodes {
		if !n.leaves() {
			continue
		}
		id, reason, replacements := n.command()
		at, known := commands[id]
		if !known {
			at = len(out)
			commands[id] = at
			out = append(out, Change{
				Action: "remove", Reason: reason, Nodes: []string{}, Launches: []Launch{}, Progress: "about to be removed",
			})
		}
		c := &out[at]
		c.Nodes, c.Pods, c.HourlySavings = append(c.Nodes, n.Name), c.Pods+f.movable(n), c.HourlySavings+n.price()
		if n.deleted() {
			c.Progress = draining
		}
		for _, claim := range append(replacements, n.Claim) {
			of[claim] = at
		}
	}
	return out, of
}

// command identifies the command that removes a node, with its reason in lower case, and the claims that it waits for. A node that no
// command of Dovetail removes is alone.
func (n *Node) command() (id, reason string, replacements []string) {
	if n.claim == nil {
		return n.Name, "deleted", nil
	}
	if command, has, err := n.claim.DisruptionCommand(); has && err == nil {
		return command.ID, strings.ToLower(string(command.Reason)), command.Replacements
	}
	if c, found := condition.Get(n.claim, karpv1.ConditionDisruptionReason); found && c.Reason != "" {
		return n.Name, strings.ToLower(c.Reason), nil
	}
	return n.Name, "deleted", nil
}

// replaced is the change that a claim was launched for, in place of nodes that leave.
func replaced(claim *karpv1.NodeClaim, of map[string]int) (at int, replaces bool) {
	for _, name := range append(claim.Replaces(), claim.Name) {
		if at, replaces = of[name]; replaces {
			return at, true
		}
	}
	return 0, false
}

// movable counts the pods of a node that its removal moves.
func (f *Fleet) movable(n *Node) int {
	count := 0
	for p := range f.PodsOn(n) {
		if snapshot.Reschedulable(p.Pod) {
			count++
		}
	}
	return count
}
