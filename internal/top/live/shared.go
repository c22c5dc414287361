package live

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// Shared is a cluster that is watched already: by the caches of a controller. Looking at it adds no watch, and no copy of an object.
type Shared struct {
	Name string
	// Cache lists Nodes and NodeClaims, Pods lists pods. The objects are shared with the cache.
	Cache client.Reader
	Pods  interface {
		List(context.Context) ([]*corev1.Pod, error)
	}
	// Read makes a View of the cache.
	Read func(context.Context) (*inspect.View, error)
}

// sharedInterval is the shortest time between two looks at the cache. It is read whether it has changed or not.
const sharedInterval = time.Second

// sharedPause returns how long a state stays: so long that looking takes at most one fiftieth of one core.
func sharedPause(took time.Duration) time.Duration { return max(sharedInterval, 50*took) }

// SharedWatcher looks at a shared cluster now and then. Its zero value is not usable: see NewSharedWatcher.
type SharedWatcher struct {
	Shared
	now func() time.Time
	// sending is held while a state is made and sent.
	sending sync.Mutex
	// planning is held while a View is made: one at a time.
	planning sync.Mutex

	mu      sync.Mutex
	prices  *fleet.Prices
	problem string
	version int
	seen    fingerprint
	// pods holds what the page needs of each pod, as it was when the cache last had another one.
	pods map[types.UID]top.Pod
}

// NewSharedWatcher makes the watcher of a shared cluster. It reads nothing before it runs.
func NewSharedWatcher(s Shared, now func() time.Time) *SharedWatcher {
	return &SharedWatcher{Shared: s, now: now, pods: map[types.UID]top.Pod{}}
}

// Run sends top.Observed and top.Predicted messages until the context is canceled, and then drops what it has read.
func (w *SharedWatcher) Run(ctx context.Context, send func(any)) {
	var running sync.WaitGroup
	running.Go(func() { w.plan(ctx, send) })
	for {
		began := time.Now()
		w.publish(ctx, send)
		if !sleep(ctx, sharedPause(time.Since(began))) {
			break
		}
	}
	running.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods, w.prices, w.seen = map[types.UID]top.Pod{}, nil, fingerprint{}
}

// publish sends the state if it has changed. A state never follows one that was made after it.
func (w *SharedWatcher) publish(ctx context.Context, send func(any)) {
	w.sending.Lock()
	defer w.sending.Unlock()
	if observed, changed := w.observe(ctx); changed && ctx.Err() == nil {
		send(observed)
	}
}

// observe is the state now, and whether it differs from the last one.
func (w *SharedWatcher) observe(ctx context.Context) (out top.Observed, changed bool) {
	out.Link.Name = w.Name
	var (
		nodes  corev1.NodeList
		claims karpv1.NodeClaimList
	)
	pods, err := w.Pods.List(ctx)
	if err == nil {
		err = w.Cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy)
	}
	if err == nil {
		err = w.Cache.List(ctx, &claims, client.UnsafeDisableDeepCopy)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		out.Link.Lost, out.Link.LostWhy = w.now(), err.Error()
		return out, true
	}
	var seen fingerprint
	objects := top.Objects{Now: w.now(), Prices: w.prices}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		seen.add(n)
		objects.Nodes = append(objects.Nodes, n)
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		seen.add(c)
		objects.Claims = append(objects.Claims, c)
	}
	for _, p := range pods {
		seen.add(p)
	}
	if w.prices != nil {
		out.Prices, out.PricesProblem = w.prices.From, w.prices.Problem
	}
	out.Link.NotPlanned = w.problem
	seen.prices, seen.problem = w.prices, w.problem
	if seen == w.seen {
		return out, false
	}
	if seen.objects != w.seen.objects || seen.sum != w.seen.sum { // prices are read again with each forecast
		w.version++
	}
	w.seen = seen
	objects.Pods = w.podList(pods)
	out.Fleet = top.Observe(objects)
	return out, true
}

// podList is the pods in their order on the page. It needs the lock.
func (w *SharedWatcher) podList(pods []*corev1.Pod) []top.Pod {
	out, known := make([]top.Pod, 0, len(pods)), make(map[types.UID]top.Pod, len(pods))
	for _, p := range pods {
		read, found := w.pods[p.UID]
		if !found || read.Pod != p {
			read = top.PodOf(p)
		}
		known[p.UID] = read
		out = append(out, read)
	}
	w.pods = known
	slices.SortFunc(out, func(a, b top.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// fingerprint identifies what is shown, whatever the order in which the cache lists it.
type fingerprint struct {
	objects int
	sum     uint64
	prices  *fleet.Prices
	problem string
}

var seed = maphash.MakeSeed()

func (f *fingerprint) add(o client.Object) {
	f.objects++
	f.sum += maphash.Comparable(seed, [2]string{string(o.GetUID()), o.GetResourceVersion()})
}

// plan computes forecasts, one after the other, until the context is canceled.
func (w *SharedWatcher) plan(ctx context.Context, send func(any)) {
	planned := -1
	for {
		wait := retryInterval
		if version := w.Version(); version != planned {
			began := time.Now()
			forecast, err := w.forecast(ctx, func() { w.publish(ctx, send) })
			if ctx.Err() != nil {
				return
			}
			w.mu.Lock()
			w.problem = ""
			if err != nil {
				w.problem = err.Error()
			}
			w.mu.Unlock()
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

// forecast reads the prices, and plans. priced is called before it plans: what nodes cost is shown no later than what they could cost.
func (w *SharedWatcher) forecast(ctx context.Context, priced func()) (*top.Forecast, error) {
	view, err := w.View(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.prices = view.PriceList()
	w.mu.Unlock()
	priced()
	return top.Predict(view)
}

// View is the cluster at this instant.
func (w *SharedWatcher) View(ctx context.Context) (*inspect.View, error) {
	w.planning.Lock()
	defer w.planning.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return w.Read(ctx)
}

// Version counts the changes that were seen.
func (w *SharedWatcher) Version() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version
}
