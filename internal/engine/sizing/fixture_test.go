package sizing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/lp"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/price"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// fixture is a Sizer with the pods of a queue, priced, in one pool.
type fixture struct {
	*Sizer
	t      *testing.T
	pool   *nodepool.Template
	bins   *bin.Set
	slots  reservation.Slots
	queue  []*Pods // the classes of the pods, in the order of the pods
	market *price.Market
	steps  int
}

// newFixture has the pods wait for nodes of the pool.
func newFixture(t *testing.T, pool snapshot.Pool, pods ...*corev1.Pod) *fixture {
	t.Helper()
	f := &fixture{t: t}
	s := enginetest.World([]snapshot.Pool{pool}, pods...)
	axes, volumes := resources.NewAxes(enginetest.Resources("cpu", "0", "memory", "0", "pods", "0")), volume.NewLimits(s, nil)
	registry := topology.NewRegistry(s, map[types.UID]bool{})
	models := nodepool.NewModels(nodepool.Config{
		Labels: s.Labels, Axes: axes, Slots: &f.slots, Steps: &f.steps, LimitVolumes: func(resources.Vec, map[string]int, map[string]int) {},
	}, s.Pools)
	f.slots.TakeInFlight(nil, s.Labels.ReservationID)
	f.pool = models.All()[0]
	registry.AddPool(f.pool.ForTopology(), false)
	f.bins = bin.NewSet(bin.Config{
		Axes: axes, Topology: registry, Volumes: volumes, Devices: devices.New(s), Slots: &f.slots,
		ReservationLabel: s.Labels.ReservationID, Steps: &f.steps,
	})
	f.compile(podclass.Config{
		Snapshot: s, Topology: registry, Volumes: volumes, RespectPreferences: true, Steps: &f.steps, Pools: models,
	}, axes, pods)
	f.Sizer = NewSizer(Config{
		Pools: models, Bins: f.bins, Slots: &f.slots, CPU: axes.IndexOf(corev1.ResourceCPU), Memory: axes.IndexOf(corev1.ResourceMemory),
		Level: func(p *Pods) *podclass.Level { return p.Levels()[0] }, Steps: &f.steps,
	})
	f.Start(true)
	groups := NewGrouper(registry.Groups())
	for _, p := range f.queue {
		groups.Join(p)
		f.Add(p)
	}
	f.price(models, axes)
	return f
}

// compile sorts the pods into classes.
func (f *fixture) compile(c podclass.Config, axes resources.Axes, pods []*corev1.Pod) {
	f.t.Helper()
	compiler, classifier := podclass.NewCompiler(c), podclass.NewClassifier(false, &snapshot.Settings{})
	for _, pod := range pods {
		class, err := classifier.ClassOf(pod)
		if err != nil {
			f.t.Fatal(err)
		}
		if class.Number() < len(f.queue) {
			f.queue[class.Number()].Join()
			continue
		}
		class.Measure(axes, c.Volumes, make(resources.Vec, axes.Len()))
		p := NewPods(class, nil)
		p.Join()
		if f.queue = append(f.queue, &p); !class.IsRead() {
			compiler.Read(class.Constraints, pod)
			compiler.Compile(class.Constraints)
		}
	}
	c.Topology.CountDeclared()
	c.Topology.Index()
	for _, p := range f.queue {
		compiler.Find(p.Constraints)
	}
}

// price gives all pods their values.
func (f *fixture) price(models *nodepool.Models, axes resources.Axes) {
	problem := price.Problem{Pools: models, Axes: axes.Len(), Free: make([]float64, axes.Len())}
	for i, p := range f.queue {
		lists := []*nodepool.Candidates{f.pool.Candidates(f.pool.Requirements()).Narrow(p.Levels()[0].InternedFull())}
		problem.Usable = append(problem.Usable, lists)
		problem.Pods = append(problem.Pods, price.Pods{Requests: p.Requests(), Count: p.Left(), Usable: i})
	}
	f.market = price.NewMarket(problem)
	for i, p := range f.queue {
		p.Enter(f.market.Number(i))
	}
	f.appraise()
}

// appraise gives all pods the values of the market.
func (f *fixture) appraise() {
	f.Reprice(f.market)
	for _, p := range f.queue {
		p.Appraise(f.market.Value(p.InMarket()))
	}
}

// reprice solves the market for the pods that are left.
func (f *fixture) reprice() {
	var left []lp.Left
	for _, p := range f.Waiting() {
		left = append(left, lp.Left{Pods: p.InMarket(), Count: p.Left()})
	}
	f.market.Program().Resolve(left)
	f.appraise()
}

// opening is a new bin for the first of these pods.
func (f *fixture) opening(first *Pods) *Opening {
	f.t.Helper()
	o := &Opening{Bin: f.bins.Fresh(f.pool), First: first}
	g, why := f.bins.Grow(o.Bin, first.Class, first.Levels()[0], bin.AnyPrice)
	if why != nil {
		f.t.Fatalf("no new bin takes a pod of %s: %v", first.Pod().Name, why.Code())
	}
	o.Growth = g
	return o
}
