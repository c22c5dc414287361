package status

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// countInterval is the time between two writes of usage with up to nodesPerInterval nodes: people and tools watch it. It grows with
// the number of nodes, since each pass sums all of them, which takes 50 ms of CPU for 5,000.
const (
	countInterval    = 5 * time.Second
	nodesPerInterval = 1000
	// unchangedInterval sets how long nothing is counted while no object has changed since a pass that counted everything: schedules of
	// budgets, which are in minutes, begin and end.
	unchangedInterval = time.Minute
)

// usage sums the resources of each pool's nodes.
type usage interface {
	Usage(ctx context.Context) (map[string]corev1.ResourceList, error)
	Nodes(ctx context.Context) (*snapshot.Snapshot, error)
	Version(ctx context.Context) (cluster.Version, bool)
}

// Counter keeps status.resources, status.nodes and status.disruption of every NodePool.
type Counter struct {
	Client  client.Client
	State   usage
	Metrics *metrics.Metrics
	// OmitMetrics omits limits and usage from the metrics.
	OmitMetrics bool
	Log         *slog.Logger
	Now         func() time.Time

	// measured are the series that the last pass wrote, of usage and of limits.
	measured [2]map[series]bool
	// nodes counts how many nodes the last pass has counted.
	nodes int64
	// disruption holds what status.disruption needs from pass to pass.
	disruption disruptionCounter
	// counted is the version that the last pass which left nothing out has counted, at countedAt.
	counted   cluster.Version
	countedAt time.Time
}

// series is the labels of a gauge's series.
type series struct{ resource, pool string }

// NeedLeaderElection makes sure that only one replica writes.
func (c *Counter) NeedLeaderElection() bool { return true }

// Start counts until ctx is canceled.
func (c *Counter) Start(ctx context.Context) error {
	_ = wait.DelayFunc(c.interval).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := c.pass(ctx); err != nil && ctx.Err() == nil {
			c.Log.Error("counting the usage of node pools", "error", err)
		}
		return false, nil
	}) // returns only the context's error
	return nil
}

func (c *Counter) interval() time.Duration {
	return countInterval * time.Duration(1+c.nodes/nodesPerInterval)
}

// pass counts, unless nothing has changed.
func (c *Counter) pass(ctx context.Context) error {
	version, known := c.State.Version(ctx)
	now := c.Now()
	if known && version == c.counted {
		if now.Sub(c.countedAt) < unchangedInterval {
			return nil
		}
		c.disruption.makeDue()
	}
	complete, err := c.count(ctx)
	if err == nil && known && complete {
		c.counted, c.countedAt = version, now
	}
	return err
}

// count writes what has changed. It is not complete if status.disruption is left to a later pass.
func (c *Counter) count(ctx context.Context) (complete bool, err error) {
	used, err := c.State.Usage(ctx)
	if err != nil {
		return false, err
	}
	var pools karpv1.NodePoolList
	if err := c.Client.List(ctx, &pools); err != nil {
		return false, err
	}
	if !c.OmitMetrics {
		c.measure(pools.Items, used)
	}
	counts, err := c.disruption.count(ctx, c.State, pools.Items)
	if err != nil {
		return false, err
	}
	c.nodes = 0
	for i := range pools.Items {
		pool := &pools.Items[i]
		if !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
			continue
		}
		sum := withZeros(used[pool.Name])
		before := pool.DeepCopy()
		nodes := quantity.Value(sum[cluster.ResourceNodes])
		c.nodes += nodes
		pool.Status.Resources, pool.Status.Nodes = sum, &nodes
		c.disruption.set(pool, counts[pool.Name])
		if equality.Semantic.DeepEqual(before.Status, pool.Status) {
			continue
		}
		if err := c.Client.Status().Patch(ctx, pool, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return false, err
		}
		c.disruption.written(pool, counts[pool.Name])
	}
	return counts != nil, nil
}

// measure writes the gauges, and deletes those of pools and limits that are gone.
func (c *Counter) measure(pools []karpv1.NodePool, used map[string]corev1.ResourceList) {
	usage, limits := map[series]bool{}, map[series]bool{}
	for i := range pools {
		pool := &pools[i]
		if !awsv1.IsEC2NodeClass(pool.Spec.Template.Spec.NodeClassRef) {
			continue
		}
		set(c.Metrics.PoolUsage, usage, pool.Name, withZeros(used[pool.Name]))
		set(c.Metrics.PoolLimit, limits, pool.Name, corev1.ResourceList(pool.Spec.Limits))
	}
	forget(c.Metrics.PoolUsage, c.measured[0], usage)
	forget(c.Metrics.PoolLimit, c.measured[1], limits)
	c.measured = [2]map[series]bool{usage, limits}
}

func set(gauge *prometheus.GaugeVec, written map[series]bool, pool string, list corev1.ResourceList) {
	for name, q := range list {
		gauge.WithLabelValues(string(name), pool).Set(q.AsApproximateFloat64())
		written[series{string(name), pool}] = true
	}
}

// forget deletes the series that were written before and are not now.
func forget(gauge *prometheus.GaugeVec, before, now map[series]bool) {
	for s := range before {
		if !now[s] {
			gauge.DeleteLabelValues(s.resource, s.pool)
		}
	}
}

// withZeros adds the resources that tools expect in every list.
func withZeros(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods,
		corev1.ResourceEphemeralStorage, cluster.ResourceNodes,
	} {
		out[name] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	for name, q := range list {
		out[name] = q
	}
	return out
}
