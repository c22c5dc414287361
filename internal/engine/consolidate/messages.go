package consolidate

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// The reasons of the event Unconsolidatable. Some repeat Karpenter's words, which operators search for.

func notCheaper() disrupt.Why {
	return disrupt.Because(disrupt.NotCheaper, "Can't replace with a cheaper node")
}

func spotToSpotDisabled() disrupt.Why {
	return disrupt.Because(disrupt.SpotToSpotOff, "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node")
}

func sameType() disrupt.Why {
	return disrupt.Because(disrupt.SameType, "Can't replace with a node other than those that would be terminated")
}

func tooDisruptive() disrupt.Why {
	return disrupt.Because(disrupt.TooDisruptive, "It would disturb more than it saves")
}

func tooFewSpotTypes(n int) disrupt.Why {
	return disrupt.Because(
		disrupt.TooFewSpotTypes,
		"SpotToSpotConsolidation requires %d cheaper instance type options than the current candidate to consolidate, got %d",
		minSpotTypes,
		n,
	)
}

func tooFewValues(reqs requirement.Set, types []*catalog.InstanceType) disrupt.Why {
	var short []string
	for _, r := range reqs.All() {
		if r.MinValues() > 0 {
			short = append(short, fmt.Sprintf("%s wants %d", r.Key(), r.MinValues()))
		}
	}
	return disrupt.Because(
		disrupt.TooFewValues,
		"Filtering by price: minValues requirement is not met (%s) by the %d cheaper instance types",
		strings.Join(short, ", "),
		len(types),
	)
}

// maxNamedPods limits how many pods a message names: an event holds 1 kB.
const maxNamedPods = 5

func unscheduled(rejected []schedule.Rejection) disrupt.Why {
	var out []string
	for _, r := range rejected[:min(maxNamedPods, len(rejected))] {
		message := make([]string, len(r.Reasons))
		for i, reason := range r.Reasons {
			message[i] = wording.Reason(reason)
		}
		out = append(out, fmt.Sprintf("%s => %s", podName(r.Pod), strings.Join(message, ", ")))
	}
	text := "Not all pods would schedule, " + strings.Join(out, "; ")
	if more := len(rejected) - maxNamedPods; more > 0 {
		text += fmt.Sprintf(" and %d other(s)", more)
	}
	return disrupt.Why{Reason: disrupt.Unschedulable, Message: text}
}

// Explain describes a command in a few lines: what it saves, and which pods move where.
func Explain(c *disrupt.Command) []string {
	names := make([]string, len(c.Candidates))
	for i, n := range c.Candidates {
		names[i] = n.Node.Name
	}
	out := []string{fmt.Sprintf("terminate %s (saves $%.4f/h)", strings.Join(names, ", "), c.Savings)}
	for i := range c.Plan.Launches {
		l := &c.Plan.Launches[i]
		out = append(
			out,
			fmt.Sprintf(
				"launch %s or one of %d other types at $%.4f/h for %s",
				l.InstanceTypes[0].Name,
				len(l.InstanceTypes)-1,
				l.Offering.Price,
				podNames(l.Pods),
			),
		)
	}
	for _, p := range c.Plan.Placements {
		out = append(out, fmt.Sprintf("move to %s: %s", p.Node, podNames(p.Pods)))
	}
	return out
}

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

func podNames(pods []*corev1.Pod) string {
	names := make([]string, 0, maxNamedPods)
	for _, p := range pods[:min(maxNamedPods, len(pods))] {
		names = append(names, podName(p))
	}
	text := strings.Join(names, ", ")
	if more := len(pods) - maxNamedPods; more > 0 {
		text += fmt.Sprintf(" and %d other(s)", more)
	}
	return text
}
