package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// returnedTaints records, during a whole scenario, every Node that gets the uninitialized taint again after its
// removal.
type returnedTaints struct {
	mu       sync.Mutex
	had      map[types.UID]bool // nodes by UID: whether they have the taint; absent = never had it
	returned []string
}

// watchTaint is the step that starts the watch.
func watchTaint(r *returnedTaints) Step {
	return Step{
		Name:    "watch for Nodes that get the taint again after its removal",
		Timeout: time.Second,
		Run: func(_ context.Context, w *World) error {
			w.History.Watch(func(o client.Object, _ bool) {
				if n, ok := o.(*corev1.Node); ok {
					r.observe(n)
				}
			})
			return nil
		},
	}
}

func (r *returnedTaints) observe(n *corev1.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.had == nil {
		r.had = map[types.UID]bool{}
	}
	has := hasTaint(n, uninitialized)
	had, known := r.had[n.UID]
	if has && known && !had {
		r.returned = append(
			r.returned,
			fmt.Sprintf("taint %s was added again to Node %s, at resource version %s", uninitialized, n.Name, n.ResourceVersion),
		)
	}
	if has || known {
		r.had[n.UID] = has
	}
}

// none returns an error if any Node got the taint again.
func (r *returnedTaints) none(context.Context, *World) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.returned) == 0 {
		return nil
	}
	return errors.New(strings.Join(r.returned, "; "))
}

func hasTaint(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}
