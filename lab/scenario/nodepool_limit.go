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

// nodePoolLimit is a configuration as many a tutorial has it: old machines, an image of one's own, a label
// to select the nodes by, and a limit.
func nodePoolLimit() Scenario {
	const (
		app       = "article"
		limit     = 4  // CPUs, as the NodePool says
		more      = 12 // pods, of which the limit allows about a half
		imageName = "amazon-eks-node-1.32-"
	)
	variables := map[string]string{}
	return Scenario{
		Name:    "article-config",
		Summary: "two small machine types, an AL2 image by ID, a label, and a limit that holds and is told",
		Steps: []Step{
			startController(),
			{
				Name: "create NodePool and EC2NodeClass with an explicit AL2 image: they get ready", Timeout: 20 * time.Second,
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
				Name: "the nodes are what the NodePool says", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error { return nodesMatchPool(ctx, w, variables["AMI_ID"]) },
			},
			{
				Name: "dovetail plan says of the same manifests what was bought", Timeout: 20 * time.Second,
				Run: func(ctx context.Context, w *World) error { return planMatchesLaunches(ctx, w, app, variables) },
			},
			{
				Name: "scale beyond the limit: the pods above it are told which one", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Scale(ctx, app, more); err != nil {
						return err
					}
					return awaitLimitEvents(ctx, w, app, more)
				},
			},
			{
				Name: fmt.Sprintf("there never were more than %d CPUs", limit), Timeout: 10 * time.Second,
				Run: func(_ context.Context, w *World) error {
					peak := peakCPUs(w.Instances())
					w.Note("at most %d CPUs at a time", peak)
					if peak > limit {
						return fmt.Errorf("at one time there were instances with %d CPUs, the limit is %d", peak, limit)
					}
					return nil
				},
			},
			{
				Name: "scale to 0: all nodes and instances go", Timeout: time.Minute,
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

// nodesMatchPool checks types, image and label of the nodes.
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

// foretold compares the claims of the cluster with those that a plan of the manifests shows: pool, machine type and
// number of pods of each.
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
	var said, bought []string
	for _, c := range plan.Claims {
		said = append(said, fmt.Sprintf("%s %s for %d pods", c.NodePool, c.Offering.InstanceType, len(c.Pods)))
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
		bought = append(bought, fmt.Sprintf("%s %s for %d pods", c.Labels[karpv1.LabelNodePool], c.Labels[corev1.LabelInstanceTypeStable], on[c.Status.NodeName]))
	}
	slices.Sort(said)
	slices.Sort(bought)
	if !slices.Equal(said, bought) || len(plan.Unschedulable) > 0 {
		return fmt.Errorf("the plan is %q with %d pods left over; bought was %q", said, len(plan.Unschedulable), bought)
	}
	w.Note("%s", strings.Join(said, ", "))
	return nil
}

// awaitLimitEvents waits until each pod of an app either runs or has an event that names the CPU limit, and there
// are some of both.
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
		var up, told int
		var message string
		for _, p := range all {
			if running(p) {
				up++
				continue
			}
			if m := limitEvent(events.Items, p); m != "" {
				told++
				message = m
			}
		}
		if len(all) != want || up == 0 || told == 0 || up+told != want {
			return fmt.Errorf("of %d pods %d run and %d have an event about the limit", len(all), up, told)
		}
		w.Note("%d pods run, %d are told: %s", up, told, message)
		return nil
	})
}

// limitEvent is the message of the autoscaler's event on a pod that names the limit of 4 CPUs.
func limitEvent(events []corev1.Event, p corev1.Pod) string {
	for _, e := range events {
		about := e.InvolvedObject.UID == p.UID && e.Reason == "FailedScheduling"
		if about && strings.Contains(e.Message, `nodepool "article"`) && strings.Contains(e.Message, "limit of 4 cpu") {
			return e.Message
		}
	}
	return ""
}

// peakCPUs is the largest number of CPUs that instances had at the same time, counting each from its launch
// until its last change of state on the way out.
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
	// At the same moment, what goes makes room for what comes.
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.cpus, b.cpus)) })
	now, peak := 0, 0
	for _, c := range changes {
		now += c.cpus
		peak = max(peak, now)
	}
	return peak
}
