package destroy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// flakyStore fails while err is set.
type flakyStore struct {
	destroy.Memory
	err error
}

func (s *flakyStore) Save(ctx context.Context, l destroy.Ledger) error {
	if s.err != nil {
		return s.err
	}
	return s.Memory.Save(ctx, l)
}

func (s *flakyStore) Load(ctx context.Context) (destroy.Ledger, error) {
	if s.err != nil {
		return destroy.Ledger{}, s.err
	}
	return s.Memory.Load(ctx)
}

// An API server that is away for minutes must not leave more counted than is deleted: the pause would need a person.
func TestWhatIsTriedAgainCountsOnce(t *testing.T) {
	w := newWorld(t, anyInstance, half, fleetOf("a", "b", "c", "d")...)
	store := &flakyStore{}
	w.Budget = w.budget(half, store)
	del := func(name string) error {
		return w.NodeClaim(t.Context(), w.read(t, name), destroy.Why{Kind: destroy.Planned})
	}
	if _, err := w.Budget.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.err = errors.New("etcd is read-only")
	for range 10 {
		if err := del("a"); !errors.Is(err, store.err) || destroy.IsPaused(err) {
			t.Fatalf("error %v", err)
		}
	}
	store.err = nil
	for _, name := range []string{"a", "b"} {
		if err := del(name); err != nil {
			t.Fatal(err)
		}
	}
	if stored, _ := store.Memory.Load(t.Context()); len(stored.Buckets) != 1 || stored.Buckets[0].Deleted.Nodes != 2 {
		t.Errorf("stored: %+v", stored)
	}
	if err := del("c"); !destroy.IsPaused(err) {
		t.Errorf("c: %v", err)
	}
}

func TestWhatIsTriedAgainAnHourLaterCountsAgain(t *testing.T) {
	w := newWorld(t, anyInstance, half, fleetOf("a", "b", "c", "d")...)
	store := &flakyStore{}
	w.Budget = w.budget(half, store)
	lost := errors.New("connection lost")
	w.Client = failingDeletes{w.Client, lost}
	why := destroy.Why{Kind: destroy.Planned}
	for range 3 {
		if err := w.NodeClaim(t.Context(), w.read(t, "a"), why); !errors.Is(err, lost) {
			t.Fatal(err)
		}
	}
	w.clock = w.clock.Add(2 * time.Hour)
	if err := w.NodeClaim(t.Context(), w.read(t, "a"), why); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	if stored, _ := store.Memory.Load(t.Context()); len(stored.Buckets) != 1 || stored.Buckets[0].Minute != w.clock.Unix()/60 {
		t.Errorf("stored: %+v", stored)
	}
}

// failingDeletes is a client with deletions that fail.
type failingDeletes struct {
	client.Client
	err error
}

func (f failingDeletes) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return f.err
}

// An instance with termination protection is tried again every few minutes.
func TestAnOrphanThatCannotBeTerminatedCountsOnce(t *testing.T) {
	w := newWorld(t, anyInstance, destroy.DefaultLimits(), fleetOf("a")...)
	i := cloudprovider.Instance{ID: "i-z", ProviderID: "aws:///us-east-1a/i-z", Owner: cloudprovider.Ours}
	for n := range 30 {
		if _, err := w.OfNoClaim(t.Context(), i); err != nil {
			t.Fatalf("attempt %d: %v", n, err)
		}
		w.clock = w.clock.Add(time.Minute)
	}
}

func TestAPauseThatCouldNotBeSavedIsReportedAndSavedLater(t *testing.T) {
	w := newWorld(t, anyInstance, half, fleetOf("a", "b")...)
	store, changed := &flakyStore{}, 0
	w.Budget = destroy.NewBudget(destroy.BudgetConfig{
		Limits: half, Store: store, Now: func() time.Time { return w.clock }, Changed: func() { changed++ },
		Fleet: (&destroy.Capacity{Client: w.api, Now: func() time.Time { return w.clock }}).Fleet,
	})
	why := destroy.Why{Kind: destroy.Planned}
	if err := w.NodeClaim(t.Context(), w.read(t, "a"), why); err != nil {
		t.Fatal(err)
	}
	store.err = errors.New("etcd is read-only")
	if err := w.NodeClaim(t.Context(), w.read(t, "b"), why); !destroy.IsPaused(err) || changed == 0 {
		t.Fatalf("error %v, reported %d times", err, changed)
	}
	w.clock = w.clock.Add(time.Minute)
	if since, err := w.Budget.Ready(t.Context()); !errors.Is(err, store.err) || !since.Equal(noon) {
		t.Errorf("since %v: %v", since, err)
	}
	store.err = nil
	if since, err := w.Budget.Ready(t.Context()); err != nil || !since.IsZero() {
		t.Errorf("since %v: %v", since, err)
	}
	w.Budget = w.budget(half, store) // the controller restarts
	if err := w.Budget.Paused(t.Context(), "general"); !destroy.IsPaused(err) {
		t.Errorf("after a restart: %v", err)
	}
}

// pausedWorld has claims a (planned, deleted before), b and c (left), and deletions of their NodePool are paused.
func pausedWorld(t *testing.T, cloud destroy.Cloud) *world {
	t.Helper()
	w := newWorld(t, anyInstance, half, fleetOf("a", "b", "c")...)
	if err := w.NodeClaim(t.Context(), w.read(t, "a"), destroy.Why{Kind: destroy.Planned}); err != nil {
		t.Fatal(err)
	}
	if err := w.NodeClaim(t.Context(), w.read(t, "b"), destroy.Why{Kind: destroy.Planned}); !destroy.IsPaused(err) {
		t.Fatal(err)
	}
	if err := w.MayDrain(t.Context(), w.read(t, "a")); !destroy.IsPaused(err) {
		t.Fatal(err)
	}
	w.Cloud = cloud
	return w
}

func TestAnEmptyNodeIsDrainedWhileDeletionsArePaused(t *testing.T) {
	w := pausedWorld(t, anyInstance)
	w.Pods = func(context.Context, string) (int, error) { return 0, nil }
	if err := w.NodeClaim(t.Context(), w.read(t, "c"), destroy.Why{Kind: destroy.Planned}); err != nil {
		t.Fatal(err)
	}
	if err := w.MayDrain(t.Context(), w.read(t, "c")); err != nil {
		t.Errorf("its drain waits: %v", err)
	}
	if _, err := w.OfClaim(t.Context(), w.read(t, "c"), w.read(t, "c").Status.ProviderID); err != nil {
		t.Errorf("its instance is not terminated: %v", err)
	}
}

func TestAnInterruptionOfANodeWhoseDrainWaitsStartsIt(t *testing.T) {
	w := pausedWorld(t, anyInstance)
	for _, why := range []destroy.Why{{Kind: destroy.Fault}, {Kind: destroy.Planned}} {
		if err := w.NodeClaim(t.Context(), w.read(t, "a"), why); err != nil && !destroy.IsPaused(err) {
			t.Fatal(err)
		}
		if err := w.MayDrain(t.Context(), w.read(t, "a")); !destroy.IsPaused(err) {
			t.Errorf("%s: the drain starts: %v", why.Kind, err)
		}
	}
	if err := w.NodeClaim(t.Context(), w.read(t, "a"), destroy.Why{Kind: destroy.Interrupted, Reason: "SpotInterrupted", Unchanged: true}); err != nil {
		t.Fatal(err)
	}
	if err := w.MayDrain(t.Context(), w.read(t, "a")); err != nil {
		t.Errorf("the drain waits: %v", err)
	}
	if n := len(w.records); n != 1 {
		t.Errorf("%d deletions are recorded, want 1", n)
	}
}

func TestAnInstanceThatIsShuttingDownIsFinishedWhileDeletionsArePaused(t *testing.T) {
	w := pausedWorld(t, anyInstance)
	a := w.read(t, "a")
	condition.SetTrue(a, karpv1.ConditionInstanceTerminating, noon)
	if err := w.MayDrain(t.Context(), a); err != nil {
		t.Errorf("%v", err)
	}
}

// countingCloud counts descriptions.
type countingCloud struct {
	destroy.Cloud
	calls int
}

func (c *countingCloud) Get(ctx context.Context, id string) (cloudprovider.Instance, error) {
	c.calls++
	return c.Cloud.Get(ctx, id)
}

// countingReader counts reads from the API server.
type countingReader struct {
	client.Reader
	calls int
}

func (c *countingReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.calls++
	return c.Reader.Get(ctx, key, o, opts...)
}

// A thousand expired claims try every 15 seconds.
func TestWhileDeletionsArePausedNobodyIsAsked(t *testing.T) {
	cloud := &countingCloud{Cloud: anyInstance}
	w := pausedWorld(t, cloud)
	c, live := w.read(t, "c"), &countingReader{Reader: w.api}
	w.Live = live
	for range 1000 {
		for _, kind := range []destroy.Kind{destroy.Expired, destroy.Fault} {
			if err := w.NodeClaim(t.Context(), c, destroy.Why{Kind: kind, Unchanged: true}); !destroy.IsPaused(err) {
				t.Fatal(err)
			}
		}
	}
	if cloud.calls != 0 || live.calls != 0 {
		t.Errorf("%d calls of EC2, %d of the API server, want none", cloud.calls, live.calls)
	}
	if err := w.NodeClaim(t.Context(), c, destroy.Why{Kind: destroy.Planned}); !destroy.IsPaused(err) || cloud.calls != 0 {
		t.Errorf("planned: %d calls of EC2, %v", cloud.calls, err)
	}
}

func TestAPauseEndsWithItsNodePool(t *testing.T) {
	w := pausedWorld(t, anyInstance)
	pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
	if err := w.api.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	w.clock = w.clock.Add(time.Minute) // past the age of what Capacity has read
	if err := w.MayDrain(t.Context(), w.read(t, "a")); err != nil {
		t.Errorf("nobody can resume, and the drain waits: %v", err)
	}
	if err := w.Budget.Forget(t.Context(), "general"); err != nil {
		t.Fatal(err)
	}
	pool.ResourceVersion = ""
	if err := w.api.Create(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	w.clock = w.clock.Add(time.Minute)
	if err := w.Budget.Paused(t.Context(), "general"); err != nil {
		t.Errorf("a new NodePool of its name is paused: %v", err)
	}
}

// Claims with the label of a NodePool that does not exist count for the cluster.
func TestANodePoolThatDoesNotExistHasNoLimitOfItsOwn(t *testing.T) {
	var objects []client.Object
	for n := range 4 {
		objects = append(objects, claim(fmt.Sprint("ghost-", n), func(c *karpv1.NodeClaim) { c.UID = "" }))
	}
	w := newWorld(t, anyInstance, half, objects...)
	for n, want := range []bool{false, false, true} {
		err := w.NodeClaim(t.Context(), w.read(t, fmt.Sprint("ghost-", n)), destroy.Why{Kind: destroy.Planned})
		paused := (*destroy.Paused)(nil)
		if errors.As(err, &paused) != want || want && paused.Scope != destroy.Cluster {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// A person has scaled a static NodePool of 120 nodes to 0: it takes a few minutes, and nobody needs to resume anything.
func TestPatientDeletionsWaitForTheNextMinute(t *testing.T) {
	const n = 120
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("n-%03d", i))
	}
	limits := destroy.Limits{destroy.Planned: {PerHour: 1, PerMinute: 0.5, NodesPerHour: 30, NodesPerMinute: 50}}
	w := newWorld(t, anyInstance, limits, fleetOf(names...)...)
	why := destroy.Why{Kind: destroy.Planned, Reason: "fewer_replicas", Patient: true}
	deleted, minutes := 0, 0
	for ; deleted < n && minutes < 10; minutes++ {
		before := deleted
		for _, name := range names {
			c := w.read(t, name)
			if c.DeletionTimestamp != nil {
				continue
			}
			if err := w.NodeClaim(t.Context(), c, why); err == nil {
				deleted++
			} else if !destroy.IsPaused(err) {
				t.Fatal(err)
			}
		}
		if got := deleted - before; got == 0 || got > n/2 {
			t.Errorf("%d were deleted in a minute", got)
		}
		if err := w.Budget.Paused(t.Context(), "general"); err != nil {
			t.Fatal(err)
		}
		w.clock = w.clock.Add(time.Minute)
	}
	if deleted != n || minutes > 3 {
		t.Errorf("%d of %d were deleted in %d minutes", deleted, n, minutes)
	}
}
