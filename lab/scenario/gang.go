package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// servesGangs has the control planes serve PodGroups, and the scheduler plan gangs, with further feature gates.
func servesGangs(more ...string) func(*world.Config) {
	return func(cfg *world.Config) {
		cfg.RuntimeConfig = []string{"scheduling.k8s.io/v1beta1"}
		cfg.FeatureGates = map[string]bool{"GenericWorkload": true}
		for _, gate := range more {
			cfg.FeatureGates[gate] = true
		}
	}
}

// gangPools are limits of manifests.GangPools, in CPUs: three nodes in each.
func gangPools(gangs, mixed string) map[string]string {
	return map[string]string{"GANGS": gangs, "MIXED": mixed}
}

// gangOf is a PodGroup of manifests.Gang with its pods.
type gangOf struct {
	name, pool    string
	pods, atLeast int
	key           string
}

func (g gangOf) create(ctx context.Context, w *World) error {
	topology := "[]"
	if g.key != "" {
		topology = fmt.Sprintf("[{key: %s}]", g.key)
	}
	return apply(ctx, w, manifests.Gang, map[string]string{
		"NAME": g.name, "POOL": g.pool, "REPLICAS": fmt.Sprint(g.pods), "MIN_COUNT": fmt.Sprint(g.atLeast), "KEY": topology,
	})
}

// gang plans gangs with the API server and the scheduler of Kubernetes.
func gang() Scenario {
	train := gangOf{name: "train", pool: "gangs", pods: 5, atLeast: 4}
	return Scenario{
		Name: "gang",
		Summary: "pods of a PodGroup get nodes for gang.minCount at once or none: with a limit, with two gangs for the room of " +
			"one, with pods of two sizes, and with the controller killed between the launches",
		Configure: servesGangs(),
		Steps: []Step{
			startController(),
			installPool(manifests.GangPools, gangPools("6", "12")),
			{
				Name: "create a gang of 4 with a limit of 3 nodes: events on pods and PodGroup name the limit, and no node is launched", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := train.create(ctx, w); err != nil {
						return err
					}
					message, err := awaitEventMessage(ctx, w, "PodGroup", "train", "FailedScheduling")
					if err == nil && (!strings.Contains(message, "gang.minCount") || !strings.Contains(message, "limit")) {
						err = fmt.Errorf("the event of the PodGroup does not name the field and the limit: %s", message)
					}
					w.Note("%s", message)
					return errors.Join(err, awaitPodEvents(ctx, w, "train", "3 of its 5 pods fit", 5), launchedInAll(w, "gangs", 0))
				},
			},
			{
				Name: "raise the limit to 4 nodes, kill the controller at the second NodeClaim: the gang runs on 4 nodes, the fifth pod waits", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					kill := killPoint{name: "the second NodeClaim is created", nth: 2, object: claimWithout(karpv1.ConditionLaunched)}
					err := killAt(ctx, w, kill, func() error { return apply(ctx, w, manifests.GangPools, gangPools("8", "12")) })
					return errors.Join(err, awaitSomeRunning(ctx, w, "train", 4), launchedInAll(w, "gangs", 4), oneInstancePerClaim(w))
				},
			},
			{
				Name: "raise the limit to 5 nodes: the fifth pod runs", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					err := apply(ctx, w, manifests.GangPools, gangPools("10", "12"))
					return errors.Join(err, awaitPodsRunning(ctx, w, "train", 5), launchedInAll(w, "gangs", 5), oneInstancePerClaim(w))
				},
			},
			{
				Name: "create 2 pods of a gang of 3, and a pod in no group: this one runs; with minCount 2 both others do, too", Timeout: time.Minute,
				Run: heldGang,
			},
			{
				Name: "create two gangs of 2 with room for 3 nodes, kill the controller at CreateFleet: one of them runs, then the other", Timeout: 90 * time.Second,
				Run: twoGangs,
			},
			{
				Name: "create a gang of one pod with 3 CPUs and two with 1.5: all run on two nodes or three", Timeout: time.Minute,
				Run: mixedGang,
			},
		},
	}
}

// gangWithoutCapacity has EC2 run out of instances for a gang.
func gangWithoutCapacity() Scenario {
	return Scenario{
		Name:      "gang-without-capacity",
		Summary:   "EC2 has instances for two of the three pods of a gang: their nodes go, and no other is launched for the gang",
		Configure: servesGangs(),
		Steps: []Step{
			startController(),
			installPool(manifests.GangPools, gangPools("10", "0")),
			{
				Name: "create a pod in no group, and a gang of 3 where EC2 has 2 instances: its nodes terminate, and no other is launched", Timeout: 2 * time.Minute,
				Run: awaitGivenUp,
			},
		},
	}
}

// killAt begins something, kills the controller at a point of it, and starts it again.
func killAt(ctx context.Context, w *World, at killPoint, begin func() error) error {
	return killInTurn(ctx, w, []killPoint{at}, begin)
}

// launchedInAll returns an error unless so many nodes were ever launched in the pool.
func launchedInAll(w *World, pool string, want int) error {
	if n := launchedFor(w, pool); n != want {
		return fmt.Errorf("%d nodes were launched in pool %s, want %d", n, pool, want)
	}
	return nil
}

// heldGang creates a gang that kube-scheduler holds until its minCount is lowered.
func heldGang(ctx context.Context, w *World) error {
	if err := apply(ctx, w, manifests.GangPools, gangPools("16", "12")); err != nil {
		return err
	}
	small := gangOf{name: "small", pool: "gangs", pods: 2, atLeast: 3}
	if err := errors.Join(small.create(ctx, w), w.Client.Create(ctx, gangPod("single", "gangs", "1500m", ""))); err != nil {
		return err
	}
	// The plan with this pod has those of the gang, too.
	if err := errors.Join(awaitPodsRunning(ctx, w, "single", 1), launchedInAll(w, "gangs", 6)); err != nil {
		return err
	}
	small.atLeast = 2
	return errors.Join(small.create(ctx, w), awaitPodsRunning(ctx, w, "small", 2), launchedInAll(w, "gangs", 8))
}

// twoGangs creates two gangs of which one has room.
func twoGangs(ctx context.Context, w *World) error {
	if err := apply(ctx, w, manifests.GangPools, gangPools("22", "12")); err != nil {
		return err
	}
	kill := killPoint{name: "CreateFleet has taken effect", nth: 1, call: controllerCall("CreateFleet")}
	err := killAt(ctx, w, kill, func() error {
		one, two := gangOf{name: "one", pool: "gangs", pods: 2, atLeast: 2}, gangOf{name: "two", pool: "gangs", pods: 2, atLeast: 2}
		return errors.Join(one.create(ctx, w), two.create(ctx, w))
	})
	if err != nil {
		return err
	}
	first, second := "one", "two"
	err = world.Until(ctx, func() error {
		for _, name := range []string{"one", "two"} {
			all, err := pods(ctx, w, name)
			if err != nil {
				return err
			}
			if len(all) == 2 && running(all[0]) && running(all[1]) {
				if first = name; name == "two" {
					second = "one"
				}
				return nil
			}
		}
		return errors.New("neither gang runs")
	})
	if err != nil {
		return err
	}
	if err := errors.Join(awaitPodEvents(ctx, w, second, "1 of its 2 pods fit", 2), launchedInAll(w, "gangs", 10)); err != nil {
		return err
	}
	w.Note("gang %s runs, and gang %s waits", first, second)
	err = apply(ctx, w, manifests.GangPools, gangPools("24", "12"))
	return errors.Join(err, awaitPodsRunning(ctx, w, second, 2), launchedInAll(w, "gangs", 12), oneInstancePerClaim(w))
}

// mixedGang creates a gang with a large pod. The small ones could fill its node.
func mixedGang(ctx context.Context, w *World) error {
	mixed := gangOf{name: "mixed", pool: "mixed", pods: 2, atLeast: 3}
	before := launchedFor(w, "mixed")
	large := gangPod("mixed", "mixed", "3", "mixed")
	if err := errors.Join(mixed.create(ctx, w), w.Client.Create(ctx, large)); err != nil {
		return err
	}
	if err := awaitSomeRunning(ctx, w, "mixed", 3); err != nil {
		return err
	}
	n := launchedFor(w, "mixed") - before
	w.Note("%d nodes", n)
	if n > 3 {
		return fmt.Errorf("%d nodes were launched for a gang that fits on 3", n)
	}
	return nil
}

// gangPod is a pod on the pool's nodes, in a group unless that is empty.
func gangPod(app, pool, cpu, group string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.GenerateName, pod.Namespace, pod.Labels = app+"-", "default", map[string]string{"app": app}
	pod.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} // nothing would make it again
	if group != "" {
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	}
	pod.Spec.NodeSelector = map[string]string{karpv1.LabelNodePool: pool}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "registry.k8s.io/pause:3.10", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
	}}}
	return pod
}

// awaitGivenUp creates a gang for a part of which EC2 has no capacity.
func awaitGivenUp(ctx context.Context, w *World) error {
	if err := errors.Join(w.Client.Create(ctx, gangPod("single", "gangs", "1500m", "")), awaitPodsRunning(ctx, w, "single", 1)); err != nil {
		return err
	}
	zones := w.AWS.EC2().Zones()
	for _, zone := range zones {
		w.AWS.SetCapacity(awsim.Pool{InstanceType: "m5.large", Zone: zone.Name}, 0)
	}
	w.AWS.SetCapacity(awsim.Pool{InstanceType: "m5.large", Zone: zones[0].Name}, 2)
	gang := gangOf{name: "scarce", pool: "gangs", pods: 3, atLeast: 3}
	if err := errors.Join(gang.create(ctx, w), awaitPodEvents(ctx, w, "scarce", "2 of its 3 pods fit", 3)); err != nil {
		return err
	}
	err := world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		if n := len(claims.Items); n != 1 {
			return fmt.Errorf("%d nodes of the gang are left", n-1)
		}
		return nil
	})
	w.Note("%d NodeClaims were created for the gang", launchedFor(w, "gangs")-1)
	return errors.Join(err, launchedInAll(w, "gangs", 4), awaitSomeRunning(ctx, w, "scarce", 0), awaitPodsRunning(ctx, w, "single", 1))
}
