package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
)

func TestCreatedClaimsAreSeenBeforeTheCacheShowsThem(t *testing.T) {
	w := newTestCluster(t)
	wantNodes(t, w.snapshot(t))
	c := claimOf("a", nominates("pod-1"))
	w.create(t, c)
	w.Created(c)
	s := w.snapshot(t)
	wantNodes(t, s, "a")
	if got := s.Nodes[0].Nominated; !slices.Equal(got, []types.UID{"pod-1"}) {
		t.Errorf("nominated %v: the pod would be created for twice", got)
	}
	w.catchUp(t, c)
	wantNodes(t, w.snapshot(t), "a")
}

func TestCreatedClaimsThatAreGoneAreDropped(t *testing.T) {
	t.Run("one that the API server does not have any more", func(t *testing.T) {
		w := newTestCluster(t)
		c := claimOf("a")
		w.create(t, c)
		w.Created(c)
		wantNodes(t, w.snapshot(t), "a")
		if err := w.live.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		wantNodes(t, w.snapshot(t))
		// Another claim of the same name is not the one that was created.
		w.create(t, claimOf("a", func(c *karpv1.NodeClaim) { c.UID = "another" }))
		wantNodes(t, w.snapshot(t))
	})
	t.Run("one that it still has, however late the cache", func(t *testing.T) {
		w := newTestCluster(t)
		c := claimOf("a")
		w.create(t, c)
		w.Created(c)
		w.now = w.now.Add(time.Hour)
		wantNodes(t, w.snapshot(t), "a")
	})
}

// barrier lets nobody read a claim before so many read one at once.
type barrier struct {
	client.Reader
	readers atomic.Int64
	all     chan struct{}
}

func (b *barrier) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if b.readers.Add(-1) == 0 {
		close(b.all)
	}
	select {
	case <-b.all:
		return b.Reader.Get(ctx, key, o, opts...)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// On a loaded API server the cache is late and each read takes long: a pass reads the claims that the cache lacks side by side.
func TestCreatedClaimsAreReadAtOnce(t *testing.T) {
	w := newTestCluster(t)
	const claims = 10
	b := &barrier{Reader: w.live, all: make(chan struct{})}
	b.readers.Store(claims)
	w.State = w.state(w.cache, b)
	for i := range claims {
		c := claimOf(fmt.Sprint("c", i))
		w.create(t, c)
		w.Created(c)
	}
	gone := claimOf("c3")
	if err := w.live.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := w.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wantNodes(t, s, "c0", "c1", "c2", "c4", "c5", "c6", "c7", "c8", "c9")
}

// A claim that is created, deleted and not cached yet is deleting already.
func TestCreatedClaimIsReadAsItIsNow(t *testing.T) {
	w := newTestCluster(t)
	c := claimOf("a", func(c *karpv1.NodeClaim) { c.Finalizers = []string{karpv1.FinalizerTermination} })
	w.create(t, c)
	w.Created(c)
	if err := w.live.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if s := w.snapshot(t); len(s.Nodes) != 1 || !s.Nodes[0].Deleting {
		t.Errorf("nodes %+v, want one that is deleting", s.Nodes)
	}
}

// While the cache is from before the creation of a claim, the claim counts as it was created, and nothing is read for it. Otherwise the API
// server decides.
func TestClaimThatIsTooNewForTheCacheIsNotRead(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shown string
		later time.Duration
		gone  bool
		reads int
		want  []string
	}{
		{"the cache is behind", "4", 0, false, 0, []string{"a"}},
		{"the cache is behind, and cannot know that the claim is gone", "4", 0, true, 0, []string{"a"}},
		{"it has been behind for long", "4", time.Minute + time.Second, true, 1, nil},
		{"the cache has caught up: the claim is gone", "5", 0, true, 1, nil},
		{"the cache has caught up, and shows the claim a moment later", "5", 0, false, 1, []string{"a"}},
		{"the version is unknown", "", 0, false, 1, []string{"a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newTestCluster(t)
			reads := 0
			live := interceptor.NewClient(w.live, interceptor.Funcs{
				Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					reads++
					return api.Get(ctx, key, o, opts...)
				},
			})
			w.claimsShown = func(context.Context) string { return tt.shown }
			s := w.state(w.cache, live)
			if _, err := s.Snapshot(t.Context()); err != nil { // the first one reads all claims
				t.Fatal(err)
			}
			c := claimOf("a", nominates("pod-1"))
			w.create(t, c)
			if tt.gone {
				if err := w.live.Delete(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			c.ResourceVersion = "5"
			s.Created(c)
			w.now = w.now.Add(tt.later)
			snap, err := s.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wantNodes(t, snap, tt.want...)
			if reads != tt.reads {
				t.Errorf("%d reads of the API server, want %d", reads, tt.reads)
			}
			if len(tt.want) > 0 && !slices.Equal(snap.Nodes[0].Nominated, []types.UID{"pod-1"}) {
				t.Errorf("nominated %v: the pod would be created for twice", snap.Nodes[0].Nominated)
			}
		})
	}
}

// Two passes at once: while one has read the old cache, another sees that the cache has caught up.
func TestCreatedClaimIsNeverLostBetweenTwoPasses(t *testing.T) {
	w := newTestCluster(t)
	c := claimOf("a")
	var s *cluster.State
	raced := false
	cache := interceptor.NewClient(w.cache, interceptor.Funcs{
		List: func(ctx context.Context, cache client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := cache.List(ctx, list, opts...); err != nil {
				return err
			}
			if _, claims := list.(*karpv1.NodeClaimList); claims && !raced {
				raced = true
				w.catchUp(t, c)
				_, err := s.Usage(ctx)
				return err
			}
			return nil
		},
	})
	s = w.state(cache, w.live)
	w.create(t, c)
	s.Created(c)
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantNodes(t, snap, "a")
}
