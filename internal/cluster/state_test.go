package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

var start = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

const window = 20 * time.Second

// testCluster is an API server and a cache that lags behind it.
type testCluster struct {
	now         time.Time
	cache, live client.WithWatch
	types       []*catalog.InstanceType
	typesErr    error
	leftOut     []string
	settings    snapshot.Settings
	claimsShown func(context.Context) string
	*cluster.State
}

func (w *testCluster) InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	return w.types, w.typesErr
}

// newTestCluster returns a test cluster with a cache that has all objects.
func newTestCluster(t *testing.T, objects ...client.Object) *testCluster {
	t.Helper()
	w := &testCluster{now: start}
	now := func() time.Time { return w.now }
	w.live = apitest.New(t, now, objects...)
	// The cache's objects are those of the API server, UIDs and all.
	w.cache = apitest.New(t, now, objects...)
	w.State = w.state(w.cache, w.live)
	return w
}

func (w *testCluster) state(cache, live client.Reader) *cluster.State {
	return cluster.NewState(w.config(cache, live))
}

// stateWith is a State with another configuration.
func (w *testCluster) stateWith(edit func(*cluster.Config)) *cluster.State {
	cfg := w.config(w.cache, w.live)
	edit(&cfg)
	return cluster.NewState(cfg)
}

func (w *testCluster) config(cache, live client.Reader) cluster.Config {
	return cluster.Config{
		Cache: cache, Live: live, Types: w, Settings: w.settings, NominationWindow: window, Now: func() time.Time { return w.now },
		OnPoolSkipped: func(p *karpv1.NodePool, _ error) { w.leftOut = append(w.leftOut, p.Name) },
		ClaimsShown:   w.claimsShown,
	}
}

func (w *testCluster) clock() time.Time { return w.now }

func (w *testCluster) snapshot(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	s, err := w.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// create makes an object that the cache does not see yet.
func (w *testCluster) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := w.live.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// catchUp shows an object to the cache.
func (w *testCluster) catchUp(t *testing.T, o client.Object) {
	t.Helper()
	shown := o.DeepCopyObject().(client.Object)
	shown.SetResourceVersion("")
	if err := w.cache.Create(t.Context(), shown); err != nil {
		t.Fatal(err)
	}
}

// nodeNames are the names of a snapshot's nodes.
func nodeNames(s *snapshot.Snapshot) []string {
	var out []string
	for i := range s.Nodes {
		out = append(out, s.Nodes[i].Name)
	}
	return out
}

func wantNodes(t *testing.T, s *snapshot.Snapshot, want ...string) {
	t.Helper()
	if got := nodeNames(s); !slices.Equal(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
}

// claimOf returns a claim of pool "general" that is not launched yet.
func claimOf(name string, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(start),
		Labels: map[string]string{karpv1.LabelNodePool: "general"}, Annotations: map[string]string{},
	}}
	c.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	for _, f := range change {
		f(c)
	}
	return c
}

func TestFirstSnapshotReadsClaimsOfThePreviousProcess(t *testing.T) {
	w := newTestCluster(t)
	w.create(t, claimOf("created-before", nominates("pod-1")))
	wantNodes(t, w.snapshot(t), "created-before")
}

func TestLostCreateResponse(t *testing.T) {
	w := newTestCluster(t)
	w.snapshot(t)
	// The create took effect, but the answer was lost: the state is instructed to look, not what was made.
	w.create(t, claimOf("a"))
	wantNodes(t, w.snapshot(t))
	w.Invalidate()
	wantNodes(t, w.snapshot(t), "a")
	if !w.Primed() {
		t.Error("the API server is read for every snapshot")
	}
}

func TestInvalidationDuringRefreshIsNotLost(t *testing.T) {
	w := newTestCluster(t)
	var s *cluster.State
	live := interceptor.NewClient(w.live, interceptor.Funcs{
		List: func(ctx context.Context, live client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := live.List(ctx, list, opts...)
			s.Invalidate()
			return err
		},
	})
	s = w.state(w.cache, live)
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Primed() {
		t.Error("what was read before the doubt arose settles it")
	}
}

// All loops take their first snapshot at once. The API server is read once for them, page by page.
func TestOneReadOfTheAPIServerServesAll(t *testing.T) {
	w := newTestCluster(t, claimOf("shown"))
	for _, name := range []string{"a", "b", "c"} {
		w.create(t, claimOf(name))
	}
	var reads atomic.Int32
	s := w.state(w.cache, interceptor.NewClient(w.live, interceptor.Funcs{
		List: func(ctx context.Context, live client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			claims, of := list.(*karpv1.NodeClaimList)
			if !of {
				return live.List(ctx, list, opts...)
			}
			reads.Add(1)
			return onePerPage(ctx, live, claims, opts)
		},
	}))
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			snap, err := s.Snapshot(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			wantNodes(t, snap, "a", "b", "c", "shown")
		})
	}
	group.Wait()
	if got := reads.Load(); got != 4 {
		t.Errorf("%d pages were read, want 4", got)
	}
}

// onePerPage answers a list of NodeClaims with one claim, and a token for the next.
func onePerPage(ctx context.Context, live client.Reader, into *karpv1.NodeClaimList, opts []client.ListOption) error {
	var all karpv1.NodeClaimList
	if err := live.List(ctx, &all); err != nil {
		return err
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	at := 0
	if options.Continue != "" {
		if _, err := fmt.Sscan(options.Continue, &at); err != nil {
			return err
		}
	}
	into.Items = all.Items[at : at+1]
	if at+1 < len(all.Items) {
		into.Continue = fmt.Sprint(at + 1)
	}
	return nil
}

func TestNoSnapshotWithoutTheAPIServer(t *testing.T) {
	down := errors.New("connection refused")
	for _, verb := range []string{"list", "get"} {
		t.Run(verb, func(t *testing.T) {
			w := newTestCluster(t)
			c := claimOf("a")
			fail := false
			live := interceptor.NewClient(w.live, interceptor.Funcs{
				List: func(ctx context.Context, live client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if verb == "list" {
						return down
					}
					return live.List(ctx, list, opts...)
				},
				Get: func(ctx context.Context, live client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if fail {
						return down
					}
					return live.Get(ctx, key, o, opts...)
				},
			})
			s := w.state(w.cache, live)
			s.Created(c)
			fail = verb == "get"
			if _, err := s.Snapshot(t.Context()); !errors.Is(err, down) {
				t.Errorf("error %v, want %v: what is not known must not be planned without", err, down)
			}
		})
	}
}

func TestMarkedForDeletion(t *testing.T) {
	c := claimOf("a", launched("i-1"))
	w := newTestCluster(t, c)
	deleting := func() bool { return w.snapshot(t).Nodes[0].Deleting }
	w.MarkForDeletion(c.UID)
	if !deleting() {
		t.Error("a node marked for deletion takes pods until the cache shows its deletion")
	}
	w.Unmark(c.UID)
	if deleting() {
		t.Error("a spared node stays closed")
	}
	// The mark finishes with the claim: its name and its node may come again.
	w.MarkForDeletion(c.UID)
	for _, api := range []client.Client{w.cache, w.live} {
		if err := api.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	w.snapshot(t)
	w.catchUp(t, c)
	if deleting() {
		t.Error("the mark of a claim that is gone is kept")
	}
}

// A nomination protects a node for the window, and no longer.
func TestNominate(t *testing.T) {
	c := claimOf("claim-a", launched("i-1"), registered("node-a"))
	w := newTestCluster(t, c, nodeOf("node-a", "i-1", joinedNode))
	until := func() time.Time { return w.snapshot(t).Nodes[0].NominatedUntil }
	if !until().IsZero() {
		t.Error("nominated without a nomination")
	}
	w.Nominate("node-a")
	w.now = w.now.Add(10 * time.Second)
	w.Nominate("node-a")
	if want := start.Add(10*time.Second + window); !until().Equal(want) {
		t.Errorf("until %v, want %v: each nomination starts the window anew", until(), want)
	}
	w.now = w.now.Add(window + time.Second)
	if !until().IsZero() {
		t.Error("a nomination that has run out is kept")
	}
	w.Nominate("claim-a")
	if !until().Equal(w.now.Add(window)) {
		t.Error("a promise to the claim is forgotten once its node has registered")
	}
}

func TestManyStatesAtOnce(t *testing.T) {
	w := newTestCluster(t, claimOf("a", launched("i-1")))
	done := make(chan error)
	for i := range 8 {
		go func() {
			for range 20 {
				w.Nominate(fmt.Sprint(i))
				w.MarkForDeletion("uid-a")
				w.Invalidate()
				if _, err := w.Snapshot(context.Background()); err != nil {
					done <- err
					return
				}
				w.Unmark("uid-a")
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func nominates(uids string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) { c.Annotations[karpv1.AnnotationNominatedPods] = uids }
}

func launched(id string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		c.Status.ProviderID = "aws:///us-east-1a/" + id
		c.Status.Capacity, c.Status.Allocatable = room("4", "16Gi"), room("3", "14Gi")
		condition.SetTrue(c, karpv1.ConditionLaunched, start)
	}
}

func registered(node string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		c.Status.NodeName = node
		condition.SetTrue(c, karpv1.ConditionRegistered, start)
	}
}

func initialized(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionInitialized, start) }

// nodeOf returns a Node as its kubelet makes it.
func nodeOf(name, id string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			UID:               types.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(start),
			Labels:            map[string]string{},
		},
	}
	if id != "" {
		n.Spec.ProviderID = "aws:///us-east-1a/" + id
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Capacity, n.Status.Allocatable = room("4", "15Gi"), room("2", "13Gi")
	for _, f := range change {
		f(n)
	}
	return n
}

func joinedNode(n *corev1.Node) {
	n.Labels[karpv1.LabelNodePool], n.Labels[karpv1.LabelRegistered] = "general", "true"
}

func initializedNode(n *corev1.Node) { n.Labels[karpv1.LabelInitialized] = "true" }
