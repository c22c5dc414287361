package destroy_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// ec2 describes one instance, or fails.
type ec2 struct {
	instance cloudprovider.Instance
	err      error
}

func (e ec2) Get(_ context.Context, providerID string) (cloudprovider.Instance, error) {
	i := e.instance
	i.ProviderID = providerID
	return i, e.err
}

// owned is the instance of claim a, as its tags have it.
var owned = cloudprovider.Instance{
	ID: "i-a", State: cloudprovider.Running, Owner: cloudprovider.Ours, NodeClaim: "a", NodeClaimUID: "uid-a",
}

func claim(name string, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{}
	c.Name, c.UID, c.Finalizers = name, "uid-a", []string{karpv1.FinalizerTermination}
	c.Labels = map[string]string{karpv1.LabelNodePool: "general"}
	c.Status.ProviderID, c.Status.NodeName = "aws:///us-east-1a/i-a", "node-"+name
	c.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	for _, f := range change {
		f(c)
	}
	return c
}

// world is an API server with a claim, and a Guard.
type world struct {
	*destroy.Guard
	api     client.WithWatch
	records []destroy.Record
	clock   time.Time
}

func newWorld(t *testing.T, cloud destroy.Cloud, limits destroy.Limits, objects ...client.Object) *world {
	t.Helper()
	w := &world{clock: noon}
	now := func() time.Time { return w.clock }
	w.api = apitest.New(t, now, objects...)
	w.Guard = &destroy.Guard{
		Client: w.api, Live: w.api, Cloud: cloud, Log: slog.New(slog.DiscardHandler), Now: now,
		Budget: w.budget(limits, &destroy.Memory{}),
		Audit:  func(r destroy.Record) { w.records = append(w.records, r) },
	}
	return w
}

func (w *world) budget(limits destroy.Limits, store destroy.Store) *destroy.Budget {
	now := func() time.Time { return w.clock }
	return destroy.NewBudget(destroy.BudgetConfig{
		Limits: limits, Store: store, Fleet: (&destroy.Capacity{Client: w.api, Now: now}).Fleet, Now: now,
	})
}

// read returns a claim as it is now; nil if it is gone.
func (w *world) read(t *testing.T, name string) *karpv1.NodeClaim {
	t.Helper()
	c := &karpv1.NodeClaim{}
	if err := w.api.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		t.Fatal(err)
	}
	return c
}

func TestAClaimIsDeletedWithBothProofsOnly(t *testing.T) {
	planned := destroy.Why{Kind: destroy.Planned, Reason: "Drifted", Decision: "d-1"}
	interrupted := destroy.Why{Kind: destroy.Interrupted, Reason: "SpotInterrupted"}
	requested := destroy.Why{Kind: destroy.Requested, Reason: "its Node was deleted"}
	with := func(change func(*cloudprovider.Instance)) ec2 {
		i := owned
		change(&i)
		return ec2{instance: i}
	}
	failing := ec2{err: errors.New("RequestTimeout")}
	for _, tt := range []struct {
		name    string
		cloud   ec2
		why     destroy.Why
		claim   *karpv1.NodeClaim
		deleted bool
		fails   string
	}{
		{name: "ours", cloud: ec2{instance: owned}, why: planned, deleted: true},
		{name: "gone for good", cloud: ec2{err: cloudprovider.ErrNotFound}, why: planned, deleted: true},
		{name: "EC2 does not answer", cloud: failing, why: planned, fails: "RequestTimeout"},
		{name: "EC2 does not answer, and has announced to take it", cloud: failing, why: interrupted, deleted: true},
		{name: "EC2 does not answer, and a person has deleted the Node", cloud: failing, why: requested, deleted: true},
		{
			name: "another cluster's", cloud: with(func(i *cloudprovider.Instance) { i.Owner = cloudprovider.Foreign }), why: planned,
			fails: "instance i-a of node claim \"a\" is foreign by its tags",
		},
		{name: "another cluster's, interrupted", cloud: with(func(i *cloudprovider.Instance) { i.Owner = cloudprovider.Foreign }), why: interrupted, fails: "foreign"},
		{name: "of nobody known", cloud: with(func(i *cloudprovider.Instance) { i.Owner = cloudprovider.Unknown }), why: planned, fails: "unknown"},
		{name: "an earlier autoscaler's", cloud: with(func(i *cloudprovider.Instance) { i.Owner = cloudprovider.Adoptable }), why: planned, deleted: true},
		{
			name: "another claim's instance", why: planned, fails: "launched for node claim \"b\" with UID uid-b",
			cloud: with(func(i *cloudprovider.Instance) { i.NodeClaim, i.NodeClaimUID = "b", "uid-b" }),
		},
		{
			name: "restored from a backup with another UID", why: planned, deleted: true,
			cloud: with(func(i *cloudprovider.Instance) { i.NodeClaimUID = "uid-before-the-restore" }),
		},
		{name: "of a batch, not named yet", why: planned, deleted: true, cloud: with(func(i *cloudprovider.Instance) { i.NodeClaim, i.NodeClaimUID = "", "" })},
		{
			name: "not launched yet", cloud: failing, why: planned, deleted: true,
			claim: claim("a", func(c *karpv1.NodeClaim) { c.Status.ProviderID, c.Status.NodeName = "", "" }),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.claim
			if c == nil {
				c = claim("a")
			}
			w := newWorld(t, tt.cloud, destroy.DefaultLimits(), c)
			err := w.NodeClaim(t.Context(), c, tt.why)
			if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("error %v, want %q", err, tt.fails)
			}
			got := w.read(t, "a")
			if (got.DeletionTimestamp != nil) != tt.deleted || len(w.records) != map[bool]int{true: 1}[tt.deleted] {
				t.Fatalf("deleted at %v, want %v; records %+v", got.DeletionTimestamp, tt.deleted, w.records)
			}
			if cause, found := got.DeletionCause(); found != tt.deleted || found && cause.Reason != tt.why.Reason {
				t.Errorf("cause %+v, %v", cause, found)
			}
			if why := destroy.WhyOf(got); tt.deleted && (why.Kind != tt.why.Kind || why.Decision != tt.why.Decision) {
				t.Errorf("read back as %+v", why)
			}
		})
	}
}

func TestAClaimThatHasChangedIsNotDeleted(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*karpv1.NodeClaim)
		why      destroy.Why
		deleted  bool
		conflict bool
	}{
		{"as it was", func(*karpv1.NodeClaim) {}, destroy.Why{Kind: destroy.Planned, Unchanged: true}, true, false},
		{"another has its name", func(c *karpv1.NodeClaim) { c.UID = "uid-before" }, destroy.Why{Kind: destroy.Planned}, false, true},
		{"changed since", func(c *karpv1.NodeClaim) { c.ResourceVersion = "1" }, destroy.Why{Kind: destroy.Fault, Unchanged: true}, false, true},
		{"changed since, which does not matter", func(c *karpv1.NodeClaim) { c.ResourceVersion = "1" }, destroy.Why{Kind: destroy.Planned}, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, ec2{instance: owned}, destroy.DefaultLimits(), claim("a"))
			c := w.read(t, "a")
			tt.change(c)
			err := w.NodeClaim(t.Context(), c, tt.why)
			if apierrors.IsConflict(err) != tt.conflict || (err != nil) != tt.conflict {
				t.Errorf("error %v, want a conflict: %v", err, tt.conflict)
			}
			if got := w.read(t, "a").DeletionTimestamp != nil; got != tt.deleted {
				t.Errorf("deleted %v, want %v", got, tt.deleted)
			}
		})
	}
}

// Another writer comes between the read and the deletion: the deletion is repeated for what is there then, and counts once.
func TestOtherWritersDoNotPreventADeletion(t *testing.T) {
	w := newWorld(t, ec2{instance: owned}, destroy.Limits{destroy.Planned: {PerHour: 1, PerMinute: -1, NodesPerHour: 1}}, claim("a"))
	writes := 0
	w.Client = interceptor.NewClient(w.api, interceptor.Funcs{
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if writes++; writes <= 2 {
				other := &karpv1.NodeClaim{}
				if err := api.Get(ctx, client.ObjectKeyFromObject(o), other); err != nil {
					return err
				}
				metav1.SetMetaDataAnnotation(&other.ObjectMeta, "example.com/writes", strings.Repeat("x", writes))
				if err := api.Update(ctx, other); err != nil {
					return err
				}
			}
			return api.Patch(ctx, o, p, opts...)
		},
	})
	if err := w.NodeClaim(t.Context(), claim("a"), destroy.Why{Kind: destroy.Planned}); err != nil {
		t.Fatal(err)
	}
	if w.read(t, "a").DeletionTimestamp == nil || writes != 3 || len(w.records) != 1 {
		t.Errorf("%d writes, records %+v", writes, w.records)
	}
}

// fleetOf are claims of a pool with nodes.
func fleetOf(names ...string) (out []client.Object) {
	for _, name := range names {
		out = append(out, claim(name, func(c *karpv1.NodeClaim) { c.UID = "" }))
	}
	return append(out, &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}})
}

var anyInstance = ec2{instance: cloudprovider.Instance{ID: "i-a", Owner: cloudprovider.Ours}}

// half of the fleet may be deleted in an hour.
var half = destroy.Limits{destroy.Planned: {PerHour: 0.5, PerMinute: -1, NodesPerHour: 1}}

func TestPastTheLimitNothingIsDeletedUntilAPersonResumes(t *testing.T) {
	w := newWorld(t, anyInstance, half, fleetOf("a", "b", "c", "d")...)
	store := &destroy.Memory{}
	w.Budget = w.budget(half, store)
	del := func(name string, kind destroy.Kind) error {
		return w.NodeClaim(t.Context(), w.read(t, name), destroy.Why{Kind: kind})
	}
	for _, name := range []string{"a", "b"} {
		if err := del(name, destroy.Planned); err != nil {
			t.Fatal(err)
		}
	}
	err := del("c", destroy.Planned)
	if !destroy.IsPaused(err) || !strings.Contains(err.Error(), "3 nodes, 75%") || !strings.Contains(err.Error(), "`dovetail resume general`") {
		t.Fatalf("error %v", err)
	}
	w.Budget = w.budget(half, store) // the controller restarts
	if err := del("c", destroy.Fault); !destroy.IsPaused(err) {
		t.Errorf("after a restart, for another kind of reason: %v", err)
	}
	if err := w.MayDrain(t.Context(), w.read(t, "a")); !destroy.IsPaused(err) {
		t.Errorf("the drain of a node that was deleted before goes on: %v", err)
	}
	if err := del("d", destroy.Interrupted); err != nil {
		t.Errorf("an interrupted instance: %v", err)
	}
	if err := w.MayDrain(t.Context(), w.read(t, "d")); err != nil {
		t.Errorf("the drain of an interrupted node waits: %v", err)
	}
	if w.read(t, "c").DeletionTimestamp != nil {
		t.Fatal("c is deleted")
	}
	pool := &karpv1.NodePool{}
	if err := w.api.Get(t.Context(), client.ObjectKey{Name: "general"}, pool); err != nil {
		t.Fatal(err)
	}
	if resumed, err := w.Budget.Resume(t.Context(), pool); resumed || err != nil {
		t.Errorf("resumed without a person: %v", err)
	}
	metav1.SetMetaDataAnnotation(&pool.ObjectMeta, karpv1.AnnotationResumeDeletions, "2026-03-14T12:01:00Z")
	if resumed, err := w.Budget.Resume(t.Context(), pool); !resumed || err != nil {
		t.Errorf("resumed %v, %v", resumed, err)
	}
	if err := del("c", destroy.Planned); err != nil {
		t.Errorf("after a person has resumed: %v", err)
	}
}

func TestALimitOfAPoolThatCannotBeReadAllowsNothing(t *testing.T) {
	for text, want := range map[string]string{
		"0%": "is not above 0%", "many": "is not a share such as 20%", "": "is not a share", "-5%": "is not above 0%",
	} {
		objects := fleetOf("a")
		metav1.SetMetaDataAnnotation(&objects[1].(*karpv1.NodePool).ObjectMeta, karpv1.AnnotationBlastRadius, text)
		w := newWorld(t, anyInstance, destroy.DefaultLimits(), objects...)
		err := w.NodeClaim(t.Context(), w.read(t, "a"), destroy.Why{Kind: destroy.Planned})
		if !destroy.IsPaused(err) || !strings.Contains(err.Error(), `metadata.annotations[dovetail.sh/blast-radius] of NodePool "general": "`+text+`" `+want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAnEmptyNodeTakesNoRoom(t *testing.T) {
	w := newWorld(t, anyInstance, half, fleetOf("a", "b", "c", "d")...)
	w.Pods = func(context.Context, string) (int, error) { return 0, nil }
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := w.NodeClaim(t.Context(), w.read(t, name), destroy.Why{Kind: destroy.Planned}); err != nil {
			t.Fatal(err)
		}
	}
}

// brokenStore cannot write.
type brokenStore struct{ destroy.Memory }

func (*brokenStore) Save(context.Context, destroy.Ledger) error {
	return errors.New("etcd is read-only")
}

func TestNothingIsDeletedThatCannotBeCounted(t *testing.T) {
	w := newWorld(t, anyInstance, half, fleetOf("a", "b")...)
	w.Budget = w.budget(half, &brokenStore{})
	if err := w.NodeClaim(t.Context(), w.read(t, "a"), destroy.Why{Kind: destroy.Planned}); err == nil || w.read(t, "a").DeletionTimestamp != nil {
		t.Errorf("error %v", err)
	}
}

func TestPermits(t *testing.T) {
	const id = "aws:///us-east-1a/i-a"
	deleting := claim("a", func(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{Time: noon} })
	other := owned
	other.NodeClaim, other.NodeClaimUID = "b", "uid-b"
	foreign := cloudprovider.Instance{ID: "i-b", ProviderID: "aws:///us-east-1a/i-b"}
	for _, tt := range []struct {
		name   string
		claim  *karpv1.NodeClaim
		permit func(w *world) (destroy.Permit, error)
		covers cloudprovider.Instance
		fails  bool
	}{
		{"of a claim that is deleted", deleting, func(w *world) (destroy.Permit, error) { return w.OfClaim(t.Context(), deleting, id) }, owned, false},
		{"of a claim that lives", claim("a"), func(w *world) (destroy.Permit, error) { return w.OfClaim(t.Context(), claim("a"), id) }, owned, true},
		{
			"of a claim with another instance", deleting,
			func(w *world) (destroy.Permit, error) {
				return w.OfClaim(t.Context(), deleting, "aws:///us-east-1a/i-b")
			}, foreign, true,
		},
		{"for an instance of another claim", deleting, func(w *world) (destroy.Permit, error) { return w.OfClaim(t.Context(), deleting, id) }, other, true},
		{"for another instance", deleting, func(w *world) (destroy.Permit, error) { return w.OfClaim(t.Context(), deleting, id) }, foreign, true},
		{"none", claim("a"), func(*world) (destroy.Permit, error) { return destroy.Permit{}, nil }, owned, true},
		{
			"of a launch that its claim has", claim("a"), func(w *world) (destroy.Permit, error) { return w.OfLaunch(t.Context(), claim("a"), id) }, owned, true,
		},
		{
			"of a launch that its claim has, which was restored with another UID", claim("a", func(c *karpv1.NodeClaim) { c.UID = "restored" }),
			func(w *world) (destroy.Permit, error) { return w.OfLaunch(t.Context(), claim("a"), id) }, owned, true,
		},
		{
			"of a launch whose claim is gone", claim("z"), func(w *world) (destroy.Permit, error) { return w.OfLaunch(t.Context(), claim("a"), id) }, owned, false,
		},
		{"of an orphan whose claim lives", claim("a"), func(w *world) (destroy.Permit, error) {
			i := owned
			i.ProviderID = id
			return w.OfNoClaim(t.Context(), i)
		}, owned, true},
		{"of an orphan", claim("z"), func(w *world) (destroy.Permit, error) {
			i := owned
			i.ProviderID = id
			return w.OfNoClaim(t.Context(), i)
		}, owned, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, anyInstance, destroy.DefaultLimits(), tt.claim)
			permit, err := tt.permit(w)
			if err == nil {
				err = permit.Covers(tt.covers)
			}
			if errors.Is(err, destroy.ErrNotProven) != tt.fails || (err != nil) != tt.fails {
				t.Fatalf("error %v, want a refusal: %v", err, tt.fails)
			}
			if len(w.records) != 0 {
				t.Fatalf("recorded before it is used: %+v", w.records)
			}
			if permit.Used(tt.covers); !tt.fails && (len(w.records) != 1 || w.records[0].Verb != destroy.TerminateInstance) {
				t.Errorf("records %+v", w.records)
			}
		})
	}
}

// The controller is killed between any two writes of a deletion: repeated, it deletes, and the ledger has counted at least once.
func TestADeletionCanBeKilledAndRepeated(t *testing.T) {
	for kill := 1; kill <= 2; kill++ {
		w := newWorld(t, anyInstance, half, fleetOf("a", "b", "c", "d")...)
		store := &destroy.Memory{}
		w.Budget = w.budget(half, store)
		writes, killed := 0, errors.New("killed")
		dies := func() error {
			if writes++; writes == kill {
				return killed
			}
			return nil
		}
		w.Client = interceptor.NewClient(w.api, interceptor.Funcs{
			Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if err := dies(); err != nil {
					return err
				}
				return api.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if err := dies(); err != nil {
					return err
				}
				return api.Delete(ctx, o, opts...)
			},
		})
		why := destroy.Why{Kind: destroy.Planned, Reason: "Drifted"}
		if err := w.NodeClaim(t.Context(), w.read(t, "a"), why); !errors.Is(err, killed) {
			t.Fatal(err)
		}
		w.Budget = w.budget(half, store)
		if err := w.NodeClaim(t.Context(), w.read(t, "a"), why); err != nil || w.read(t, "a").DeletionTimestamp == nil {
			t.Fatalf("killed at write %d, and repeated: %v", kill, err)
		}
		if err := w.NodeClaim(t.Context(), w.read(t, "b"), why); !destroy.IsPaused(err) {
			t.Errorf("killed at write %d: the first attempt counts no longer: %v", kill, err)
		}
	}
}

// The API server refuses a deletion if the object has changed since it was read, or another object has its name now.
func TestDeletionsNameTheObjectThatWasRead(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "uid-node"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-pod"}}
	w := newWorld(t, ec2{instance: owned}, destroy.DefaultLimits(), claim("a"), node, pod)
	got := map[string]metav1.Preconditions{}
	note := func(o client.Object, p *metav1.Preconditions) {
		if p == nil {
			p = &metav1.Preconditions{}
		}
		got[o.GetName()] = *p
	}
	w.Client = interceptor.NewClient(w.api, interceptor.Funcs{
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			var options client.DeleteOptions
			note(o, options.ApplyOptions(opts).Preconditions)
			return api.Delete(ctx, o, opts...)
		},
		SubResourceCreate: func(_ context.Context, _ client.Client, sub string, o, of client.Object, _ ...client.SubResourceCreateOption) error {
			if eviction, ok := of.(*policyv1.Eviction); ok && sub == "eviction" {
				note(o, eviction.DeleteOptions.Preconditions)
			}
			return nil
		},
	})
	why := destroy.Why{Kind: destroy.Planned, Pool: "general"}
	evicted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "evicted", UID: "uid-evicted", ResourceVersion: "7"}}
	err := errors.Join(w.NodeClaim(t.Context(), claim("a"), why), w.Node(t.Context(), node, why), w.Pod(t.Context(), pod, 1, why),
		w.Evict(t.Context(), evicted, why))
	if err != nil {
		t.Fatal(err)
	}
	if p := got["evicted"]; p.UID == nil || *p.UID != "uid-evicted" || p.ResourceVersion == nil || *p.ResourceVersion != "7" {
		t.Errorf("a pod is evicted with the preconditions %v", p)
	}
	for _, r := range w.records {
		if r.Object.Kind == "Pod" && r.NodePool != "general" {
			t.Errorf("the audit has no NodePool: %+v", r)
		}
	}
	for name, uid := range map[string]types.UID{"a": "uid-a", "node-a": "uid-node", "web": "uid-pod"} {
		if p := got[name]; p.UID == nil || *p.UID != uid || (p.ResourceVersion != nil) != (name == "a") {
			t.Errorf("%s is deleted with the preconditions %v", name, p)
		}
	}
	for name, change := range map[string]func(*corev1.Node){
		"another has its name":    func(n *corev1.Node) { n.UID = "uid-before" },
		"it has another instance": func(n *corev1.Node) { n.Spec.ProviderID = "aws:///us-east-1a/i-before" },
		"it is as it was":         func(*corev1.Node) {},
	} {
		w := newWorld(t, ec2{instance: owned}, destroy.DefaultLimits(), node.DeepCopy())
		read := node.DeepCopy()
		change(read)
		if err := w.Node(t.Context(), read, why); err != nil || len(w.records) > 0 != (name == "it is as it was") {
			t.Errorf("Node, %s: %v, records %+v", name, err, w.records)
		}
	}
	if _, err := w.OfClaim(t.Context(), claim("a", func(c *karpv1.NodeClaim) { c.UID = "uid-before" }), "aws:///us-east-1a/i-a"); !errors.Is(err, destroy.ErrNotProven) {
		t.Errorf("a permit for a claim whose name another has now: %v", err)
	}
}
