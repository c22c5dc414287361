package world

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// History records the pods and NodeClaims of a cluster, as a watch sees them. It is safe for concurrent
// use.
type History struct {
	// asOf returns the NodeClaims that the API server had at a version.
	asOf func(version string) ([]karpv1.NodeClaim, error)

	mu         sync.Mutex
	pods       map[types.UID]*PodHistory
	claims     map[types.UID]*ClaimHistory
	suspected  []suspectedViolation
	violations []string
	watchers   map[int]func(client.Object, bool)
	next       int
}

// suspectedViolation is a pod that seems to be nominated to two NodeClaims at a resource version. It is only suspected:
// after a crash of the API server, the watch may deliver the second NodeClaim before the update that takes the pod off
// the first.
type suspectedViolation struct {
	pod           types.UID
	first, second string
	version       string
}

// PodHistory is the history of a pod.
type PodHistory struct {
	Namespace, Name string
	UID             types.UID
	Seen            time.Time // when it was first seen
	Running         time.Time // when it was first seen to run; zero = never
	Gone            time.Time // zero = it is still there
}

// ClaimHistory is the history of a NodeClaim.
type ClaimHistory struct {
	Name string
	UID  types.UID
	Seen time.Time
	// LaunchedFor are the UIDs of the pods that it nominated when it was created.
	LaunchedFor []types.UID
	// Pods are the UIDs of its nominated pods, without those that were taken off it since.
	Pods []types.UID
	// Decisions are the IDs of those that launched and removed it.
	Decisions []string
	// DeletedAt is when its deletion was first seen; zero = never.
	DeletedAt time.Time
	Gone      bool
}

func newHistory(asOf func(version string) ([]karpv1.NodeClaim, error)) *History {
	return &History{
		asOf:     asOf,
		pods:     map[types.UID]*PodHistory{},
		claims:   map[types.UID]*ClaimHistory{},
		watchers: map[int]func(client.Object, bool){},
	}
}

// Pods are all pods there ever were, in the order in which they were seen.
func (h *History) Pods() []PodHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []PodHistory
	for _, p := range h.pods {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b PodHistory) int { return cmp.Or(a.Seen.Compare(b.Seen), cmp.Compare(a.UID, b.UID)) })
	return out
}

// Claims are all NodeClaims there ever were, in the order in which they were seen.
func (h *History) Claims() []ClaimHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []ClaimHistory
	for _, c := range h.claims {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b ClaimHistory) int { return cmp.Or(a.Seen.Compare(b.Seen), cmp.Compare(a.UID, b.UID)) })
	return out
}

// Violations returns a message for each pod that was nominated to two NodeClaims at a time.
func (h *History) Violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.suspected {
		message := fmt.Sprintf("pod %s is nominated to NodeClaims %s and %s", s.pod, s.first, s.second)
		claims, err := h.asOf(s.version)
		if err != nil {
			h.violations = append(h.violations, fmt.Sprintf("%s, or was not: %v", message, err))
		} else if nominates(claims, s.first, s.pod) && nominates(claims, s.second, s.pod) {
			h.violations = append(h.violations, message)
		}
	}
	h.suspected = nil
	return slices.Clone(h.violations)
}

// nominates reports whether the NodeClaim with this name nominates the pod and is not being deleted.
func nominates(claims []karpv1.NodeClaim, name string, pod types.UID) bool {
	return slices.ContainsFunc(claims, func(c karpv1.NodeClaim) bool {
		return c.Name == name && c.DeletionTimestamp == nil && slices.Contains(c.Nominated(karpv1.AnnotationNominatedPods), pod)
	})
}

// Watch calls seen with every object that is created, changed or deleted (gone) from now on, one at a time, until the
// returned function is called.
func (h *History) Watch(seen func(o client.Object, gone bool)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.next
	h.next++
	h.watchers[n] = seen
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, n)
	}
}

func (h *History) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { h.see(o, false) },
		UpdateFunc: func(before, now any) {
			// During an outage of the API server, an object may be replaced by another with its name.
			if before.(client.Object).GetUID() != now.(client.Object).GetUID() {
				h.see(before, true)
			}
			h.see(now, false)
		},
		DeleteFunc: func(o any) {
			if missed, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = missed.Obj
			}
			h.see(o, true)
		},
	}
}

func (h *History) see(o any, gone bool) {
	object, ok := o.(client.Object)
	if !ok {
		return
	}
	h.mu.Lock()
	now := time.Now()
	switch o := o.(type) {
	case *corev1.Pod:
		h.seePod(o, gone, now)
	case *karpv1.NodeClaim:
		h.seeClaim(o, gone, now)
	}
	var watchers []func(client.Object, bool)
	for _, w := range h.watchers {
		watchers = append(watchers, w)
	}
	h.mu.Unlock()
	for _, w := range watchers {
		w(object, gone)
	}
}

func (h *History) seePod(pod *corev1.Pod, gone bool, now time.Time) {
	p := h.pods[pod.UID]
	if p == nil {
		p = &PodHistory{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Seen: now}
		h.pods[pod.UID] = p
	}
	if p.Running.IsZero() && pod.Status.Phase == corev1.PodRunning {
		p.Running = now
	}
	if gone && p.Gone.IsZero() {
		p.Gone = now
	}
}

func (h *History) seeClaim(claim *karpv1.NodeClaim, gone bool, now time.Time) {
	c := h.claims[claim.UID]
	pods := claim.Nominated(karpv1.AnnotationNominatedPods)
	if c != nil {
		c.Pods = pods // those that were taken off it may have another
	} else {
		c = &ClaimHistory{Name: claim.Name, UID: claim.UID, Seen: now, LaunchedFor: pods, Pods: pods}
		h.checkNominations(c, claim.ResourceVersion)
		h.claims[claim.UID] = c
	}
	c.noteDecisions(claim)
	if c.DeletedAt.IsZero() && (gone || claim.DeletionTimestamp != nil) {
		c.DeletedAt = now
	}
	c.Gone = gone
}

// noteDecisions adds the decisions that a claim names.
func (c *ClaimHistory) noteDecisions(claim *karpv1.NodeClaim) {
	ids := []string{claim.Annotations[karpv1.AnnotationDecision]}
	if command, found, err := claim.DisruptionCommand(); found && err == nil {
		ids = append(ids, command.ID)
	}
	for _, id := range ids {
		if id != "" && !slices.Contains(c.Decisions, id) {
			c.Decisions = append(c.Decisions, id)
		}
	}
}

// checkNominations records the pods of a new NodeClaim that a live NodeClaim nominates, too.
func (h *History) checkNominations(fresh *ClaimHistory, version string) {
	for _, other := range h.claims {
		if !other.DeletedAt.IsZero() {
			continue
		}
		for _, uid := range fresh.Pods {
			if slices.Contains(other.Pods, uid) {
				h.suspected = append(h.suspected, suspectedViolation{uid, other.Name, fresh.Name, version})
			}
		}
	}
}
