package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/process"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Evidence is one part of the world's state after a failed step.
type Evidence struct {
	Title string   `json:"title"`
	Lines []string `json:"lines"`
}

const (
	// gatherTimeout bounds how long a failed scenario collects evidence. Reads are local: longer waits mean a dead API
	// server.
	gatherTimeout = 10 * time.Second
	// logLines is how many lines of the controller's log the report has.
	logLines = 20
	// maxShown is how many objects of a kind the report has.
	maxShown = 10
)

// gatherEvidence collects the evidence of a failure. What it cannot read, it reports as such.
func gatherEvidence(ctx context.Context, w *World) []Evidence {
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	var out []Evidence
	for _, look := range []struct {
		title string
		lines func(context.Context, *World) ([]string, error)
	}{
		{"Pending pods", pendingPods},
		{"NodeClaims", claimStates},
		{"Instances", instanceStates},
		{"Consoles of instances that did not join", consoles},
		{"Last lines of the controller's log", controllerLog},
	} {
		lines, err := look.lines(ctx, w)
		if err != nil {
			lines = append(lines, "cannot read: "+err.Error())
		}
		if len(lines) > 0 {
			out = append(out, Evidence{Title: look.title, Lines: lines})
		}
	}
	return out
}

func controllerLog(_ context.Context, w *World) ([]string, error) {
	if w.ControllerStarts() == 0 {
		return nil, nil
	}
	text, err := process.Tail(w.ControllerLog(), logLines)
	if err != nil {
		return nil, err
	}
	return strings.Split(text, "\n"), nil
}

// pendingPods lists the pending pods with their events.
func pendingPods(ctx context.Context, w *World) ([]string, error) {
	var pods corev1.PodList
	var events corev1.EventList
	if err := list(ctx, w, &pods, &events); err != nil {
		return nil, err
	}
	var out []string
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodPending {
			continue
		}
		if len(out) == maxShown {
			return append(out, "... and more"), nil
		}
		line := p.Name + " (node: " + cmp.Or(p.Spec.NodeName, "none") + ")"
		for _, e := range events.Items {
			if e.InvolvedObject.UID == p.UID {
				line += "\n  " + cmp.Or(e.Source.Component, e.ReportingController) + ": " + e.Reason + ": " + e.Message
			}
		}
		out = append(out, line)
	}
	return out, nil
}

// claimStates lists the NodeClaims with their conditions.
func claimStates(ctx context.Context, w *World) ([]string, error) {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return nil, err
	}
	var out []string
	for _, c := range claims.Items {
		if len(out) == maxShown {
			return append(out, "... and more"), nil
		}
		line := fmt.Sprintf("%s (%s)", c.Name, cmp.Or(c.Status.ProviderID, "no instance"))
		if c.DeletionTimestamp != nil {
			line += " being deleted, finalizers " + strings.Join(c.Finalizers, ", ")
		}
		for _, condition := range c.Status.Conditions {
			line += fmt.Sprintf("\n  %s=%s %s %s", condition.Type, condition.Status, condition.Reason, condition.Message)
		}
		out = append(out, line)
	}
	return out, nil
}

func instanceStates(_ context.Context, w *World) ([]string, error) {
	var out []string
	for _, i := range w.Instances() {
		out = append(out, fmt.Sprintf("%s %s %s %s, NodeClaim %s", i.ID, i.State, i.Type, i.Zone, cmp.Or(i.Tags[world.NodeClaimTag], "none")))
	}
	return out[max(0, len(out)-3*maxShown):], nil
}

// consoles returns the last console lines of live instances without a Node.
func consoles(ctx context.Context, w *World) ([]string, error) {
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return nil, err
	}
	var out []string
	for _, i := range w.Running() {
		joined := slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return world.InstanceID(n.Spec.ProviderID) == i.ID })
		if joined || len(out) == maxShown {
			continue
		}
		text, err := w.Console(ctx, i.ID)
		if err != nil {
			return out, err
		}
		lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
		out = append(out, i.ID+":\n"+indent("  ", strings.Join(lines[max(0, len(lines)-5):], "\n")))
	}
	return out, nil
}

// list reads lists from the watch cache of the cluster.
func list(ctx context.Context, w *World, lists ...client.ObjectList) error {
	for _, l := range lists {
		if err := w.Reader.List(ctx, l); err != nil {
			return err
		}
	}
	return nil
}
