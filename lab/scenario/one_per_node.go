package scenario

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	onePerNodeApp = "one-per-node"
	// listedRequests is how many kinds of requests a report shows.
	listedRequests = 25
)

// onePerNode launches a node for each pod, and measures what it costs: when each stage was reached, the CPU time of each process, and
// the requests to the API server.
func onePerNode(nodes int) Scenario {
	return Scenario{
		Name:      onePerNodeApp,
		Summary:   fmt.Sprintf("%d pods with anti-affinity to each other get a node each; measures stages, CPU and requests", nodes),
		Configure: func(cfg *world.Config) { cfg.LeasesTogether = true },
		Steps: []Step{
			startController(),
			installPool(manifests.Default, nil),
			{
				Name: fmt.Sprintf("create %d pods: each gets a node, and all run", nodes), Timeout: time.Minute + time.Duration(nodes)*time.Second,
				Run: func(ctx context.Context, w *World) error { return measureOnePerNode(ctx, w, nodes) },
			},
			{
				Name: "there is one NodeClaim and one instance for each pod", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if claims, instances := len(w.History.Claims()), len(w.Instances()); claims != nodes || instances != nodes {
						return fmt.Errorf("%d NodeClaims were created and %d instances launched, want %d of each", claims, instances, nodes)
					}
					return awaitPaired(ctx, w)
				},
			},
			{
				Name: "each node has a lease that is renewed", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					return world.Until(ctx, func() error { return leasesRenewed(ctx, w, nodes) })
				},
			},
			{
				Name: "the API server does not track whose fields those of NodeClaims are", Timeout: time.Minute,
				Run: untrackedClaims,
			},
		},
	}
}

func measureOnePerNode(ctx context.Context, w *World, nodes int) error {
	before, err := w.Use(ctx)
	if err != nil {
		return err
	}
	// On a busy computer the controller may lose its lease among so many requests. kubelet restarts it.
	w.RestartControllerOnExit()
	s := newStages()
	stop := w.History.Watch(s.observe)
	defer stop()
	if err := apply(ctx, w, manifests.OnePerNode, map[string]string{"REPLICAS": fmt.Sprint(nodes)}); err != nil {
		return err
	}
	err = world.Until(ctx, func() error {
		if n := s.nowRunning(); n != nodes {
			return fmt.Errorf("%d of %d pods run", n, nodes)
		}
		return nil
	})
	for _, c := range w.AWS.Calls() {
		if c.Action == "CreateFleet" && c.ErrorCode == "" {
			s.reached(fleetsCreated, types.UID(c.ID), c.Time)
		}
	}
	w.notes = append(w.notes, s.table()...)
	if n := w.ControllerStarts(); n > 1 {
		delete(before.CPUSeconds, "controller")
		w.Note("the controller was started %d times: its CPU seconds are those of its last process", n)
	}
	after, failed := w.Use(context.WithoutCancel(ctx))
	if failed == nil {
		w.notes = append(w.notes, useTable(before, after)...)
	}
	return cmp.Or(err, failed)
}

// leasesRenewed checks that so many nodes have leases that have not expired.
func leasesRenewed(ctx context.Context, w *World, nodes int) error {
	var leases coordinationv1.LeaseList
	if err := w.Client.List(ctx, &leases, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		return err
	}
	alive := 0
	for i := range leases.Items {
		spec := leases.Items[i].Spec
		if time.Since(spec.RenewTime.Time) < time.Duration(*spec.LeaseDurationSeconds)*time.Second {
			alive++
		}
	}
	if alive != nodes {
		return fmt.Errorf("%d leases have not expired, want those of %d nodes", alive, nodes)
	}
	return nil
}

// untrackedClaims reads NodeClaims from the API server: caches leave out who manages fields.
func untrackedClaims(ctx context.Context, w *World) error {
	var claims karpv1.NodeClaimList
	if err := w.Client.List(ctx, &claims); err != nil {
		return err
	}
	for i := range claims.Items {
		if c := &claims.Items[i]; len(c.ManagedFields) > 0 {
			return fmt.Errorf("%s manages fields of NodeClaim %s: each write to it takes longer", c.ManagedFields[0].Manager, c.Name)
		}
	}
	return nil
}

// What stages count, in the order in which they are reached.
const (
	podsCreated       = "pods created"
	podsRefused       = "pods unschedulable"
	claimsCreated     = "NodeClaims created"
	fleetsCreated     = "CreateFleet calls"
	claimsLaunched    = "NodeClaims launched"
	claimsRegistered  = "NodeClaims registered"
	claimsInitialized = "NodeClaims initialized"
	podsBound         = "pods bound"
	podsRunning       = "pods running"
)

// stages is when objects were first seen in each stage. It is safe for concurrent use.
type stages struct {
	mu    sync.Mutex
	begin time.Time
	seen  map[string]map[types.UID]time.Time
	// running are the pods that run now: one may be evicted, and another takes its place.
	running map[types.UID]bool
}

func newStages() *stages {
	return &stages{begin: time.Now(), seen: map[string]map[types.UID]time.Time{}, running: map[types.UID]bool{}}
}

func (s *stages) observe(o client.Object, gone bool) {
	now := time.Now()
	mark := func(stage string, in bool) {
		if in && !gone {
			s.reached(stage, o.GetUID(), now)
		}
	}
	switch o := o.(type) {
	case *corev1.Pod:
		mine := o.Labels["app"] == onePerNodeApp
		mark(podsCreated, mine)
		mark(podsRefused, mine && unschedulable(o))
		mark(podsBound, mine && o.Spec.NodeName != "")
		mark(podsRunning, mine && running(*o))
		s.setRunning(o.UID, mine && running(*o) && !gone)
	case *karpv1.NodeClaim:
		mark(claimsCreated, true)
		mark(claimsLaunched, meta.IsStatusConditionTrue(o.Status.Conditions, karpv1.ConditionLaunched))
		mark(claimsRegistered, meta.IsStatusConditionTrue(o.Status.Conditions, karpv1.ConditionRegistered))
		mark(claimsInitialized, meta.IsStatusConditionTrue(o.Status.Conditions, karpv1.ConditionInitialized))
	}
}

// reached notes when an object, or a call, reached a stage, unless it is known to have been there before.
func (s *stages) reached(stage string, id types.UID, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[stage] == nil {
		s.seen[stage] = map[types.UID]time.Time{}
	}
	if _, known := s.seen[stage][id]; !known {
		s.seen[stage][id] = at
	}
}

func (s *stages) setRunning(pod types.UID, runs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if runs {
		s.running[pod] = true
	} else {
		delete(s.running, pod)
	}
}

// nowRunning is how many pods run now.
func (s *stages) nowRunning() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// table shows when the first, the median and the last object reached each stage, in seconds.
func (s *stages) table() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []string{fmt.Sprintf("%-24s %6s %8s %8s %8s", "stage", "count", "first", "median", "last")}
	for _, stage := range []string{
		podsCreated, podsRefused, claimsCreated, fleetsCreated, claimsLaunched, claimsRegistered, claimsInitialized, podsBound, podsRunning,
	} {
		times := slices.SortedFunc(maps.Values(s.seen[stage]), time.Time.Compare)
		if n := len(times); n > 0 {
			at := func(i int) float64 { return times[i].Sub(s.begin).Seconds() }
			out = append(out, fmt.Sprintf("%-24s %6d %6.1f s %6.1f s %6.1f s", stage, n, at(0), at(n/2), at(n-1)))
		}
	}
	return out
}

// useTable shows what was used in between, by process and kind of request.
func useTable(before, after world.Use) []string {
	var processes []string
	total := 0.0
	for _, name := range slices.Sorted(maps.Keys(after.CPUSeconds)) {
		spent := after.CPUSeconds[name] - before.CPUSeconds[name]
		total += spent
		processes = append(processes, fmt.Sprintf("%s %.1f", name, spent))
	}
	counts := map[string]int{}
	requests := 0
	for kind, n := range after.Requests {
		counts[kind] = n - before.Requests[kind]
		requests += counts[kind]
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	out := []string{
		fmt.Sprintf("CPU seconds: %.1f (%s)", total, strings.Join(processes, ", ")),
		fmt.Sprintf("requests to the API server: %d, most of them:", requests),
	}
	for _, kind := range kinds[:min(listedRequests, len(kinds))] {
		if counts[kind] > 0 {
			out = append(out, fmt.Sprintf("%7d %s", counts[kind], kind))
		}
	}
	return out
}
