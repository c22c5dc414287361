package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// loopDetector watches, in every scenario, for a second launch for a pod, or for equal pods, while the node that was launched first is
// initialized and no pod has ever come to it. Unless the scenario makes nodes refuse their pods, the controller has
// launched a node for nothing, and would go on.
type loopDetector struct {
	now func() time.Time

	mu     sync.Mutex
	claims map[types.UID]*launchedClaim
	// used are the nodes that pods have come to, but those of DaemonSets, by name.
	used       map[string]bool
	pods       map[types.UID]seenPod
	violations []string
}

// seenPod is a pod as it was last seen.
type seenPod struct {
	exists bool
	// waitedUntil is when it was bound, began to terminate, or was deleted; zero while it waits for a node.
	waitedUntil time.Time
}

// launchedClaim is a NodeClaim with what it was launched for.
type launchedClaim struct {
	name, node    string
	pods, classes []string
	// initialized is when its node was first seen to be initialized; zero if it was not.
	initialized time.Time
	// ended is true if anything but consolidation has removed it.
	ended bool
}

const (
	// equalsAfter is how long a node must have been initialized for a launch for pods that are only equal to count: of pods that are made
	// again, the first may be about to be bound.
	equalsAfter = 15 * time.Second
	// refusedAfter is how long a pod must have waited beside its initialized node for the node to have refused it: kube-scheduler tries a
	// pod that it could not place again after up to 10 s (podMaxBackoffSeconds), and may be late. If its pods were deleted before that, the
	// node refused none.
	refusedAfter = 15 * time.Second
)

func newLoopDetector() *loopDetector {
	return &loopDetector{
		now: time.Now, claims: map[types.UID]*launchedClaim{}, used: map[string]bool{}, pods: map[types.UID]seenPod{},
	}
}

// watch starts to watch all clusters of a world, until it closes.
func (d *loopDetector) watch(w *World) {
	for _, c := range w.Clusters {
		c.History.Watch(d.observe)
	}
}

func (d *loopDetector) observe(o client.Object, gone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch o := o.(type) {
	case *corev1.Pod:
		d.observePod(o, gone)
		if owner := controllerKind(o); o.Spec.NodeName != "" && owner != "DaemonSet" && owner != "Node" {
			d.used[o.Spec.NodeName] = true
		}
	case *karpv1.NodeClaim:
		d.observeClaim(o)
	}
}

func (d *loopDetector) observePod(o *corev1.Pod, gone bool) {
	p := d.pods[o.UID]
	p.exists = !gone
	if p.waitedUntil.IsZero() && (gone || o.Spec.NodeName != "" || o.DeletionTimestamp != nil) {
		p.waitedUntil = d.now()
	}
	d.pods[o.UID] = p
}

func controllerKind(o client.Object) string {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller {
			return owner.Kind
		}
	}
	return ""
}

func (d *loopDetector) observeClaim(claim *karpv1.NodeClaim) {
	c := d.claims[claim.UID]
	if c == nil {
		c = &launchedClaim{name: claim.Name}
		c.pods, c.classes = listed(claim, karpv1.AnnotationNominatedPods), listed(claim, karpv1.AnnotationPodClasses)
		if claim.Annotations[karpv1.AnnotationLaunchReason] == "" { // those that replace others are not for pods that wait
			d.check(c)
		}
		d.claims[claim.UID] = c
	}
	c.node = claim.Status.NodeName
	if c.initialized.IsZero() && meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionInitialized) {
		c.initialized = d.now()
	}
	if why := meta.FindStatusCondition(claim.Status.Conditions, karpv1.ConditionDisruptionReason); claim.DeletionTimestamp != nil {
		consolidated := why != nil &&
			(why.Reason == string(karpv1.DisruptionEmpty) || why.Reason == string(karpv1.DisruptionUnderutilized))
		c.ended = c.ended || !consolidated
	}
}

// listed is what a comma-separated annotation lists.
func listed(claim *karpv1.NodeClaim, annotation string) []string {
	return slices.DeleteFunc(strings.Split(claim.Annotations[annotation], ","), func(item string) bool { return item == "" })
}

// check compares a new claim with those before it.
func (d *loopDetector) check(fresh *launchedClaim) {
	for _, c := range d.claims {
		if c.initialized.IsZero() || c.ended || d.used[c.node] {
			continue
		}
		same := slices.ContainsFunc(fresh.pods, func(pod string) bool { return slices.Contains(c.pods, pod) })
		if (same || d.madeAgain(c, fresh)) && len(d.violations) < 5 {
			d.violations = append(d.violations, fmt.Sprintf(
				"NodeClaim %s was launched for pods of NodeClaim %s, whose node %s was initialized %.0f s before, and never held a pod",
				fresh.name, c.name, c.node, d.now().Sub(c.initialized).Seconds(),
			))
		}
	}
}

// madeAgain reports whether the pods of first waited beside its node in vain and are gone, and fresh is for pods that are equal to them.
func (d *loopDetector) madeAgain(first, fresh *launchedClaim) bool {
	refused := slices.ContainsFunc(first.pods, func(pod string) bool {
		return d.pods[types.UID(pod)].waitedUntil.Sub(first.initialized) > refusedAfter
	})
	return refused && d.now().Sub(first.initialized) > equalsAfter &&
		!slices.ContainsFunc(first.pods, func(pod string) bool { return d.pods[types.UID(pod)].exists }) &&
		slices.ContainsFunc(fresh.classes, func(class string) bool { return slices.Contains(first.classes, class) })
}

// step fails if a second node was launched for pods with a first node that was ready. If planted, it fails if none was: then the detector,
// or what the scenario plants, does not work.
func (d *loopDetector) step(planted bool) Step {
	name := "no pod got a second node while its first was ready and empty"
	if planted {
		name = "the second nodes that the scenario provokes are detected"
	}
	return Step{Name: name, Timeout: time.Second, Run: func(context.Context, *World) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case planted && len(d.violations) == 0:
			return errors.New("none is")
		case !planted && len(d.violations) > 0:
			return errors.New(strings.Join(d.violations, "; "))
		}
		return nil
	}}
}
