package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// nodePoolLimit runs a configuration that many tutorials show: small burstable instance types, a custom AMI by ID, a
// node label, and a CPU limit.
func nodePoolLimit() Scenario {
	const (
		app       = "limited"
		limit     = 4  // CPUs, spec.limits of the NodePool
		more      = 12 // pods; the limit allows about half of them
		imageName = "amazon-eks-node-1.32-"
	)
	variables := map[string]string{}
	return Scenario{
		Name:    "nodepool-limit",
		Summary: "a NodePool with two small instance types, an AL2 image by ID, a label, and a CPU limit: the limit holds, and pods above it get an event",
		Steps: []Step{
			startController(),
			{
				Name: "create NodePool and EC2NodeClass with an AL2 image by ID: both become Ready", Timeout: 20 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					image, err := w.ImageID(ctx, imageName)
					if err != nil {
						return err
					}
					variables["AMI_ID"] = image
					w.Note("image %s", image)
					if err := apply(ctx, w, manifests.LimitedPool, variables); err != nil {
						return err
					}
					return awaitPoolReady(ctx, w)
				},
			},
			{
				Name: "create two pods that select nodegroup=karpenter: they run", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.LimitedWorkload, nil); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, app, 2); err != nil {
						return err
					}
					return noteCost(ctx, w)
				},
			},
			{
				Name: "the nodes have the NodePool's instance types, image and label", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error { return nodesMatchPool(ctx, w, variables["AMI_ID"]) },
			},
			{
				Name: "dovetail plan with the same manifests gives the nodes that were launched", Timeout: 20 * time.Second,
				Run: func(ctx context.Context, w *World) error { return planMatchesLaunches(ctx, w, app, variables) },
			},
			{
				Name: "scale beyond the limit: an event on each pending pod names the limit", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Scale(ctx, app, more); err != nil {
						return err
					}
					return awaitLimitEvents(ctx, w, app, more)
				},
			},
			{
				Name: fmt.Sprintf("the instances never had more than %d CPUs", limit), Timeout: 10 * time.Second,
				Run: func(_ context.Context, w *World) error {
					peak := peakCPUs(w.Instances())
					w.Note("at most %d CPUs at a time", peak)
					if peak > limit {
						return fmt.Errorf("the instances had %d CPUs at one time, the limit is %d", peak, limit)
					}
					return nil
				},
			},
			{
				Name: "scale to 0: all nodes and instances terminate", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Scale(ctx, app, 0); err != nil {
						return err
					}
					return awaitEmpty(ctx, w, app)
				},
			},
			removePool(manifests.LimitedPool, variables),
		},
	}
}

// nodesMatchPool checks instance types, image and label of the nodes.
func nodesMatchPool(ctx context.Context, w *World, image string) error {
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return err
	}
	for _, n := range nodes.Items {
		if got := n.Labels["nodegroup"]; got != "karpenter" {
			return fmt.Errorf("node %s has the label nodegroup=%q", n.Name, got)
		}
	}
	for _, i := range w.Running() {
		if i.Type != "t2.small" && i.Type != "t2.medium" || i.ImageID != image {
			return fmt.Errorf("instance %s is a %s with image %s", i.ID, i.Type, i.ImageID)
		}
	}
	return nil
}

// planMatchesLaunches compares the NodeClaims of the cluster with those of `dovetail plan` for the same manifests: NodePool,
// instance type and number of pods.
func planMatchesLaunches(ctx context.Context, w *World, app string, variables map[string]string) error {
	var files [][]byte
	for _, name := range []string{manifests.LimitedPool, manifests.LimitedWorkload} {
		text, err := render(w, name, variables)
		if err != nil {
			return err
		}
		files = append(files, text)
	}
	plan, err := w.Plan(ctx, files...)
	if err != nil {
		return err
	}
	var planned, launched []string
	for _, c := range plan.Claims {
		planned = append(planned, fmt.Sprintf("%s %s for %d pods", c.NodePool, c.Offering.InstanceType, len(c.Pods)))
	}
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return err
	}
	all, err := pods(ctx, w, app)
	if err != nil {
		return err
	}
	on := map[string]int{}
	for _, p := range all {
		on[p.Spec.NodeName]++
	}
	for _, c := range claims.Items {
		launched = append(
			launched,
			fmt.Sprintf("%s %s for %d pods", c.Labels[karpv1.LabelNodePool], c.Labels[corev1.LabelInstanceTypeStable], on[c.Status.NodeName]),
		)
	}
	slices.Sort(planned)
	slices.Sort(launched)
	if !slices.Equal(planned, launched) || len(plan.Unschedulable) > 0 {
		return fmt.Errorf("the plan has %q and %d unschedulable pods; launched were %q", planned, len(plan.Unschedulable), launched)
	}
	w.Note("%s", strings.Join(planned, ", "))
	return nil
}

// awaitLimitEvents waits until each pod of an app either runs or has an event that names the CPU limit, and there are
// pods of both kinds.
func awaitLimitEvents(ctx context.Context, w *World, app string, want int) error {
	return world.Until(ctx, func() error {
		all, err := pods(ctx, w, app)
		if err != nil {
			return err
		}
		var events corev1.EventList
		if err := list(ctx, w, &events); err != nil {
			return err
		}
		var up, limited int
		var message string
		for _, p := range all {
			if running(p) {
				up++
				continue
			}
			if m := limitEvent(events.Items, p); m != "" {
				limited++
				message = m
			}
		}
		if len(all) != want || up == 0 || limited == 0 || up+limited != want {
			return fmt.Errorf("of %d pods %d run and %d have an event about the limit", len(all), up, limited)
		}
		w.Note("%d pods run, %d have the event: %s", up, limited, message)
		return nil
	})
}

// limitEvent returns the message of the autoscaler's event on a pod that names the limit of 4 CPUs.
func limitEvent(events []corev1.Event, p corev1.Pod) string {
	for _, e := range events {
		about := e.InvolvedObject.UID == p.UID && e.Reason == "FailedScheduling"
		if about && strings.Contains(e.Message, `nodepool "limited"`) && strings.Contains(e.Message, "limit of 4 cpu") {
			return e.Message
		}
	}
	return ""
}

// peakCPUs returns the largest number of CPUs that the instances had at the same time. Each counts from its launch
// until its last state change while terminating. The cost is O(n log n): a sweep over sorted starts and stops.
func peakCPUs(instances []awsim.Instance) int {
	type change struct {
		at   time.Time
		cpus int
	}
	var changes []change
	for _, i := range instances {
		changes = append(changes, change{i.LaunchedAt, i.VCPUs})
		if i.State == ec2.Terminated || i.State == ec2.ShuttingDown {
			changes = append(changes, change{i.StateChangedAt, -i.VCPUs})
		}
	}
	// At equal times, stops sort before starts.
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.cpus, b.cpus)) })
	now, peak := 0, 0
	for _, c := range changes {
		now += c.cpus
		peak = max(peak, now)
	}
	return peak
}
