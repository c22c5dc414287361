// Package live watches a cluster for dovetail top. It needs the verbs list and watch, goes on without the kinds that it may
// not read, and reports which these are.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/cluster/reduced"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// kind is a kind of objects that is watched.
type kind struct {
	// resource is the name in rules of RBAC, without holds what is not shown without it.
	resource, without string
	list              func() client.ObjectList
	object            client.Object
}

// store holds the objects of one kind, reduced to what is shown and planned. It is a cache.TransformingStore. Objects in it never
// change: everybody shares them.
type store struct {
	kind
	changed func()
	// shared has what pods of one owner have in common once.
	shared *reduced.Sharer

	mu      sync.Mutex
	objects map[types.NamespacedName]client.Object
	// pods are in their order on the screen, which costs a third of a refresh to sort anew, with what it needs of each, computed once per
	// change. Entries never change.
	pods []*top.Pod
	// synced is true once all objects have been read; refused is why they cannot be, forbidden whether that is a permission.
	synced    bool
	refused   string
	forbidden bool
	// lost is since when the API server has not answered, lostWhy its error.
	lost    time.Time
	lostWhy string
}

func newStore(k kind, changed func()) *store {
	return &store{kind: k, changed: changed, shared: reduced.NewSharer(), objects: map[types.NamespacedName]client.Object{}}
}

// Add implements cache.ReflectorStore.
func (s *store) Add(o any) error { return s.put(o) }

// Update implements cache.ReflectorStore.
func (s *store) Update(o any) error { return s.put(o) }

func (s *store) put(o any) error {
	object, err := s.reduced(o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.set(object)
	s.mu.Unlock()
	s.changed()
	return nil
}

// Transformer implements cache.TransformingStore: while a watch sends all objects at its start, they are kept as small as later.
func (s *store) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.reduced(o) }
}

// reduced drops what is neither shown nor planned. It changes the object in place; what is reduced already stays as it is. The reason of
// kube-scheduler is shown, although no plan depends on it.
func (s *store) reduced(o any) (client.Object, error) {
	object, ok := o.(client.Object)
	if !ok {
		return nil, fmt.Errorf("watch: unexpected object %T", o)
	}
	waits := ""
	pod, isPod := object.(*corev1.Pod)
	if isPod {
		waits = top.PodOf(pod).Scheduler
	}
	manifest.Scrub(object)
	if isPod && waits != "" {
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
				c.Message = waits
			}
		}
	}
	_, err := s.shared.Transform(object)
	return object, err
}

// set needs the lock.
func (s *store) set(o client.Object) {
	s.objects[client.ObjectKeyFromObject(o)] = o
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	read := top.PodOf(pod)
	if i, known := s.place(pod); known {
		s.pods[i] = &read
	} else {
		s.pods = slices.Insert(s.pods, i, &read)
	}
}

// place returns where a pod is in the order, or belongs. An API server lists in this order, so that reading many inserts none in the
// middle. It needs the lock.
func (s *store) place(pod client.Object) (i int, known bool) {
	return slices.BinarySearchFunc(s.pods, pod, func(p *top.Pod, pod client.Object) int {
		return cmp.Or(strings.Compare(p.Namespace, pod.GetNamespace()), strings.Compare(p.Name, pod.GetName()))
	})
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(o any) error {
	object, ok := o.(client.Object)
	if !ok {
		return fmt.Errorf("watch: unexpected object %T", o)
	}
	s.mu.Lock()
	delete(s.objects, client.ObjectKeyFromObject(object))
	if i, known := s.place(object); known {
		s.pods = slices.Delete(s.pods, i, i+1)
	}
	s.mu.Unlock()
	s.changed()
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(list []any, _ string) error {
	objects := make([]client.Object, 0, len(list))
	for _, o := range list {
		object, err := s.reduced(o)
		if err != nil {
			return err
		}
		objects = append(objects, object)
	}
	// A watch sends them in any order.
	slices.SortFunc(objects, func(a, b client.Object) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	s.mu.Lock()
	s.objects = make(map[types.NamespacedName]client.Object, len(objects))
	s.pods = nil
	for _, o := range objects {
		s.set(o)
	}
	s.synced = true
	s.mu.Unlock()
	s.changed()
	return nil
}

// Resync implements cache.ReflectorStore.
func (*store) Resync() error { return nil }

// run watches until the context is canceled.
func (s *store) run(ctx context.Context, cluster client.WithWatch) {
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := s.list()
			err := cluster.List(ctx, list, &client.ListOptions{Raw: &o, Limit: o.Limit, Continue: o.Continue})
			s.outcome(ctx, err)
			if err == nil {
				err = s.reducePage(list)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := cluster.Watch(ctx, s.list(), &client.ListOptions{Raw: &o})
			s.outcome(ctx, err)
			return w, err
		},
	}
	options := cache.ReflectorOptions{TypeDescription: s.resource}
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lists, cluster), s.object, s, options).RunWithContext(ctx)
}

// reducePage reduces a page of a list before the next one is read.
func (s *store) reducePage(list client.ObjectList) error {
	return meta.EachListItem(list, func(o runtime.Object) error {
		_, err := s.reduced(o)
		return err
	})
}

// outcome records whether the API server has answered, and what.
func (s *store) outcome(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	before, lost := s.refused, s.lost.IsZero()
	s.refused, s.forbidden = "", false
	switch {
	case err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		s.lost, s.lostWhy = time.Time{}, ""
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		s.refused, s.forbidden = fmt.Sprintf("no permission to list and watch %s: %s", s.resource, s.without), true
		s.lost = time.Time{}
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		s.refused = fmt.Sprintf("the cluster has no %s: %s", s.resource, s.without)
		s.lost = time.Time{}
	case s.lost.IsZero():
		s.lost, s.lostWhy = time.Now(), innermost(err).Error()
	}
	changed := before != s.refused || lost != s.lost.IsZero()
	s.mu.Unlock()
	if changed {
		s.changed()
	}
}

// innermost is the error without the URL of the request, which is as long as the screen is wide.
func innermost(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}

// progress returns how much has been read; done if nothing more comes.
func (s *store) progress() (count int, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects), s.synced || s.refused != ""
}

// unknown reports whether the objects may not be read.
func (s *store) unknown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused != "" && !s.synced
}

// listOf returns the objects of a store. They are shared and must not be changed.
func listOf[T client.Object](s *store) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]T, 0, len(s.objects))
	for _, o := range s.objects {
		if o, ok := o.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

func (s *store) podList() []top.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]top.Pod, 0, len(s.pods))
	for _, p := range s.pods {
		out = append(out, *p)
	}
	return out
}

// ForbiddenError is returned for a kind that the user may not list and watch.
type ForbiddenError struct{ Resource string }

// Error names the resource and the verbs.
func (e *ForbiddenError) Error() string { return "no permission to list and watch " + e.Resource }

// all are the objects, for a View. They are shared and must not be changed.
func (s *store) all() ([]client.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forbidden {
		return nil, &ForbiddenError{Resource: s.resource}
	}
	out := make([]client.Object, 0, len(s.objects))
	if len(s.pods) > 0 {
		for _, p := range s.pods { // in order
			out = append(out, p.Pod)
		}
		return out, nil
	}
	for _, o := range s.objects {
		out = append(out, o)
	}
	return out, nil
}

// sameKind reports whether a list is of the store's kind.
func (s *store) sameKind(list client.ObjectList) bool {
	return reflect.TypeOf(list) == reflect.TypeOf(s.list())
}
