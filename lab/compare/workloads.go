package compare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Workload is what both autoscalers are to do.
type Workload struct {
	// Name is a word; Summary is what it does.
	Name, Summary string
	Run           func(ctx context.Context, r *run) error
}

// How long nothing must change until a workload has come to its end. A consolidation waits longer between two of its steps.
const (
	quiet              = 5 * time.Second
	quietConsolidation = time.Minute
)

// Workloads are all.
func Workloads() []Workload {
	return []Workload{
		{"launch", "40 pods of one size, spot or on-demand", launch},
		{"bin-pack", "90 pods of five sizes, of much CPU or much memory, on-demand", binPack},
		{"spread", "30 pods spread over three zones, on-demand", spread},
		{"consolidation", "45 pods on-demand, five of them on a node each, then 11 of them", consolidation},
		{"drift", "6 nodes of which each gets another label, three at a time", drift},
		{"spot-interruption", "6 spot instances, of which EC2 interrupts 2", interruption},
	}
}

// pool is a NodePool with an EC2NodeClass.
type pool struct {
	capacityTypes    string // a YAML list
	consolidateAfter string
	generation       int // a label of its nodes
}

// applyPool returns when the NodePool is ready, so that pods wait for nodes alone.
func (r *run) applyPool(ctx context.Context, p pool) error {
	err := r.render(ctx, "pool.yaml", map[string]string{
		"CLUSTER_NAME": r.Name, "CAPACITY_TYPES": p.capacityTypes, "CONSOLIDATE_AFTER": p.consolidateAfter,
		"GENERATION": fmt.Sprint(p.generation),
	})
	if err != nil {
		return err
	}
	return world.Until(ctx, func() error {
		now := &karpv1.NodePool{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: "default"}, now); err != nil {
			return err
		}
		if !condition.IsTrue(now, karpv1.ConditionReady) {
			return errors.New("NodePool default is not ready")
		}
		return nil
	})
}

// app is a Deployment.
type app struct {
	name        string
	replicas    int
	cpu, memory string
	// constraint is a field of the pods' spec as JSON, without the braces.
	constraint string
}

const (
	zoneSpread = `"topologySpreadConstraints":[{"topologyKey":"topology.kubernetes.io/zone","maxSkew":1,` +
		`"whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"spread"}}}],`
	nodeEach = `"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":` +
		`[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"each"}}}]}},`
)

func (r *run) applyApps(ctx context.Context, apps ...app) error {
	for _, a := range apps {
		err := r.render(ctx, "app.json", map[string]string{
			"NAME": a.name, "REPLICAS": fmt.Sprint(a.replicas), "CPU": a.cpu, "MEMORY": a.memory, "CONSTRAINT": a.constraint,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	onDemand = "[on-demand]"
	spot     = "[spot]"
	both     = "[on-demand, spot]"
	never    = "Never"
)

func launch(ctx context.Context, r *run) error {
	if err := r.applyPool(ctx, pool{capacityTypes: both, consolidateAfter: never}); err != nil {
		return err
	}
	if err := r.applyApps(ctx, app{name: "web", replicas: 40, cpu: "1", memory: "2Gi"}); err != nil {
		return err
	}
	return r.settle(ctx, 40, quiet)
}

func binPack(ctx context.Context, r *run) error {
	if err := r.applyPool(ctx, pool{capacityTypes: onDemand, consolidateAfter: never}); err != nil {
		return err
	}
	err := r.applyApps(ctx,
		app{name: "small", replicas: 40, cpu: "250m", memory: "512Mi"},
		app{name: "web", replicas: 20, cpu: "1", memory: "2Gi"},
		app{name: "compute", replicas: 12, cpu: "3500m", memory: "3Gi"},
		app{name: "cache", replicas: 12, cpu: "500m", memory: "12Gi"},
		app{name: "large", replicas: 6, cpu: "6", memory: "24Gi"},
	)
	if err != nil {
		return err
	}
	return r.settle(ctx, 90, quiet)
}

func spread(ctx context.Context, r *run) error {
	if err := r.applyPool(ctx, pool{capacityTypes: onDemand, consolidateAfter: never}); err != nil {
		return err
	}
	if err := r.applyApps(ctx, app{name: "spread", replicas: 30, cpu: "1", memory: "2Gi", constraint: zoneSpread}); err != nil {
		return err
	}
	return r.settle(ctx, 30, quiet)
}

func consolidation(ctx context.Context, r *run) error {
	if err := r.applyPool(ctx, pool{capacityTypes: onDemand, consolidateAfter: "5s"}); err != nil {
		return err
	}
	apps := []app{
		{name: "web", replicas: 40, cpu: "1", memory: "2Gi"},
		{name: "each", replicas: 5, cpu: "1", memory: "2Gi", constraint: nodeEach},
	}
	if err := r.applyApps(ctx, apps...); err != nil {
		return err
	}
	if err := r.settle(ctx, 45, quiet); err != nil {
		return err
	}
	for i := range apps {
		if err := r.Scale(ctx, apps[i].name, int32(apps[i].replicas/4)); err != nil {
			return err
		}
	}
	return r.settle(ctx, 11, quietConsolidation)
}

// nodesEach is how many nodes there are where each pod has one.
const nodesEach = 6

func (r *run) fill(ctx context.Context, capacity string) error {
	if err := r.applyPool(ctx, pool{capacityTypes: capacity, consolidateAfter: never, generation: 1}); err != nil {
		return err
	}
	if err := r.applyApps(ctx, app{name: "each", replicas: nodesEach, cpu: "1", memory: "2Gi", constraint: nodeEach}); err != nil {
		return err
	}
	return r.settle(ctx, nodesEach, quiet)
}

func drift(ctx context.Context, r *run) error {
	if err := r.fill(ctx, onDemand); err != nil {
		return err
	}
	before := r.Running()
	if err := r.applyPool(ctx, pool{capacityTypes: onDemand, consolidateAfter: never, generation: 2}); err != nil {
		return err
	}
	return errors.Join(r.gone(ctx, before), r.settle(ctx, nodesEach, quiet))
}

func interruption(ctx context.Context, r *run) error {
	if err := r.fill(ctx, spot); err != nil {
		return err
	}
	interrupted := r.Running()[:2]
	for _, i := range interrupted {
		if err := r.AWS.EC2().Reclaim(i.ID); err != nil {
			return err
		}
	}
	return errors.Join(r.gone(ctx, interrupted), r.settle(ctx, nodesEach, quiet))
}

// gone waits until none of the instances runs.
func (r *run) gone(ctx context.Context, instances []awsim.Instance) error {
	return world.Until(ctx, func() error {
		left := slices.DeleteFunc(r.Running(), func(i awsim.Instance) bool {
			return !slices.ContainsFunc(instances, func(b awsim.Instance) bool { return b.ID == i.ID })
		})
		if len(left) > 0 {
			return fmt.Errorf("%d of %d instances still run", len(left), len(instances))
		}
		return nil
	})
}

// settle waits until this many pods run, and neither pods nor instances have changed for so long.
func (r *run) settle(ctx context.Context, pods int, unchanged time.Duration) error {
	var last string
	var since time.Time
	return world.Until(ctx, func() error {
		running, state, err := r.state(ctx)
		if err != nil {
			return err
		}
		if state != last {
			last, since = state, time.Now()
		}
		if running != pods {
			return fmt.Errorf("%d pods run, want %d", running, pods)
		}
		if quiet := time.Since(since); quiet < unchanged {
			return fmt.Errorf("pods or instances changed %.0f s ago", quiet.Seconds())
		}
		return nil
	})
}

// state is how many pods run that are not being deleted, and all pods and instances as text. It counts a pod that waits as one that does
// not run, so that settle waits for it.
func (r *run) state(ctx context.Context) (running int, all string, err error) {
	var pods corev1.PodList
	if err := r.Reader.List(ctx, &pods); err != nil {
		return 0, "", err
	}
	names := map[string]bool{}
	for _, p := range pods.Items {
		if p.Namespace != metav1.NamespaceDefault {
			continue
		}
		names[p.Name+" "+string(p.Status.Phase)+" "+p.Spec.NodeName] = true
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			running++
		}
	}
	for _, i := range r.Running() {
		names[i.ID] = true
	}
	return running, strings.Join(slices.Sorted(maps.Keys(names)), "\n"), nil
}
