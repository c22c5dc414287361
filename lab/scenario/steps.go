package scenario

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// startController is the first step of most scenarios.
func startController() Step {
	return Step{
		Name: "start the controller", Timeout: 30 * time.Second,
		Run: func(ctx context.Context, w *World) error { return w.StartController(ctx) },
	}
}

// apply applies a manifest with these variables and CLUSTER_NAME.
func apply(ctx context.Context, w *World, manifest string, variables map[string]string) error {
	text, err := render(w, manifest, variables)
	if err != nil {
		return err
	}
	return w.Apply(ctx, text)
}

func render(w *World, manifest string, variables map[string]string) ([]byte, error) {
	all := map[string]string{"CLUSTER_NAME": w.Name}
	for name, value := range variables {
		all[name] = value
	}
	return manifests.Render(manifest, all)
}

// awaitPoolReady waits until all NodePools and EC2NodeClasses, at least one of each, are Ready.
func awaitPoolReady(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		var pools karpv1.NodePoolList
		var classes awsv1.EC2NodeClassList
		if err := list(ctx, w, &pools, &classes); err != nil {
			return err
		}
		if len(pools.Items) == 0 || len(classes.Items) == 0 {
			return errors.New("no NodePool or no EC2NodeClass")
		}
		for _, c := range classes.Items {
			if why := notReady(c.Status.Conditions); why != "" {
				return fmt.Errorf("EC2NodeClass %s is not ready: %s", c.Name, why)
			}
		}
		for _, p := range pools.Items {
			if why := notReady(p.Status.Conditions); why != "" {
				return fmt.Errorf("NodePool %s is not ready: %s", p.Name, why)
			}
		}
		return nil
	})
}

// notReady returns why an object with these conditions is not Ready, or an empty string if it is.
func notReady(conditions []metav1.Condition) string {
	var why []string
	for _, c := range conditions {
		if c.Type == karpv1.ConditionReady && c.Status == metav1.ConditionTrue {
			return ""
		}
		if c.Status != metav1.ConditionTrue {
			why = append(why, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Message))
		}
	}
	return strings.Join(append(why, "there is no condition Ready=True"), "; ")
}

// pods returns the pods of an app.
func pods(ctx context.Context, w *World, app string) ([]corev1.Pod, error) {
	var all corev1.PodList
	if err := list(ctx, w, &all); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return p.Labels["app"] != app }), nil
}

// running reports whether a pod runs and is ready.
func running(p corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning &&
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
}

// awaitMetric waits until the controller's metrics have a matching line, and returns it.
func awaitMetric(ctx context.Context, w *World, line *regexp.Regexp) (string, error) {
	var found string
	err := world.Until(ctx, func() error {
		text, err := w.Metrics(ctx)
		if err != nil {
			return err
		}
		if found = line.FindString(text); found == "" {
			return fmt.Errorf("the controller's metrics have no line %s", line)
		}
		return nil
	})
	return found, err
}

// awaitPodsRunning waits until an app has exactly want pods and all are ready. It ignores Failed pods: kubelet rejects
// a pod if the scheduler bound too many to its node, and the workload's controller creates a replacement.
func awaitPodsRunning(ctx context.Context, w *World, app string, want int) error {
	return world.Until(ctx, func() error {
		all, err := pods(ctx, w, app)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		up := 0
		for _, p := range all {
			if running(p) {
				up++
			}
		}
		if up != want || len(all) != want {
			return fmt.Errorf("%d of %d pods run, want %d", up, len(all), want)
		}
		return nil
	})
}

// awaitPodsTried waits until an app has so many pods, and kube-scheduler has tried each.
func awaitPodsTried(ctx context.Context, w *World, app string, want int) error {
	return world.Until(ctx, func() error {
		all, err := pods(ctx, w, app)
		if err != nil {
			return err
		}
		tried := 0
		for i := range all {
			if slices.ContainsFunc(all[i].Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }) {
				tried++
			}
		}
		if tried != want || len(all) != want {
			return fmt.Errorf("kube-scheduler has tried %d of %d pods, want %d", tried, len(all), want)
		}
		return nil
	})
}

// awaitPaired waits until each live instance has one NodeClaim and each NodeClaim one live instance.
func awaitPaired(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		return unpaired(claims.Items, w.Running())
	})
}

// unpaired returns an error that names the NodeClaims without a live instance and the live instances without a
// NodeClaim, or nil if there are none.
func unpaired(claims []karpv1.NodeClaim, live []awsim.Instance) error {
	claimed := map[string]string{}
	var errs []error
	for _, c := range claims {
		id := world.InstanceID(c.Status.ProviderID)
		if other, twice := claimed[id]; twice && id != "" {
			errs = append(errs, fmt.Errorf("instance %s belongs to NodeClaims %s and %s", id, other, c.Name))
		}
		claimed[id] = c.Name
		if !slices.ContainsFunc(live, func(i awsim.Instance) bool { return i.ID == id }) {
			errs = append(errs, fmt.Errorf("NodeClaim %s has no live instance", c.Name))
		}
	}
	for _, i := range live {
		if claimed[i.ID] == "" {
			errs = append(errs, fmt.Errorf("instance %s has no NodeClaim", i.ID))
		}
	}
	return errors.Join(errs...)
}

// awaitEmpty waits until an app has no pods, and there are no NodeClaims, no Nodes, and all instances are terminated.
func awaitEmpty(ctx context.Context, w *World, app string) error {
	return world.Until(ctx, func() error {
		left, err := pods(ctx, w, app)
		if err != nil {
			return err
		}
		var claims karpv1.NodeClaimList
		var nodes corev1.NodeList
		if err := list(ctx, w, &claims, &nodes); err != nil {
			return err
		}
		instances := 0
		for _, i := range w.Instances() {
			if i.State != "terminated" {
				instances++
			}
		}
		if len(left)+len(claims.Items)+len(nodes.Items)+instances > 0 {
			return fmt.Errorf(
				"still exist: %d pods, %d NodeClaims, %d Nodes, %d instances",
				len(left),
				len(claims.Items),
				len(nodes.Items),
				instances,
			)
		}
		return nil
	})
}

// removePool is the last step of most scenarios: it deletes NodePool and EC2NodeClass and waits until everything that
// was created for them is deleted, too.
func removePool(manifest string, variables map[string]string) Step {
	return Step{
		Name: "delete NodePool and EC2NodeClass: no resource is left", Timeout: 30 * time.Second,
		Run: func(ctx context.Context, w *World) error {
			text, err := render(w, manifest, variables)
			if err != nil {
				return err
			}
			if err := w.Delete(ctx, text); err != nil {
				return err
			}
			return awaitNothingLeft(ctx, w)
		},
	}
}

// deleteAll is the last step of scenarios that are not about emptiness. It deletes the pods and the NodePool at once,
// and so does not wait for consolidateAfter.
func deleteAll(app, manifest string) Step {
	pool := removePool(manifest, nil)
	return Step{
		Name: "delete the workload, NodePool and EC2NodeClass: no node, instance or other resource is left", Timeout: time.Minute,
		Run: func(ctx context.Context, w *World) error {
			if err := w.Scale(ctx, app, 0); err != nil {
				return err
			}
			if err := pool.Run(ctx, w); err != nil {
				return err
			}
			return awaitEmpty(ctx, w, app)
		},
	}
}

// awaitNothingLeft waits until neither the API server nor AWS has a resource of the autoscaler.
func awaitNothingLeft(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		var pools karpv1.NodePoolList
		var classes awsv1.EC2NodeClassList
		var claims karpv1.NodeClaimList
		var nodes corev1.NodeList
		if err := list(ctx, w, &pools, &classes, &claims, &nodes); err != nil {
			return err
		}
		var left []string
		for kind, n := range map[string]int{
			"NodePool": len(pools.Items), "EC2NodeClass": len(classes.Items), "NodeClaim": len(claims.Items), "Node": len(nodes.Items),
		} {
			if n > 0 {
				left = append(left, fmt.Sprintf("%d %s", n, kind))
			}
		}
		inAWS, err := w.LeftInAWS(ctx)
		if err != nil {
			return err
		}
		if left = append(left, inAWS...); len(left) > 0 {
			slices.Sort(left)
			return fmt.Errorf("left: %s", strings.Join(left, ", "))
		}
		return nil
	})
}

// noteCost notes the running instance types and their hourly cost.
func noteCost(ctx context.Context, w *World) error {
	perHour, err := w.Cost(ctx)
	if err != nil {
		return err
	}
	types := map[string]int{}
	for _, i := range w.Running() {
		types[i.Type]++
	}
	var counts []string
	for name, n := range types {
		counts = append(counts, fmt.Sprintf("%d x %s", n, name))
	}
	slices.Sort(counts)
	w.Note("%d nodes at $%.3f/h: %s", len(w.Running()), perHour, strings.Join(counts, ", "))
	return nil
}
