package disruption

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/provisioning"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// nodeAndClaim names a Node, if there is one, and its NodeClaim.
type nodeAndClaim struct {
	node, claim string
	uid         types.UID // of the claim
}

func refOf(n *snapshot.Node) nodeAndClaim {
	ref := nodeAndClaim{claim: n.Claim, uid: n.ClaimUID}
	if n.Registered {
		ref.node = n.Name
	}
	return ref
}

// recordBudgets sets the metrics of disruption budgets for a reason, and publishes an event where they allow nothing.
func (l *Loop) recordBudgets(reason karpv1.DisruptionReason, allowances []disrupt.Allowance) {
	for _, a := range allowances {
		labels := []string{a.Pool.Name, strings.ToLower(string(reason))}
		l.Metrics.AllowedDisruptions.WithLabelValues(labels...).Set(float64(a.Allowed))
		l.Metrics.ConsumingBudgets.WithLabelValues(labels...).Set(float64(a.Disrupting))
		if a.Err != nil && reason == karpv1.DisruptionEmpty { // log once: the error blocks all reasons
			l.Log.Error("detected disruption budget errors", "NodePool", a.Pool.Name, "error", a.Err)
		}
		if a.Nodes > 0 && a.Allowed == 0 {
			l.Events.Normal(a.Pool, "DisruptionBlocked", "No allowed disruptions for disruption reason %s due to blocking budget", reason)
		}
	}
}

// recordBlockedNodes publishes on nodes why they must not be disrupted.
func (l *Loop) recordBlockedNodes(v *disrupt.View) {
	for _, k := range v.DisruptionBlocked() {
		if k.Reason == disrupt.Deleting {
			continue // its deletion timestamp shows it
		}
		l.recordBlocked(k.Node, k.Message)
	}
}

// recordPodEvents publishes on pods until when they are protected from disruption, and which of their annotations are
// invalid and therefore ignored.
func (l *Loop) recordPodEvents(v *disrupt.View) {
	for i := range v.Snapshot.Nodes {
		n := &v.Snapshot.Nodes[i]
		if n.Claim == "" {
			continue
		}
		for _, p := range n.Pods {
			l.recordDisruptionCost(p)
			if _, annotated := p.Annotations[karpv1.AnnotationDoNotDisrupt]; !annotated || !snapshot.Active(p) {
				continue
			}
			switch state, until := snapshot.DoNotDisrupt(p, v.Snapshot.Now); {
			case state == snapshot.ProtectionInvalid && p.Annotations[karpv1.AnnotationDoNotDisrupt] != "false":
				l.Events.Warn(
					p,
					"InvalidDoNotDisruptAnnotation",
					"Annotation %s is ignored: %q is neither \"true\" nor a positive duration such as 30m",
					karpv1.AnnotationDoNotDisrupt,
					p.Annotations[karpv1.AnnotationDoNotDisrupt],
				)
			case state == snapshot.ProtectedUntil && !until.IsZero():
				l.Events.Normal(p, "DoNotDisruptUntil", "Pod is protected from disruption until %s", until.UTC().Format(time.RFC3339))
			case state == snapshot.ProtectionElapsed:
				l.Events.Normal(p, "DoNotDisruptGracePeriodElapsed", "The time for which the pod was protected from disruption has passed")
			}
		}
	}
}

// recordDisruptionCost publishes on a pod that its annotation on what its eviction costs is ignored.
func (l *Loop) recordDisruptionCost(p *corev1.Pod) {
	if key, invalid := snapshot.InvalidCost(p); invalid && snapshot.Active(p) {
		l.Events.Warn(p, "InvalidDisruptionCost", "Annotation %s is ignored: %q is not an integer from %d to %d",
			key, p.Annotations[key], math.MinInt32, math.MaxInt32)
	}
}

// deletePoolGauges deletes the gauges of pools that no longer exist.
func (l *Loop) deletePoolGauges(allowances []disrupt.Allowance) {
	existing := make(map[string]bool, len(allowances))
	for _, a := range allowances {
		existing[a.Pool.Name] = true
	}
	for name := range l.gaugedPools {
		if !existing[name] {
			of := prometheus.Labels{"nodepool": name}
			l.Metrics.AllowedDisruptions.DeletePartialMatch(of)
			l.Metrics.ConsumingBudgets.DeletePartialMatch(of)
			l.Metrics.Cost.DeletePartialMatch(of)
			l.Metrics.PlannedCost.DeletePartialMatch(of)
		}
	}
	l.gaugedPools = existing
}

func (l *Loop) recordBlocked(n *snapshot.Node, message string) {
	l.onNodeAndClaim(refOf(n), func(o event.Object) { l.Events.Normal(o, "DisruptionBlocked", "%s", upperFirst(message)) })
}

// recordInvalidReplacement publishes on the nodes of a command that their replacement was rejected, and until when they stay.
func (l *Loop) recordInvalidReplacement(cmd *disrupt.Command, causes string) {
	refused := l.Queue.memory.now().Refused
	for _, c := range cmd.Candidates {
		l.recordBlocked(c.Node, fmt.Sprintf("the API server rejects the replacement of the node as invalid: %s. "+
			"Correct the template of NodePool %q, or what the pods of the node request; the next attempt is after %s",
			causes, c.Pool.Name, refused[c.Node.ClaimUID].Until.UTC().Format(time.RFC3339)))
	}
}

// onNodeAndClaim publishes an event on the Node, if there is one, and on its claim.
func (l *Loop) onNodeAndClaim(ref nodeAndClaim, publish func(o event.Object)) {
	if ref.node != "" {
		publish(nodeRef(ref.node))
	}
	claim := &karpv1.NodeClaim{}
	claim.Name, claim.UID = ref.claim, ref.uid
	publish(claim)
}

// shape is a command as events and logs state it in short.
type shape struct {
	decision     string
	nodes        []string
	replacements int
}

func shapeOf(cmd *disrupt.Command) shape {
	out := shape{decision: decision(cmd), replacements: cmd.Replacements()}
	for _, c := range cmd.Candidates {
		out.nodes = append(out.nodes, c.Node.Name)
	}
	return out
}

// proposedShape is the shape of a proposal.
func proposedShape(p *pass.Proposal) shape {
	out := shape{decision: "delete", replacements: len(p.Launches)}
	if len(p.Launches) > 0 {
		out.decision = "replace"
	}
	for i := range p.Nodes {
		out.nodes = append(out.nodes, p.Nodes[i].Name)
	}
	return out
}

// part describes the command in an event on one of its nodes.
func (s shape) part(node string) string {
	if n := len(s.nodes); n > 1 {
		return fmt.Sprintf("%s: [%s] (part of %d-node consolidation)", s.decision, node, n)
	}
	return s.decision + ": " + s.String()
}

// String lists the nodes, and the number of replacements.
func (s shape) String() string {
	out := "[" + strings.Join(s.nodes, ", ") + "]"
	switch s.replacements {
	case 0:
		return out
	case 1:
		return out + " -> [1 replacement]"
	}
	return fmt.Sprintf("%s -> [%d replacements]", out, s.replacements)
}

// countDecision counts a command that was started.
func (l *Loop) countDecision(cmd *disrupt.Command) {
	decision, reason := decision(cmd), strings.ToLower(string(cmd.Reason))
	l.Metrics.Decisions.WithLabelValues(decision, reason, cmd.ConsolidationType).Inc()
	for _, pool := range affectedPools(cmd) {
		l.Metrics.DecisionsByPool.WithLabelValues(pool, decision, reason, cmd.ConsolidationType).Inc()
	}
	l.countTerminateFirst(cmd)
}

func decision(cmd *disrupt.Command) string {
	if cmd.Reboot {
		return "reboot"
	}
	if cmd.TerminateFirst != "" {
		return "terminate-first"
	}
	if cmd.Replacements() > 0 {
		return "replace"
	}
	return "delete"
}

// affectedPools are the pools that lose nodes, sorted.
func affectedPools(cmd *disrupt.Command) []string {
	var out []string
	for _, c := range cmd.Candidates {
		out = append(out, c.Node.Pool)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// candidateUIDs are the UIDs of the claims that a command deletes.
func candidateUIDs(cmd *disrupt.Command) (out []types.UID) {
	for _, c := range cmd.Candidates {
		out = append(out, c.Node.ClaimUID)
	}
	return out
}

// disruptedNode and replacementNode are nodes in log lines.
type disruptedNode struct {
	Node         string `json:"Node"`
	NodeClaim    string `json:"NodeClaim"`
	InstanceType string `json:"instance-type"`
	CapacityType string `json:"capacity-type"`
}

type replacementNode struct {
	CapacityType  string `json:"capacity-type"`
	InstanceTypes string `json:"instance-types,omitempty"`
}

// logCommand logs a command before it is executed.
func (l *Loop) logCommand(cmd *disrupt.Command, id string) {
	var nodes []disruptedNode
	pods := 0
	for _, c := range cmd.Candidates {
		nodes = append(nodes, disruptedNode{c.Node.Name, c.Node.Claim, c.Node.Labels[corev1.LabelInstanceTypeStable], c.CapacityType})
		pods += len(c.Pods)
	}
	replacements := []replacementNode{}
	for i := range cmd.Plan.Launches {
		launch := &cmd.Plan.Launches[i]
		n := replacementNode{CapacityType: preferredCapacityType(launch.CapacityTypes())}
		if len(cmd.Plan.Launches) == 1 {
			n.InstanceTypes = provisioning.TypeNames(launch)
		}
		replacements = append(replacements, n)
	}
	l.Log.Info(
		"disrupting node(s)",
		"command",
		fmt.Sprintf(
			"%s/%s: %s: nodepools=[%s]: %s (savings: $%.2f)",
			cmd.Reason,
			id,
			decision(cmd),
			strings.Join(affectedPools(cmd), ", "),
			shapeOf(cmd),
			cmd.Savings,
		),
		"decision",
		decision(cmd),
		"reason",
		strings.ToLower(string(cmd.Reason)),
		"disrupted-node-count",
		len(nodes),
		"replacement-node-count",
		cmd.Replacements(),
		"pod-count",
		pods,
		"disrupted-nodes",
		nodes,
		"replacement-nodes",
		replacements,
	)
}

// preferredCapacityType is the capacity type that a launch tries first.
func preferredCapacityType(capacityTypes []string) string {
	for _, capacityType := range []string{karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand} {
		if slices.Contains(capacityTypes, capacityType) {
			return capacityType
		}
	}
	return ""
}

// describe formats a command for logs.
func describe(e karpv1.DisruptionCommand) string {
	claims := "[" + strings.Join(e.Candidates, ", ") + "]"
	if len(e.Replacements) == 0 {
		return fmt.Sprintf("%s/%s: delete: %s", e.Reason, e.ID, claims)
	}
	return fmt.Sprintf("%s/%s: replace: %s -> [%s]", e.Reason, e.ID, claims, strings.Join(e.Replacements, ", "))
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
