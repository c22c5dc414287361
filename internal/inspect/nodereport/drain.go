package nodereport

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/drain"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Drain forecasts how long the pods of a node need to leave it.
type Drain struct {
	// LongestSeconds is the time if each pod needs its whole grace period. What successors need to be Ready, and volumes to be detached, is
	// not part of it.
	LongestSeconds int64 `json:"longestSeconds"`
	// Endless are the pods that nothing makes leave, each with what keeps it.
	Endless []string `json:"endless"`
}

// String is the forecast in words.
func (d *Drain) String() string {
	longest := report.Duration(time.Duration(d.LongestSeconds) * time.Second)
	switch len(d.Endless) {
	case 0:
		return fmt.Sprintf("its pods leave within %s", longest)
	case 1:
		return fmt.Sprintf("its pods leave within %s, but %s", longest, d.Endless[0])
	}
	return fmt.Sprintf("its pods leave within %s, but %s and %s", longest, d.Endless[0], report.Count(len(d.Endless)-1, "other"))
}

// drain returns what a node that is being removed waits for.
func (b *builder) drain() string {
	step := b.drainStep()
	switch {
	case step.Phase == drain.Detaching:
		return "; it is drained, and its volumes are not detached yet"
	case len(step.Waits) == 0 || step.Phase == drain.Done:
		return "; it is drained, and its instance ends"
	}
	first := step.Waits[max(0, slices.IndexFunc(step.Waits, func(w drain.Wait) bool { return kept[w.Why] != "" }))]
	out := fmt.Sprintf("; %s to evict yet, such as %s%s", report.Plural(len(step.Waits), "pod"), podName(first.Pod), kept[first.Why])
	if at, err := b.claim.TerminationDeadline(); err == nil && at != nil {
		out += fmt.Sprintf("; at %s they are deleted whatever protects them", report.Time(*at, b.now()))
	}
	return out
}

// kept is what keeps a pod from being evicted.
var kept = map[drain.Why]string{
	drain.Protected:    ", which its annotation " + karpv1.AnnotationDoNotDisrupt + " keeps",
	drain.BudgetBlocks: ", which a PodDisruptionBudget keeps",
	drain.SiblingsNotReady: ", which waits for other pods of its owner to be Ready, since " + karpv1.AnnotationDrain + " is " +
		string(karpv1.DrainOrdered),
	drain.Finishing: ", which completes by itself soon",
}

// drainStep is what the controller does next. Volumes that it has not reported are as good as detached.
func (b *builder) drainStep() drain.Step {
	n := b.draining()
	n.Volumes = drain.VolumesDetached
	if c, known := condition.Get(b.claim, karpv1.ConditionVolumesDetached); known && c.Status != metav1.ConditionTrue {
		n.Volumes = drain.VolumesAttached
	}
	return drain.Next(n, b.now())
}

// draining is the drain of the node, as far as its volumes do not matter.
func (b *builder) draining() drain.Node {
	bound := slices.DeleteFunc(slices.Clone(b.n.Pods), func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
	n := drain.Of(b.claim, bound, b.now())
	n.Budgets, n.Order = b.pdbs, b.order(bound)
	return n
}

// forecast is how long the drain takes, from now on or, for a node that is not leaving, if it began now.
func (b *builder) forecast() *Drain {
	n := b.draining()
	if grace := b.claim.Spec.TerminationGracePeriod; n.Deadline == nil && grace != nil {
		deadline := b.now().Add(grace.Duration)
		n.Deadline = &deadline
	}
	f := drain.Expect(n, b.now())
	out := &Drain{LongestSeconds: int64(f.Longest / time.Second), Endless: []string{}}
	for _, w := range f.Endless {
		out.Endless = append(out.Endless, podName(w.Pod)+kept[w.Why])
	}
	return out
}

// restarting names the Deployments that are restarted before the node goes, with the first; empty if there is none, or if the command
// has not come to that.
func (b *builder) restarting(command *karpv1.DisruptionCommand) string {
	var names []string
	for _, s := range command.Surges {
		if s.Began != nil && !s.GaveUp {
			names = append(names, "Deployment "+s.Namespace+"/"+s.Name)
		}
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return fmt.Sprintf("each of %s and %d more", names[0], len(names)-1)
}

// order is what the order of the node's pods depends on, as far as the state shows it.
func (b *builder) order(pods []*corev1.Pod) drain.Order {
	out := drain.Order{Owners: map[types.UID]drain.Owner{}, Leaving: map[string]bool{}}
	for _, p := range pods {
		if drain.Ordered(p) {
			of := metav1.GetControllerOfNoCopy(p)
			out.Owners[of.UID] = drain.Owner{Stateful: of.Kind == "StatefulSet"}
		}
	}
	if len(out.Owners) == 0 {
		return out
	}
	for _, p := range b.Pods {
		of := metav1.GetControllerOfNoCopy(p)
		if of == nil {
			continue
		}
		if owner, takesPart := out.Owners[of.UID]; takesPart {
			owner.Pods = append(owner.Pods, p)
			out.Owners[of.UID] = owner
		}
	}
	for _, n := range b.Nodes {
		out.Leaving[n.Name] = n.DeletionTimestamp != nil
	}
	return out
}
