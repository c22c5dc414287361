// Package scripttest tests the scheduler with small scripts, which can be read and written without knowing Go.
//
// A script describes a cluster line by line, and then has a line "plan". The plan follows below four dashes, up to
// the next empty line:
//
//	# Two pods share a node; spot is cheaper.
//	pool general
//	pod web x2 cpu=800m mem=1Gi
//	plan
//	----
//	launch general m.medium a spot $0.0333/h (3 types) for web x2
//	cost   $0.0333/h, at least $0.0267/h
//
// The plan is then applied: its nodes exist, with their pods, when the script continues with more pods, or with the
// same plan again, which must then launch nothing. A line "pass" decides what the controller does with the nodes, in the same way.
// README.md describes all commands.
package scripttest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// separator is the line between a plan command and its output.
const separator = "----"

// Run runs a script, and returns its text with the actual plans. The name is for errors, which name the line and what
// was expected.
func Run(name, text string) (string, error) {
	w := newWorld()
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		fmt.Fprintln(&out, lines[i])
		l := parseLine(lines[i])
		if l.command == "" {
			continue
		}
		printed, err := w.run(l)
		if err == nil && printed == "" {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
		fmt.Fprintf(&out, "%s\n%s", separator, printed)
		if i+1 < len(lines) && lines[i+1] == separator {
			for i++; i+1 < len(lines) && lines[i+1] != ""; i++ { // what was printed before
			}
		}
	}
	return out.String(), nil
}

// run runs one line. It returns what the line prints; empty for a line that only describes.
func (w *world) run(l line) (string, error) {
	switch l.command {
	case "plan":
		if len(l.words) > 0 {
			return "", fmt.Errorf("plan takes no arguments, not %q", l.words[0])
		}
		return w.plan()
	case "pass":
		return w.doPass(l)
	}
	return "", w.do(l)
}

// plan makes a plan, prints it, and applies it.
func (w *world) plan() (string, error) {
	if err := w.checkNominations(); err != nil {
		return "", err
	}
	p := schedule.Solve(w.snap, schedule.Budget{})
	if err := validate.Plan(w.snap, p); err != nil {
		return "", fmt.Errorf("the plan violates a rule: %w", err)
	}
	printed := w.print(p)
	w.apply(p)
	return printed, nil
}

// apply creates the nodes that the plan launches, and binds the pods that it places. Pods without a node stay
// pending.
func (w *world) apply(p schedule.Plan) {
	placed := map[*corev1.Pod]string{}
	for _, pl := range p.Placements {
		for _, pod := range pl.Pods {
			placed[pod] = pl.Node
		}
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		w.launched++
		n := w.node(fmt.Sprintf("new-%d", w.launched), l.Pool.Name, l.InstanceTypes[0], l.Offering)
		for key, value := range l.ClaimLabels(w.snap.Labels) {
			n.Labels[key] = value
		}
		w.snap.Nodes = append(w.snap.Nodes, n)
		for _, pod := range l.Pods {
			placed[pod] = n.Name
		}
		w.countAgainstLimits(l.Pool.Name, n.Capacity)
	}
	var waiting []*corev1.Pod
	for _, pod := range w.snap.Pods {
		if at, ok := placed[pod]; ok {
			w.bind(pod, at)
		} else {
			waiting = append(waiting, pod)
		}
	}
	w.snap.Pods = waiting
	for i := range w.snap.Nodes {
		w.snap.Nodes[i].Nominated = nil
	}
}

// bind binds a pod to a node, and removes it from the one where it ran.
func (w *world) bind(pod *corev1.Pod, node string) {
	pod.Spec.NodeName, pod.Status = node, corev1.PodStatus{Phase: corev1.PodRunning}
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		var kept []*corev1.Pod
		for _, p := range n.Pods {
			if p != pod {
				kept = append(kept, p)
			}
		}
		if n.Name == node {
			kept = append(kept, pod)
		}
		n.Pods = kept
	}
}

// countAgainstLimits counts a node against its pool's limits.
func (w *world) countAgainstLimits(pool string, capacity corev1.ResourceList) {
	for i := range w.snap.Pools {
		p := &w.snap.Pools[i]
		if p.NodePool.Name != pool {
			continue
		}
		if p.Used == nil {
			p.Used = corev1.ResourceList{}
		}
		for name, q := range capacity {
			sum := p.Used[name]
			sum.Add(q)
			p.Used[name] = sum
		}
		nodes := p.Used["nodes"]
		nodes.Add(one)
		p.Used["nodes"] = nodes
	}
}

func (w *world) findNode(name string) (*snapshot.Node, error) {
	for i := range w.snap.Nodes {
		if w.snap.Nodes[i].Name == name {
			return &w.snap.Nodes[i], nil
		}
	}
	return nil, fmt.Errorf("there is no node %q so far", name)
}
