package disruption

import (
	"fmt"
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
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// claimRef is a NodeClaim as events refer to it.
func claimRef(n *snapshot.Node) *karpv1.NodeClaim {
	ref := &karpv1.NodeClaim{}
	ref.Name, ref.UID = n.Claim, n.ClaimUID
	return ref
}

// tellBudgets records what the budgets of pools allow for a reason.
func (l *Loop) tellBudgets(reason karpv1.DisruptionReason, allowances []disrupt.Allowance) {
	for _, a := range allowances {
		l.Metrics.AllowedDisruptions.WithLabelValues(a.Pool.Name, string(reason)).Set(float64(a.Allowed))
		l.Metrics.ConsumingBudgets.WithLabelValues(a.Pool.Name, string(reason)).Set(float64(a.Disrupting))
		if a.Err != nil && reason == karpv1.DisruptionEmpty { // once for all reasons: each is held back by it
			l.Log.Error("detected disruption budget errors", "NodePool", a.Pool.Name, "error", a.Err)
		}
		if a.Nodes > 0 && a.Allowed == 0 {
			l.Events.Normal(a.Pool, "DisruptionBlocked", "No allowed disruptions for disruption reason %s due to blocking budget", reason)
		}
	}
}

// tellBlocked says of nodes why nothing may disrupt them.
func (l *Loop) tellBlocked(v *disrupt.View) {
	for _, k := range v.Blocked() {
		if k.Reason == disrupt.Deleting {
			continue // that is plain to see
		}
		l.tellNode(k.Node, k.Message)
	}
}

// tellPods says of pods that are protected for a while how that stands, and of those whose wish cannot be read that it is ignored.
func (l *Loop) tellPods(v *disrupt.View) {
	for i := range v.Snapshot.Nodes {
		n := &v.Snapshot.Nodes[i]
		if n.Claim == "" {
			continue
		}
		for _, p := range n.Pods {
			if _, asks := p.Annotations[karpv1.AnnotationDoNotDisrupt]; !asks || !snapshot.Active(p) {
				continue
			}
			switch state, until := snapshot.DoNotDisrupt(p, v.Snapshot.Now); {
			case state == snapshot.ProtectionInvalid && p.Annotations[karpv1.AnnotationDoNotDisrupt] != "false":
				l.Events.Warn(p, "InvalidDoNotDisruptAnnotation", "Annotation %s is ignored: %q is neither \"true\" nor a positive duration such as 30m", karpv1.AnnotationDoNotDisrupt, p.Annotations[karpv1.AnnotationDoNotDisrupt])
			case state == snapshot.ProtectedUntil && !until.IsZero():
				l.Events.Normal(p, "DoNotDisruptUntil", "Pod is protected from disruption until %s", until.UTC().Format(time.RFC3339))
			case state == snapshot.ProtectionElapsed:
				l.Events.Normal(p, "DoNotDisruptGracePeriodElapsed", "The time for which the pod was protected from disruption has passed")
			}
		}
	}
}

// forgetPools takes the gauges of pools that are gone away.
func (l *Loop) forgetPools(allowances []disrupt.Allowance) {
	there := make(map[string]bool, len(allowances))
	for _, a := range allowances {
		there[a.Pool.Name] = true
	}
	for name := range l.gauged {
		if !there[name] {
			of := prometheus.Labels{"nodepool": name}
			l.Metrics.AllowedDisruptions.DeletePartialMatch(of)
			l.Metrics.ConsumingBudgets.DeletePartialMatch(of)
		}
	}
	l.gauged = there
}

func (l *Loop) tellNode(n *snapshot.Node, message string) {
	l.onBoth(n, func(o event.Object) { l.Events.Normal(o, "DisruptionBlocked", "%s", upperFirst(message)) })
}

// onBoth tells something of the Node, if there is one, and of its claim.
func (l *Loop) onBoth(n *snapshot.Node, tell func(o event.Object)) {
	if n.Registered {
		tell(nodeRef(n.Name))
	}
	tell(claimRef(n))
}

// part is what a command does, as one of its nodes is told.
func part(cmd *disrupt.Command, c *disrupt.Candidate) string {
	if n := len(cmd.Candidates); n > 1 {
		return fmt.Sprintf("%s: [%s] (part of %d-node consolidation)", decision(cmd), c.Node.Name, n)
	}
	return decision(cmd) + ": " + movement(cmd)
}

// tellLeft says of nodes that are out of date why they are not replaced, and lets others be tried before them.
func (l *Loop) tellLeft(r *round, left []disrupt.Left) {
	tried := make(map[types.UID]bool, len(left))
	for i := range r.Snapshot.Nodes {
		tried[r.Snapshot.Nodes[i].ClaimUID] = true
	}
	for uid := range l.tried {
		if !tried[uid] {
			delete(l.tried, uid)
		}
	}
	for _, k := range left {
		l.tellNode(k.Candidate.Node, k.Why)
		if l.tried == nil {
			l.tried = map[types.UID]time.Time{}
		}
		l.tried[k.Candidate.Node.ClaimUID] = r.Snapshot.Now
	}
}

// count records that a command is started.
func (l *Loop) count(cmd *disrupt.Command) {
	decision, reason := decision(cmd), strings.ToLower(string(cmd.Reason))
	l.Metrics.Decisions.WithLabelValues(decision, reason, cmd.Kind).Inc()
	for _, pool := range pools(cmd) {
		l.Metrics.DecisionsByPool.WithLabelValues(pool, decision, reason, cmd.Kind).Inc()
	}
}

func decision(cmd *disrupt.Command) string {
	if bought(cmd) > 0 {
		return "replace"
	}
	return "delete"
}

// bought is how many replacements a command buys.
func bought(cmd *disrupt.Command) int {
	if isStatic(cmd) {
		return 1
	}
	return len(cmd.Plan.Launches)
}

// pools are those that lose nodes, sorted.
func pools(cmd *disrupt.Command) []string {
	var out []string
	for _, c := range cmd.Candidates {
		out = append(out, c.Node.Pool)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// uids are those of the claims that a command ends.
func uids(cmd *disrupt.Command) (out []types.UID) {
	for _, c := range cmd.Candidates {
		out = append(out, c.Node.ClaimUID)
	}
	return out
}

// disruptedNode and replacementNode are what logs say of nodes.
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

// announce logs a command before anything is done.
func (l *Loop) announce(cmd *disrupt.Command, id string) {
	var nodes []disruptedNode
	pods := 0
	for _, c := range cmd.Candidates {
		nodes = append(nodes, disruptedNode{c.Node.Name, c.Node.Claim, c.Node.Labels[corev1.LabelInstanceTypeStable], c.CapacityType})
		pods += len(c.Pods)
	}
	replacements := []replacementNode{}
	for i := range cmd.Plan.Launches {
		launch := &cmd.Plan.Launches[i]
		n := replacementNode{CapacityType: first(launch.CapacityTypes())}
		if len(cmd.Plan.Launches) == 1 {
			n.InstanceTypes = provisioning.TypeNames(launch)
		}
		replacements = append(replacements, n)
	}
	l.Log.Info("disrupting node(s)", "command", fmt.Sprintf("%s/%s: %s: nodepools=[%s]: %s (savings: $%.2f)", cmd.Reason, id, decision(cmd), strings.Join(pools(cmd), ", "), movement(cmd), cmd.Savings),
		"decision", decision(cmd), "reason", strings.ToLower(string(cmd.Reason)), "disrupted-node-count", len(nodes), "replacement-node-count", bought(cmd),
		"pod-count", pods, "disrupted-nodes", nodes, "replacement-nodes", replacements)
}

// first is the capacity type that a launch prefers.
func first(capacityTypes []string) string {
	for _, kind := range []string{karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand} {
		if slices.Contains(capacityTypes, kind) {
			return kind
		}
	}
	return ""
}

// movement tells what a command does to nodes.
func movement(cmd *disrupt.Command) string {
	var names []string
	for _, c := range cmd.Candidates {
		names = append(names, c.Node.Name)
	}
	out := "[" + strings.Join(names, ", ") + "]"
	n := bought(cmd)
	switch n {
	case 0:
		return out
	case 1:
		return out + " -> [1 replacement]"
	}
	return fmt.Sprintf("%s -> [%d replacements]", out, n)
}

// describe is a command as its claims tell it.
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
