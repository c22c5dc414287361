package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// Cluster describes what is watched.
type Cluster struct {
	// Client reads the cluster: it needs the verbs list and watch.
	Client client.WithWatch
	// Name names the cluster on the screen.
	Name string
	// Config is for planning.
	Config inspect.Config
}

// The intervals of the loop. A screen that changes twice a second is as fast as people read numbers. metrics-server measures
// every 15 s by default; half of that rate shows every trend.
const (
	refreshInterval = 500 * time.Millisecond
	metricsInterval = 30 * time.Second
	retryInterval   = 30 * time.Second
)

// planInterval returns how old a forecast may be before it is computed again: at least 2 s, and so long that planning takes at
// most one fiftieth of one core.
func planInterval(took time.Duration) time.Duration { return max(2*time.Second, 50*took) }

// refreshPause returns how long a state stays on the screen while more changes: at least refreshInterval, and so long that observing
// takes at most one hundredth of one core. Drawing takes about as much again; with 2,000 nodes, 22,000 pods and 20 changes a
// second, the whole process stays below a twentieth. On a busy computer it takes longer; then the screen is 5 s old at most.
func refreshPause(took time.Duration) time.Duration {
	return min(max(refreshInterval, 100*took), 5*time.Second)
}

// Watcher watches a cluster. Its zero value is not usable: see NewWatcher.
type Watcher struct {
	Cluster
	stores  []*store
	dirty   chan struct{}
	mu      sync.Mutex
	used    map[string]top.Used
	prices  *fleet.Prices
	problem string
	// version counts changes of the cluster, so that an unchanged one is not planned again.
	version int

	// sending is held while a state is made and sent.
	sending sync.Mutex
	// viewing is held while a View is made: one at a time.
	viewing   sync.Mutex
	unwatched unwatched
}

// Run sends Observed and Predicted messages until the context is canceled. It sends only when something has changed, and at
// most twice a second. It is called once.
func (s *Watcher) Run(ctx context.Context, send func(any)) {
	var running sync.WaitGroup
	for _, store := range s.stores {
		running.Go(func() { store.run(ctx, s.Client) })
	}
	running.Go(func() { s.measure(ctx) })
	running.Go(func() { s.plan(ctx, send) })
	s.publish(ctx, send)
	running.Wait()
}

// NewWatcher makes the Watcher of a cluster. It reads nothing before it runs.
func NewWatcher(c Cluster) *Watcher {
	s := &Watcher{Cluster: c, dirty: make(chan struct{}, 1)}
	for _, k := range []kind{
		{"nodes", "nodes that no NodeClaim has launched are not shown", func() client.ObjectList { return &corev1.NodeList{} }, &corev1.Node{}},
		{"pods", "requests and pending pods are not shown", func() client.ObjectList { return &corev1.PodList{} }, &corev1.Pod{}},
		{
			"nodeclaims.karpenter.sh", "nodes in flight and drift are not shown",
			func() client.ObjectList { return &karpv1.NodeClaimList{} }, &karpv1.NodeClaim{},
		},
		{"nodepools.karpenter.sh", "nothing is planned", func() client.ObjectList { return &karpv1.NodePoolList{} }, &karpv1.NodePool{}},
		{
			"ec2nodeclasses.karpenter.k8s.aws", "prices are those of any node class",
			func() client.ObjectList { return &awsv1.EC2NodeClassList{} }, &awsv1.EC2NodeClass{},
		},
	} {
		s.stores = append(s.stores, newStore(k, s.touch))
	}
	return s
}

// touch notes a change.
func (s *Watcher) touch() {
	s.mu.Lock()
	s.version++
	s.mu.Unlock()
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// publish sends the state after changes.
func (s *Watcher) publish(ctx context.Context, send func(any)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.dirty:
		}
		if !sleep(ctx, refreshPause(s.send(send))) {
			return
		}
	}
}

// send sends the state now, and returns how long it took to make it. A state never follows one that was made after it.
func (s *Watcher) send(send func(any)) (took time.Duration) {
	s.sending.Lock()
	defer s.sending.Unlock()
	began := time.Now()
	observed := s.observe()
	took = time.Since(began)
	send(observed)
	return took
}

func sleep(ctx context.Context, d time.Duration) (slept bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// observe is the state now. Before everything is read there is no fleet: half of the pods would look like a cluster of
// empty nodes.
func (s *Watcher) observe() top.Observed {
	out := top.Observed{Link: s.link()}
	s.mu.Lock()
	objects := top.Objects{Now: time.Now(), Used: s.used, Prices: s.prices}
	if s.prices != nil {
		out.Prices, out.PricesProblem = s.prices.From, s.prices.Problem
	}
	s.mu.Unlock()
	if out.Link.Loading != "" {
		return out
	}
	objects.Nodes, objects.Pods = listOf[*corev1.Node](s.stores[0]), s.stores[1].podList()
	objects.PodsUnknown = s.stores[1].unknown()
	objects.Claims = listOf[*karpv1.NodeClaim](s.stores[2])
	out.Fleet = top.Observe(objects)
	return out
}

// link is the state of the connection.
func (s *Watcher) link() top.Link {
	out := top.Link{Name: s.Name}
	var loading []string
	for _, store := range s.stores {
		count, done := store.progress()
		if !done {
			loading = append(loading, fmt.Sprintf("%s %d", store.resource, count))
		}
		store.mu.Lock()
		if store.refused != "" {
			out.Missing = append(out.Missing, store.refused)
			if store.forbidden {
				out.Forbidden = append(out.Forbidden, store.resource)
			}
		}
		if !store.lost.IsZero() && (out.Lost.IsZero() || store.lost.Before(out.Lost)) {
			out.Lost, out.LostWhy = store.lost, store.lostWhy
		}
		store.mu.Unlock()
	}
	if len(loading) > 0 {
		out.Loading = "Reading " + strings.Join(loading, ", ")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out.NotPlanned = s.problem
	return out
}

func (s *Watcher) loaded() bool { return s.link().Loading == "" }

// measure reads what containers use. A cluster without metrics-server has no use; that is no error.
func (s *Watcher) measure(ctx context.Context) {
	for {
		used, err := usage(ctx, s.Client)
		if err == nil {
			s.mu.Lock()
			s.used = used
			s.mu.Unlock()
			s.touch()
		}
		if !sleep(ctx, metricsInterval) {
			return
		}
	}
}

// usage reads metrics-server.
func usage(ctx context.Context, cluster client.Reader) (map[string]top.Used, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "NodeMetricsList"})
	if err := cluster.List(ctx, list); err != nil {
		return nil, err
	}
	out := make(map[string]top.Used, len(list.Items))
	for i := range list.Items {
		item := &list.Items[i]
		fields, _, _ := unstructured.NestedStringMap(item.Object, "usage") // a node without usage has none
		out[item.GetName()] = top.Used{CPU: quantity(fields["cpu"]).MilliValue(), Memory: quantity(fields["memory"]).Value()}
	}
	return out, nil
}

// plan computes forecasts, until the context is canceled. One that fails is reported and tried again.
func (s *Watcher) plan(ctx context.Context, send func(any)) {
	for !s.loaded() {
		if !sleep(ctx, refreshInterval) {
			return
		}
	}
	planned := -1
	for {
		wait := retryInterval
		s.mu.Lock()
		version := s.version
		s.mu.Unlock()
		if version != planned {
			began := time.Now()
			forecast, err := s.forecast(ctx, func() { s.send(send) })
			if ctx.Err() != nil {
				return
			}
			s.report(err)
			if err == nil {
				wait, planned = planInterval(time.Since(began)), version
				send(top.Predicted{Forecast: forecast})
			}
		}
		if !sleep(ctx, wait) {
			return
		}
	}
}

// report shows an error of planning until it is gone.
func (s *Watcher) report(err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	s.mu.Lock()
	changed := s.problem != problem
	s.problem = problem
	s.mu.Unlock()
	if changed {
		s.touch()
	}
}

// forecast reads the prices, and plans. priced is called before it plans: what nodes cost is shown no later than what they could cost.
func (s *Watcher) forecast(ctx context.Context, priced func()) (*top.Forecast, error) {
	view, err := s.View(ctx)
	if err != nil {
		if opened := s.openPrices(); opened != nil {
			return nil, opened
		}
		priced()
		return nil, err
	}
	s.setPrices(view.PriceList())
	priced()
	return top.Predict(view)
}

// ErrLoading is the error of a View before every kind that is watched has been read.
var ErrLoading = errors.New("the cluster is still being read")

// View is the cluster at this instant: what is watched as the watch has it, everything else as the API server has answered lately: see
// unwatched. It shares the objects of the watch.
func (s *Watcher) View(ctx context.Context) (*inspect.View, error) {
	if !s.loaded() {
		return nil, ErrLoading
	}
	s.viewing.Lock()
	defer s.viewing.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.unwatched.expire(time.Now())
	return inspect.Listed(time.Now(), func(kind client.ObjectList) ([]client.Object, error) {
		for _, store := range s.stores {
			if store.sameKind(kind) {
				return store.all()
			}
		}
		return s.unwatched.list(ctx, s.Client, kind)
	}, s.Config)
}

// Version counts the changes of what is watched: a View of the same version differs only in what is not.
func (s *Watcher) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

func (s *Watcher) setPrices(prices *fleet.Prices) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prices = prices
}

// openPrices reads the prices of a cluster without a View. They need no permission but to read nodes.
func (s *Watcher) openPrices() error {
	s.mu.Lock()
	open := s.prices != nil
	s.mu.Unlock()
	if open {
		return nil
	}
	state := &manifest.ClusterState{NodeClasses: map[string]*awsv1.EC2NodeClass{}}
	state.Nodes = listOf[*corev1.Node](s.stores[0])
	for _, class := range listOf[*awsv1.EC2NodeClass](s.stores[4]) {
		state.NodeClasses[class.Name] = class
	}
	prices, err := s.Config.Prices(state)
	if err != nil {
		return err
	}
	s.setPrices(fleet.PricesOf(fleet.Source{From: prices.From, NodeClasses: state.NodeClasses, Catalog: prices.Catalog}))
	return nil
}

// Once reads the cluster once: for text and JSON. It lists, and watches nothing.
func Once(ctx context.Context, c Cluster) (top.Observed, *top.Forecast, error) {
	s := NewWatcher(c)
	for _, store := range s.stores {
		if err := store.listOnce(ctx, c.Client); err != nil {
			return top.Observed{}, nil, err
		}
	}
	if used, err := usage(ctx, c.Client); err == nil {
		s.used = used
	}
	forecast, err := s.forecast(ctx, func() {})
	if ctx.Err() != nil {
		return top.Observed{}, nil, ctx.Err()
	}
	s.report(err)
	if out := s.observe(); len(out.Link.Missing) < len(s.stores) {
		return out, forecast, nil
	}
	return top.Observed{}, nil, errNothing
}

// errNothing is the error of a user, or a cluster, without any of the kinds.
var errNothing = errors.New("no permission to list nodes, pods, nodeclaims.karpenter.sh or any other kind that is shown")

// pageSize sets how many objects are listed at a time, as kubectl does.
const pageSize = 500

// listOnce fills the store. A kind that may not be read, or does not exist, is left out.
func (s *store) listOnce(ctx context.Context, cluster client.Reader) error {
	var all []any
	for next := ""; ; {
		list := s.list()
		err := cluster.List(ctx, list, client.Limit(pageSize), client.Continue(next))
		s.outcome(ctx, err)
		if s.refused != "" {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", s.resource, err)
		}
		if err := s.reducePage(list); err != nil {
			return err
		}
		items, err := itemsOf(list)
		if err != nil {
			return err
		}
		all = append(all, items...)
		if next = list.GetContinue(); next == "" {
			return s.Replace(all, "")
		}
	}
}

// FromFile is the state and forecast of a cluster from files.
func FromFile(view *inspect.View, name string) (top.Observed, *top.Forecast, error) {
	prices := view.PriceList()
	observed := top.Observe(top.Objects{
		Now: view.Now, Nodes: view.Nodes, Claims: view.NodeClaims, Pods: top.PodsOf(view.Pods), Prices: prices,
	})
	forecast, err := top.Predict(view)
	if err != nil {
		return top.Observed{}, nil, err
	}
	link := top.Link{Name: cmp.Or(name, "file"), File: true}
	return top.Observed{Fleet: observed, Prices: prices.From, PricesProblem: prices.Problem, Link: link}, forecast, nil
}

func itemsOf(list client.ObjectList) ([]any, error) {
	objects, err := meta.ExtractList(list)
	out := make([]any, 0, len(objects))
	for _, o := range objects {
		out = append(out, o)
	}
	return out, err
}

// quantity reads an amount; one that is malformed is 0.
func quantity(text string) *resource.Quantity {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return &resource.Quantity{}
	}
	return &q
}
