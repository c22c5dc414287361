package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// requestInterval is the time between two requests to a service.
	requestInterval = 50 * time.Millisecond
	// endpointDelay is how long clients go on to use an endpoint that has been removed, and do not use a new one yet: EndpointSlices and
	// kube-proxy take about that long in a busy cluster.
	endpointDelay = time.Second
)

// requests sends requests to services all the time. A service is the Ready pods with a label app, as clients know them: late. A request
// fails if there is none, or if the chosen one is gone.
type requests struct {
	mu      sync.Mutex
	pods    map[types.UID]*endpoint
	started bool
	// up are the services that clients know a pod of: before that, nobody sends them a request.
	up     map[string]bool
	sent   map[string]int
	failed map[string]int
	turn   int
	// why are the first failures of services that must have none, in words.
	why []string
}

// endpoint is a pod of a service.
type endpoint struct {
	app, name string
	// ready is since when it is Ready, and until when it was; zero is never, or that it still is.
	ready, until time.Time
	gone         bool
}

func newRequests() *requests {
	return &requests{pods: map[types.UID]*endpoint{}, up: map[string]bool{}, sent: map[string]int{}, failed: map[string]int{}}
}

// observe follows the pods.
func (r *requests) observe(o client.Object, gone bool) {
	pod, is := o.(*corev1.Pod)
	if !is || pod.Labels["app"] == "" {
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.pods[pod.UID]
	if e == nil {
		e = &endpoint{app: pod.Labels["app"], name: pod.Name}
		r.pods[pod.UID] = e
	}
	e.gone = e.gone || gone || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	serves := !e.gone && running(*pod)
	switch {
	case serves && (e.ready.IsZero() || !e.until.IsZero()):
		e.ready, e.until = now, time.Time{}
	case !serves && e.until.IsZero() && !e.ready.IsZero():
		e.until = now
	}
}

// begin sends requests to these services from now on.
func (r *requests) begin(services []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range services {
		r.sent[s] = 0
	}
	r.started = true
}

// end sends no more.
func (r *requests) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = false
}

// run sends requests until ctx is done.
func (r *requests) run(ctx context.Context) {
	ticker := time.NewTicker(requestInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			r.send(now)
		}
	}
}

// send sends a request to each service.
func (r *requests) send(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started {
		return
	}
	known := map[string][]*endpoint{}
	seen := now.Add(-endpointDelay)
	for _, uid := range slices.Sorted(maps.Keys(r.pods)) {
		e := r.pods[uid]
		if !e.ready.IsZero() && !e.ready.After(seen) && (e.until.IsZero() || e.until.After(seen)) {
			known[e.app] = append(known[e.app], e)
		}
	}
	r.turn++
	for app := range r.sent {
		if r.up[app] = r.up[app] || len(known[app]) > 0; !r.up[app] {
			continue
		}
		r.sent[app]++
		why := ""
		if endpoints := known[app]; len(endpoints) == 0 {
			why = "no pod is Ready"
		} else if e := endpoints[r.turn%len(endpoints)]; e.gone {
			why = "pod " + e.name + " is gone"
		}
		if why == "" {
			continue
		}
		if r.failed[app]++; r.failed[app] == 1 {
			r.why = append(r.why, fmt.Sprintf("%s at %s: %s", app, now.UTC().Format("15:04:05.000"), why))
		}
	}
}

// count returns how many requests were sent to the services, and how many failed.
func (r *requests) count(services []string) (sent, failed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range services {
		sent, failed = sent+r.sent[s], failed+r.failed[s]
	}
	return sent, failed
}

// failures describes the first failed request of each service.
func (r *requests) failures() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.why, "; ")
}
