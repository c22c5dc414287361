package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// spreadApp is the workload with a zonal topology spread constraint.
const spreadApp = "spread"

// scaleUpDown creates and deletes a large workload at once.
func scaleUpDown() Scenario {
	const replicas = 200
	return Scenario{
		Name:    "scale-up-down",
		Summary: fmt.Sprintf("0 -> %d pods, spread over three zones, -> 0", replicas),
		Steps: []Step{
			startController(),
			installPool(manifests.Default, nil),
			{
				Name: fmt.Sprintf("scale to %d pods: all run", replicas), Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Spread, nil); err != nil {
						return err
					}
					if err := w.Scale(ctx, spreadApp, replicas); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, spreadApp, replicas); err != nil {
						return err
					}
					noteDurations(w)
					return noteCost(ctx, w)
				},
			},
			{
				Name: "zones are balanced, no node is empty, no pod was nominated to two NodeClaims", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					return errors.Join(balanced(ctx, w), noIdleNodes(ctx, w, spreadApp), oneNominationPerPod(w), awaitPaired(ctx, w))
				},
			},
			{
				Name: "scale to 0: all nodes and instances terminate", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Scale(ctx, spreadApp, 0); err != nil {
						return err
					}
					return awaitEmpty(ctx, w, spreadApp)
				},
			},
			removePool(manifests.Default, nil),
		},
	}
}

// noteDurations notes how long pods and NodeClaims took, from the first pod on.
func noteDurations(w *World) {
	pods, claims := w.History.Pods(), w.History.Claims()
	begin, last := pods[0].Seen, pods[0].Running
	for _, p := range pods {
		if p.Running.After(last) {
			last = p.Running
		}
	}
	created := pods[len(pods)-1].Seen
	w.Note("%d pods created in %.1f s", len(pods), created.Sub(begin).Seconds())
	w.Note("from the first pod to the first of %d NodeClaims: %.1f s, to the last: %.1f s", len(claims),
		claims[0].Seen.Sub(begin).Seconds(), claims[len(claims)-1].Seen.Sub(begin).Seconds())
	w.Note("from the first pod to the last one running: %.1f s", last.Sub(begin).Seconds())
}

// balanced checks that the pods are in three zones with a skew of at most one.
func balanced(ctx context.Context, w *World) error {
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return err
	}
	zones := map[string]string{}
	for _, n := range nodes.Items {
		zones[n.Name] = n.Labels[corev1.LabelTopologyZone]
	}
	all, err := pods(ctx, w, spreadApp)
	if err != nil {
		return err
	}
	perZone := map[string]int{}
	for _, p := range all {
		perZone[zones[p.Spec.NodeName]]++
	}
	var counts []int
	var words []string
	for zone, n := range perZone {
		counts = append(counts, n)
		words = append(words, fmt.Sprintf("%s: %d", zone, n))
	}
	slices.Sort(words)
	w.Note("pods per zone: %s", strings.Join(words, ", "))
	if len(counts) != 3 || slices.Max(counts)-slices.Min(counts) > 1 {
		return fmt.Errorf("the pods are not balanced over three zones: %s", strings.Join(words, ", "))
	}
	return nil
}

// noIdleNodes returns an error that names a Node without a pod of an app that no pod needed when its NodeClaim was created. Under
// load, kube-scheduler may bind the pods of one node to another that is Ready first: such nodes are only counted, and left to
// consolidation.
func noIdleNodes(ctx context.Context, w *World, app string) error {
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return err
	}
	all, err := pods(ctx, w, app)
	if err != nil {
		return err
	}
	overtaken := 0
	for _, n := range nodes.Items {
		if slices.ContainsFunc(all, func(p corev1.Pod) bool { return p.Spec.NodeName == n.Name }) {
			continue
		}
		if !neededAtCreation(w, n.OwnerReferences) {
			return fmt.Errorf("node %s has no pod of %s, and no pod waited for it when it was created: its launch was not necessary", n.Name, app)
		}
		overtaken++
	}
	w.Note("%d nodes have no pod: kube-scheduler bound their pods to nodes that were Ready before", overtaken)
	return nil
}

// neededAtCreation reports whether one of the pods that a Node's NodeClaim nominated was not running yet when it was created.
func neededAtCreation(w *World, owners []metav1.OwnerReference) bool {
	running := map[types.UID]time.Time{}
	for _, p := range w.History.Pods() {
		running[p.UID] = p.Running
	}
	for _, c := range w.History.Claims() {
		if !slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == c.UID }) {
			continue
		}
		return slices.ContainsFunc(c.LaunchedFor, func(uid types.UID) bool { return running[uid].IsZero() || running[uid].After(c.Seen) })
	}
	return false
}

// oneNominationPerPod checks that no pod was ever nominated to two NodeClaims. A pod that was nominated to none must
// have run: under load, kube-scheduler may bind it to capacity launched for other pods before a provisioning pass plans
// it.
func oneNominationPerPod(w *World) error {
	nominations := map[types.UID]int{}
	for _, c := range w.History.Claims() {
		for _, uid := range c.Pods {
			nominations[uid]++
		}
	}
	bound := 0
	for _, p := range w.History.Pods() {
		switch n := nominations[p.UID]; {
		case p.Namespace != metav1.NamespaceDefault:
		case n > 1:
			return fmt.Errorf("pod %s is in the annotation %s of %d NodeClaims, want one", p.Name, karpv1.AnnotationNominatedPods, n)
		case n == 0 && p.Running.IsZero():
			return fmt.Errorf("pod %s is in the annotation %s of no NodeClaim, and never ran", p.Name, karpv1.AnnotationNominatedPods)
		case n == 0:
			bound++
		}
	}
	w.Note("%d pods were bound to launched capacity before a provisioning pass planned them", bound)
	return nil
}

func oneInstancePerClaim(w *World) error {
	err := noDoubleLaunch(w)
	if claims, instances := len(w.History.Claims()), len(w.Instances()); claims != instances {
		err = errors.Join(err, fmt.Errorf("%d NodeClaims were created and %d instances launched", claims, instances))
	}
	return err
}

// noDoubleLaunch checks that no pod was ever nominated to two live NodeClaims, and that no NodeClaim got two instances.
// The instances of a batch launch that terminated before they got their NodeClaim's tag are only counted.
func noDoubleLaunch(w *World) error {
	var errs []error
	for _, v := range w.History.Violations() {
		errs = append(errs, errors.New(v))
	}
	instances := w.Instances()
	launched := map[string][]string{}
	for _, i := range instances {
		if claim := i.Tags[world.NodeClaimTag]; claim != "" {
			launched[claim] = append(launched[claim], i.ID)
		}
	}
	for claim, ids := range launched {
		if len(ids) > 1 {
			errs = append(errs, fmt.Errorf("NodeClaim %s got %d instances: %s", claim, len(ids), strings.Join(ids, ", ")))
		}
	}
	if claims := len(w.History.Claims()); len(instances) > claims {
		errs = append(errs, fmt.Errorf("%d instances were launched for %d NodeClaims", len(instances), claims))
	}
	return errors.Join(errs...)
}
