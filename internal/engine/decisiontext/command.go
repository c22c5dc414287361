package decisiontext

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// Command writes a command, with the plan for the pods of its nodes.
func Command(w io.Writer, c *disrupt.Command) {
	t := text{w}
	names := make([]string, len(c.Candidates))
	for i, n := range c.Candidates {
		names[i] = n.Node.Name + " " + dollars(n.Price)
	}
	t.line(fmt.Sprintf("command %s %s: %s, saves %s", c.Reason, c.ConsolidationType, strings.Join(names, ", "), dollars(c.Savings)))
	if c.Reboot {
		t.line("  reboot")
	}
	if c.Bound != nil {
		t.line("  drain for at most " + c.Bound.String())
	}
	if c.TerminateFirst != "" {
		t.line("  terminate first: " + string(c.TerminateFirst) + ", refill " + strings.Join(c.RefillPools, " "))
	}
	for _, v := range c.Verdicts {
		t.line(fmt.Sprintf("  verdict of %s: approved %v, score %.9g = %.9g / %.9g", v.Pool.Name, v.Approved, v.Score, v.Savings, v.Disruption))
	}
	Plan(w, &c.Plan)
}

// Blocked writes the nodes that may not be disrupted.
func Blocked(w io.Writer, list []disrupt.Blocked) {
	for _, b := range list {
		text{w}.line(fmt.Sprintf("stay %s [%s]: %s", b.Node.Name, b.Reason, b.Message))
	}
}

// Unconsolidatable writes the candidates that no command removes.
func Unconsolidatable(w io.Writer, list []disrupt.Unconsolidatable) {
	for _, u := range list {
		line := "stay " + u.Candidate.Node.Name + ": " + u.Message
		if u.Reason.Quiet() {
			line += " (without an event)"
		}
		if !u.Until.IsZero() {
			line += " until " + u.Until.UTC().Format(time.RFC3339)
		}
		text{w}.line(line)
	}
}
