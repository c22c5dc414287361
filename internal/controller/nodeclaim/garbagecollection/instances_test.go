package garbagecollection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func claim(name, providerID string) karpv1.NodeClaim {
	c := karpv1.NodeClaim{}
	c.Name = name
	c.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	c.Status.ProviderID = providerID
	return c
}

func instance(id string, owner cloudprovider.Ownership, age time.Duration) cloudprovider.Instance {
	return cloudprovider.Instance{
		ID:         id,
		ProviderID: "aws:///a/" + id,
		Owner:      owner,
		State:      cloudprovider.Running,
		LaunchedAt: now.Add(-age),
	}
}

func TestOrphanedInstances(t *testing.T) {
	launchedFor := func(name, uid string) cloudprovider.Instance {
		i := instance("i-2", cloudprovider.Ours, time.Hour)
		i.NodeClaim, i.NodeClaimUID = name, uid
		return i
	}
	launching := claim("launching", "")
	launching.UID = "uid-launching"
	inBatch := func(slot string) karpv1.NodeClaim {
		c := claim("inBatch", "")
		c.Annotations = map[string]string{karpv1.AnnotationLaunch: slot}
		return c
	}
	together := func(launch string) cloudprovider.Instance {
		i := instance("i-3", cloudprovider.Ours, time.Hour)
		i.Launch = launch
		return i
	}
	ending := instance("i-4", cloudprovider.Ours, time.Hour)
	ending.State = cloudprovider.ShuttingDown
	tests := []struct {
		name     string
		instance cloudprovider.Instance
		claims   []karpv1.NodeClaim
		orphan   bool
	}{
		{"ours, old, no claim", instance("i-1", cloudprovider.Ours, time.Minute), nil, true},
		{"younger than 30 s", instance("i-1", cloudprovider.Ours, 29*time.Second), nil, false},
		{"another cluster's", instance("i-1", cloudprovider.Foreign, time.Hour), nil, false},
		{"without an owner", instance("i-1", cloudprovider.Unknown, time.Hour), nil, false},
		{"ours, without a claim, 20 s old", instance("i-1", cloudprovider.Ours, 20*time.Second), nil, false},
		{"ours, without a claim, a minute old", instance("i-1", cloudprovider.Ours, time.Minute), nil, true},
		{
			"young, and its claim has no provider ID",
			instance("i-1", cloudprovider.Ours, 20*time.Second),
			[]karpv1.NodeClaim{launching},
			false,
		},
		{"to be adopted first", instance("i-1", cloudprovider.Adoptable, time.Hour), nil, false},
		{
			"its claim has its provider ID",
			instance("i-1", cloudprovider.Ours, time.Hour),
			[]karpv1.NodeClaim{claim("a", "aws:///a/i-1")},
			false,
		},
		{"its claim has not recorded it yet", launchedFor("launching", "uid-launching"), []karpv1.NodeClaim{launching}, false},
		{"it was launched for an earlier claim of that name", launchedFor("launching", "uid-earlier"), []karpv1.NodeClaim{launching}, true},
		{"it has only the name of a claim that is not recorded yet", launchedFor("launching", ""), []karpv1.NodeClaim{launching}, false},
		{
			"the claim it was launched for has another",
			launchedFor("launched", "uid-launched"),
			[]karpv1.NodeClaim{claim("launched", "aws:///a/i-9")},
			true,
		},
		{"already being deleted", ending, nil, false},
		{"one of several, for claims of which one has not recorded its own yet", together("x"), []karpv1.NodeClaim{inBatch("x/0/2")}, false},
		{"one of several, for claims that have theirs", together("x"), []karpv1.NodeClaim{inBatch("y/0/2")}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := orphaned([]cloudprovider.Instance{tt.instance}, tt.claims, now)
			if (len(got) == 1) != tt.orphan {
				t.Errorf("orphan = %v, want %v", len(got) == 1, tt.orphan)
			}
		})
	}
}

// fakeFleet is a cloud in which instances terminate at once.
type fakeFleet struct {
	instances []cloudprovider.Instance
	// launching are the UIDs of claims with a launch in progress.
	launching map[string]bool
	// listed, if set, is called after EC2 has listed its instances.
	listed     func()
	terminated []string
	// recent is an earlier listing; lists counts the later ones.
	recent []cloudprovider.Instance
	lists  int
	// unlisted are instances that EC2 describes and does not list; describes is the error of describing one.
	unlisted  []cloudprovider.Instance
	describes error
	// described counts descriptions of single instances.
	described int
}

func (f *fakeFleet) Get(_ context.Context, providerID string) (cloudprovider.Instance, error) {
	f.described++
	if f.describes != nil {
		return cloudprovider.Instance{}, f.describes
	}
	for _, i := range slices.Concat(f.instances, f.unlisted) {
		if i.ProviderID == providerID {
			return i, nil
		}
	}
	return cloudprovider.Instance{}, cloudprovider.ErrNotFound
}

func (f *fakeFleet) List(context.Context) ([]cloudprovider.Instance, error) {
	f.lists++
	if f.listed != nil {
		f.listed()
	}
	return f.instances, nil
}

// Recent is the listing before, if there is one.
func (f *fakeFleet) Recent(ctx context.Context, maxAge time.Duration) ([]cloudprovider.Instance, error) {
	if f.recent != nil && maxAge >= time.Minute {
		return f.recent, nil
	}
	return f.List(ctx)
}

func (f *fakeFleet) Terminate(_ context.Context, permit destroy.Permit) error {
	providerID, err := permit.ProviderID()
	if err != nil {
		return err
	}
	f.terminated = append(f.terminated, providerID)
	return cloudprovider.ErrNotFound
}

func (f *fakeFleet) Launching(uid string) bool { return f.launching[uid] }

// fleetOf are n instances of ours, old enough, of which the first orphans have no claim.
func fleetOf(n, orphans int) (*fakeFleet, []client.Object) {
	f := &fakeFleet{launching: map[string]bool{}}
	var claims []client.Object
	for i := range n {
		id := fmt.Sprintf("i-%d", i)
		f.instances = append(f.instances, instance(id, cloudprovider.Ours, time.Hour))
		if i >= orphans {
			c := claim("claim-"+id, "aws:///a/"+id)
			claims = append(claims, &c)
		}
	}
	return f, claims
}

// collector collects from a fleet, with an API server that has objects.
func collector(t *testing.T, fleet *fakeFleet, objects ...client.Object) (*Instances, *controllertest.Fixture) {
	f := controllertest.New(t, objects...)
	return &Instances{
		Client: f.API, Guard: destroytest.Guard(f.API, f.Now),
		Live:    f.API,
		Cloud:   fleet,
		Events:  f.Events,
		Metrics: f.Metrics,
		Log:     f.Log,
		Now:     func() time.Time { return now },
	}, f
}

func TestManyOrphansAtOnceAreAMistakeAndStay(t *testing.T) {
	for _, tt := range []struct {
		fleet, orphans int
		collected      bool
	}{
		{3, 3, true}, {4, 4, false}, {79, 3, true}, {79, 4, false}, {80, 4, true}, {100, 5, true}, {100, 6, false},
	} {
		t.Run(fmt.Sprintf("%d of %d", tt.orphans, tt.fleet), func(t *testing.T) {
			fleet, objects := fleetOf(tt.fleet, tt.orphans)
			c, f := collector(t, fleet, append(objects, controllertest.Pool("general"))...)
			_, err := c.pass(t.Context())
			if tt.collected {
				if err != nil || len(fleet.terminated) != tt.orphans {
					t.Errorf("%d were terminated, %v", len(fleet.terminated), err)
				}
				return
			}
			if err == nil || len(fleet.terminated) > 0 {
				t.Errorf("%d were terminated, %v", len(fleet.terminated), err)
			}
			if events := f.RecordedEvents(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning CollectionStopped") ||
				!strings.Contains(events[0], "nothing was deleted") {
				t.Errorf("events %q", events)
			}
			if got := testutil.ToFloat64(f.Metrics.CollectionRefused); got != float64(tt.orphans) {
				t.Errorf("dovetail_collection_refused_instances is %v", got)
			}
		})
	}
}

// The fleet lists every instance with the cluster's name, other clusters' among them: they do not raise the limit.
func TestInstancesOfOtherClustersDoNotLetMoreOfOursGo(t *testing.T) {
	for _, owner := range []cloudprovider.Ownership{cloudprovider.Foreign, cloudprovider.Unknown, cloudprovider.Adoptable} {
		t.Run(string(owner), func(t *testing.T) {
			fleet, objects := fleetOf(200, 200)
			for i := range 4000 {
				fleet.instances = append(fleet.instances, instance(fmt.Sprintf("i-other-%d", i), owner, time.Hour))
			}
			c, f := collector(t, fleet, append(objects, controllertest.Pool("general"))...)
			_, err := c.pass(t.Context())
			if err == nil || len(fleet.terminated) > 0 {
				t.Fatalf("%d instances were terminated, %v", len(fleet.terminated), err)
			}
			if events := f.RecordedEvents(); len(events) != 1 ||
				!strings.Contains(events[0], "200 of this cluster's 200 instances have no NodeClaim") {
				t.Errorf("events %q", events)
			}
		})
	}
	t.Run("shutting down", func(t *testing.T) {
		fleet, objects := fleetOf(200, 10)
		for i := 10; i < 200; i++ {
			fleet.instances[i].State = cloudprovider.ShuttingDown
		}
		c, _ := collector(t, fleet, append(objects, controllertest.Pool("general"))...)
		if _, err := c.pass(t.Context()); err == nil || len(fleet.terminated) > 0 {
			t.Errorf("%d instances were terminated, %v", len(fleet.terminated), err)
		}
	})
}

func TestLaunchInProgressIsAProofAgainstDeletion(t *testing.T) {
	fleet, _ := fleetOf(1, 1)
	fleet.instances[0].NodeClaimUID = "uid-a"
	fleet.launching["uid-a"] = true
	c, _ := collector(t, fleet)
	if _, err := c.pass(t.Context()); err != nil || len(fleet.terminated) > 0 {
		t.Errorf("terminated %v, %v", fleet.terminated, err)
	}
	fleet.launching["uid-a"] = false
	if _, err := c.pass(t.Context()); err != nil || len(fleet.terminated) != 1 {
		t.Errorf("terminated %v, %v", fleet.terminated, err)
	}
}

func TestNodeGoesWithItsInstance(t *testing.T) {
	t.Run("the instance is terminated, and its Node deleted", func(t *testing.T) {
		fleet, _ := fleetOf(1, 1)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "orphan"}, Spec: corev1.NodeSpec{ProviderID: "aws:///a/i-0"}}
		c, f := collector(t, fleet, node)
		if _, err := c.pass(t.Context()); err != nil || len(fleet.terminated) != 1 {
			t.Fatalf("terminated %v, %v", fleet.terminated, err)
		}
		err := f.API.Get(t.Context(), client.ObjectKeyFromObject(node), node)
		if err == nil && node.DeletionTimestamp == nil {
			t.Error("the Node stays")
		}
	})
}

// A claim that gets its instance while EC2 is being listed is seen, because claims are read afterwards.
func TestClaimsAreReadAfterInstances(t *testing.T) {
	fleet, _ := fleetOf(1, 1)
	c, f := collector(t, fleet)
	fleet.listed = func() {
		late := claim("late", "aws:///a/i-0")
		f.Do(f.API.Create(t.Context(), &late))
	}
	if _, err := c.pass(t.Context()); err != nil || len(fleet.terminated) > 0 {
		t.Errorf("terminated %v, %v", fleet.terminated, err)
	}
}

// While every instance of an earlier listing has its claim in the cache, neither EC2 nor the API server is read.
func TestNothingIsReadWhileNothingIsLeftOver(t *testing.T) {
	fleet, objects := fleetOf(3, 0)
	fleet.recent = fleet.instances
	c, _ := collector(t, fleet, objects...)
	c.Live = nil // a read would panic
	if seen, err := c.pass(t.Context()); err != nil || seen != 3 || fleet.lists != 0 {
		t.Errorf("%d instances, %d listings, %v", seen, fleet.lists, err)
	}
}

// A hundred instances are terminated with their claims after the listing. That is no reason to stop collecting, as a
// hundred leftovers are.
func TestInstancesThatAreGoneSinceAListingAreNoLeftovers(t *testing.T) {
	fleet, objects := fleetOf(110, 101)
	fleet.recent = fleet.instances
	fleet.instances = fleet.instances[100:]
	c, f := collector(t, fleet, append(objects, controllertest.Pool("general"))...)
	if _, err := c.pass(t.Context()); err != nil || len(fleet.terminated) != 1 || fleet.lists != 1 {
		t.Errorf("terminated %v, %d listings, %v", fleet.terminated, fleet.lists, err)
	}
	if events := f.RecordedEvents(); len(events) != 0 {
		t.Errorf("events %q", events)
	}
}
