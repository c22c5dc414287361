package garbagecollection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

func TestOrphanedClaims(t *testing.T) {
	tests := []struct {
		name    string
		claim   *karpv1.NodeClaim
		nodes   []client.Object
		there   bool
		deleted bool
	}{
		{
			"silent Node, instance gone",
			controllertest.Claim("a", controllertest.Registered),
			[]client.Object{controllertest.ReadyNode("a", controllertest.NotReady)},
			false,
			true,
		},
		{"Node gone, instance gone", controllertest.Claim("a", controllertest.Registered), nil, false, true},
		{
			"Node Ready, instance gone",
			controllertest.Claim("a", controllertest.Registered),
			[]client.Object{controllertest.ReadyNode("a")},
			false,
			false,
		},
		{"never registered, instance gone", controllertest.Claim("a", controllertest.Launched), nil, false, false},
		{"Node missing, instance there", controllertest.Claim("a", controllertest.Registered), nil, true, false},
		{
			"another provider's",
			controllertest.Claim("a", controllertest.Registered, func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }),
			nil,
			false,
			false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, append(tt.nodes, tt.claim)...)
			fleet := &fakeFleet{}
			if tt.there {
				fleet.instances = []cloudprovider.Instance{{ProviderID: tt.claim.Status.ProviderID}}
			}
			c := &Claims{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Cloud: fleet, Events: f.Events, Metrics: f.Metrics, Log: f.Log}
			if _, err := c.pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			if deleted := f.Claim("a").DeletionTimestamp != nil; deleted != tt.deleted ||
				f.Counted("garbage_collected") != map[bool]int{true: 1}[deleted] {
				t.Errorf("deleted %v, want %v; counted %d", deleted, tt.deleted, f.Counted("garbage_collected"))
			}
		})
	}
}

// The instance and its Node are deleted; a claim that only the API server has keeps its own.
func TestCollectInstances(t *testing.T) {
	node := controllertest.ReadyNode("orphan", func(n *corev1.Node) { n.Finalizers, n.Spec.ProviderID = nil, "aws:///a/i-1" })
	f := controllertest.New(t, node)
	live := controllertest.New(t, controllertest.Claim("b", func(c *karpv1.NodeClaim) { c.Status.ProviderID = "aws:///a/i-2" }))
	fleet := &fakeFleet{
		instances: []cloudprovider.Instance{
			instance("i-1", cloudprovider.Ours, time.Hour),
			instance("i-2", cloudprovider.Ours, time.Hour),
			instance("i-3", cloudprovider.Foreign, time.Hour),
		},
	}
	c := &Instances{
		Client: f.API, Guard: destroytest.Guard(f.API, f.Now),
		Live:    live.API,
		Cloud:   fleet,
		Events:  f.Events,
		Metrics: f.Metrics,
		Log:     f.Log,
		Now:     func() time.Time { return now },
	}
	if _, err := c.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"aws:///a/i-1"}, fleet.terminated); diff != "" {
		t.Errorf("terminated (-want +got):\n%s", diff)
	}
	if f.Node(node.Name) != nil {
		t.Error("the Node of the orphan stays")
	}
}

// aWorldWithoutInstances are n claims with silent nodes, and an EC2 that lists nothing.
func aWorldWithoutInstances(t *testing.T, n int) (*Claims, *fakeFleet, *controllertest.Fixture) {
	objects := []client.Object{controllertest.Pod("web", "node-000")}
	for i := range n {
		name := fmt.Sprintf("%03d", i)
		objects = append(
			objects,
			controllertest.Claim(name, controllertest.Registered),
			controllertest.ReadyNode(name, controllertest.NotReady),
		)
	}
	f, fleet := controllertest.New(t, objects...), &fakeFleet{}
	return &Claims{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Cloud: fleet, Events: f.Events, Metrics: f.Metrics, Log: f.Log}, fleet, f
}

// The instances of a hundred claims are gone at once. The claims are deleted a few at a time, the others have an event
// that they are held back, and all are deleted in the end.
func TestManyClaimsWithoutInstanceGoAFewAtATime(t *testing.T) {
	const n = 100
	c, _, f := aWorldWithoutInstances(t, n)
	held, err := c.pass(t.Context())
	if err != nil || held != 95 || f.Counted("garbage_collected") != 5 {
		t.Fatalf("the first pass deletes %d and holds back %d, %v", f.Counted("garbage_collected"), held, err)
	}
	if got := testutil.ToFloat64(f.Metrics.PodsDisruption.WithLabelValues("garbage_collected", "general", "", "", "graceful")); got != 1 {
		t.Errorf("counted %v pods", got)
	}
	events := f.RecordedEvents()
	if len(events) != 95 || !strings.HasPrefix(events[0], "Warning CollectionHeldBack") ||
		!strings.Contains(events[0], "a few at a time") {
		t.Errorf("%d events, %q", len(events), events[:1])
	}
	const few = 20
	c, _, f = aWorldWithoutInstances(t, few)
	for passes, held := 0, few; held > 0; passes++ {
		if held, err = c.pass(t.Context()); err != nil || passes > few {
			t.Fatalf("pass %d holds back %d, %v", passes, held, err)
		}
	}
	if got := f.Counted("garbage_collected"); got != few {
		t.Errorf("%d claims were deleted", got)
	}
}

// EC2's listing is empty, as it is when a filter of it fails, and each instance is there when it is described.
func TestAListingThatLacksInstancesDeletesNoClaim(t *testing.T) {
	c, fleet, f := aWorldWithoutInstances(t, 3)
	for i := range 3 {
		id := fmt.Sprintf("us-east-1a/i-%03d", i)
		fleet.unlisted = append(fleet.unlisted, cloudprovider.Instance{ProviderID: "aws:///" + id, State: cloudprovider.Running})
	}
	if held, err := c.pass(t.Context()); err != nil || held != 0 {
		t.Fatalf("held back %d, %v", held, err)
	}
	fleet.describes = errors.New("RequestLimitExceeded")
	fleet.unlisted = nil
	if _, err := c.pass(t.Context()); err == nil || !strings.Contains(err.Error(), "confirm that the instance") {
		t.Errorf("EC2 fails, and the pass returns %v", err)
	}
	if got := f.Counted("garbage_collected"); got != 0 {
		t.Errorf("%d claims were deleted", got)
	}
	fleet.describes = nil
	if _, err := c.pass(t.Context()); err != nil || f.Counted("garbage_collected") != 3 {
		t.Errorf("EC2 confirms that each is gone, %d claims were deleted, %v", f.Counted("garbage_collected"), err)
	}
}

func TestKilledWhileCollecting(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object {
			return []client.Object{
				controllertest.Claim("a", controllertest.Registered),
				controllertest.Claim("b", controllertest.Registered),
				controllertest.ReadyNode("a", controllertest.NotReady),
			}
		},
		Process: func(_ *kill.World, c client.Client, ec2 *kill.Cloud) []kill.Actor {
			f := controllertest.New(t)
			collect := &Claims{Client: c, Guard: destroytest.Guard(c, time.Now), Cloud: ec2, Events: f.Events, Metrics: f.Metrics, Log: f.Log}
			return []kill.Actor{{Kind: &karpv1.NodeClaimList{}, Reconciler: kill.Pass(func(ctx context.Context) error {
				_, err := collect.pass(ctx)
				return err
			})}}
		},
		Check: func(t *testing.T, w *kill.World) {
			var claims karpv1.NodeClaimList
			if err := w.API.List(t.Context(), &claims); err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(claims.Items, func(c karpv1.NodeClaim) bool { return c.DeletionTimestamp == nil }) {
				t.Error("a claim without instance stays")
			}
		},
	})
}

func TestAnEmptyListingOfALargeFleetDoesNotFloodEC2(t *testing.T) {
	c, fleet, f := aWorldWithoutInstances(t, maxDescribes+10)
	fleet.describes = errors.New("RequestLimitExceeded")
	held, err := c.pass(t.Context())
	if err == nil || held != 10 || fleet.described != maxDescribes || f.Counted("garbage_collected") != 0 {
		t.Errorf("%d instances were described, %d claims held back, %d deleted", fleet.described, held, f.Counted("garbage_collected"))
	}
}

// Hundreds of instances lost the tags by which EC2 lists them, and run. A claim that comes after theirs by name lost
// its instance.
func TestInstancesThatAreNeverListedHoldUpNoOtherClaim(t *testing.T) {
	c, fleet, f := aWorldWithoutInstances(t, maxDescribes+10)
	for i := range maxDescribes + 9 {
		fleet.unlisted = append(
			fleet.unlisted,
			cloudprovider.Instance{ProviderID: fmt.Sprintf("aws:///us-east-1a/i-%03d", i), State: cloudprovider.Running},
		)
	}
	for range 2 {
		if _, err := c.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.Counted("garbage_collected"); got != 1 {
		t.Errorf("%d claims were deleted after two passes, want the one without instance", got)
	}
}

// NodePools show that deletions are paused: the log does not repeat it with every pass, and EC2 is not called in vain.
func TestNothingIsCollectedOrLoggedWhileDeletionsArePaused(t *testing.T) {
	c, fleet, f := aWorldWithoutInstances(t, 20)
	c.Guard, fleet.describes = destroytest.Paused(f.API, f.Now, "general"), errors.New("EC2 is asked")
	if _, err := c.pass(t.Context()); err != nil || f.Counted("garbage_collected") != 0 {
		t.Errorf("claims: %v, %d collected", err, f.Counted("garbage_collected"))
	}
	orphan := instance("i-1", cloudprovider.Ours, time.Hour)
	orphan.Tags = map[string]string{karpv1.LabelNodePool: "general"}
	fleet = &fakeFleet{instances: []cloudprovider.Instance{orphan}}
	i, f := collector(t, fleet)
	i.Guard = destroytest.Paused(f.API, f.Now, "general")
	if _, err := i.pass(t.Context()); err != nil || len(fleet.terminated) > 0 {
		t.Errorf("instances: %v, %v terminated", err, fleet.terminated)
	}
}
