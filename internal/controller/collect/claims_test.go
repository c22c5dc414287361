package collect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloud"
	"github.com/dovetail-k8s/dovetail/internal/controller/fixture"
	"github.com/dovetail-k8s/dovetail/internal/controller/killtest"
)

func TestOrphanedClaims(t *testing.T) {
	tests := []struct {
		name    string
		claim   *karpv1.NodeClaim
		nodes   []client.Object
		there   bool
		deleted bool
	}{
		{"lifecycle row 50: silent Node, instance gone", fixture.Claim("a", fixture.Registered), []client.Object{fixture.Up("a", fixture.NotReady)}, false, true},
		{"Node gone, instance gone", fixture.Claim("a", fixture.Registered), nil, false, true},
		{"lifecycle row 51: Node Ready, instance gone", fixture.Claim("a", fixture.Registered), []client.Object{fixture.Up("a")}, false, false},
		{"lifecycle row 52: never registered, instance gone", fixture.Claim("a", fixture.Launched), nil, false, false},
		{"lifecycle row 53: Node missing, instance there", fixture.Claim("a", fixture.Registered), nil, true, false},
		{"lifecycle row 1: another provider's", fixture.Claim("a", fixture.Registered, func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" }), nil, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := fixture.New(t, append(tt.nodes, tt.claim)...)
			fleet := &fakeFleet{}
			if tt.there {
				fleet.instances = []cloud.Instance{{ProviderID: tt.claim.Status.ProviderID}}
			}
			c := &Claims{Client: f.API, Cloud: fleet, Metrics: f.Metrics, Log: f.Log}
			if err := c.pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			if deleted := f.Claim("a").DeletionTimestamp != nil; deleted != tt.deleted || f.Counted("garbage_collected") != map[bool]int{true: 1}[deleted] {
				t.Errorf("deleted %v, want %v; counted %d", deleted, tt.deleted, f.Counted("garbage_collected"))
			}
		})
	}
}

// lifecycle row 54: the instance and its Node go; a claim that only the API server shows keeps its own.
func TestCollectInstances(t *testing.T) {
	node := fixture.Up("stray", func(n *corev1.Node) { n.Finalizers, n.Spec.ProviderID = nil, "aws:///a/i-1" })
	f := fixture.New(t, node)
	live := fixture.New(t, fixture.Claim("b", func(c *karpv1.NodeClaim) { c.Status.ProviderID = "aws:///a/i-2" }))
	fleet := &fakeFleet{instances: []cloud.Instance{instance("i-1", cloud.Ours, time.Hour), instance("i-2", cloud.Ours, time.Hour), instance("i-3", cloud.Foreign, time.Hour)}}
	c := &Instances{Client: f.API, Live: live.API, Cloud: fleet, Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: func() time.Time { return now }}
	if err := c.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"aws:///a/i-1"}, fleet.ended); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
	if f.Node(node.Name) != nil {
		t.Error("the Node of the stray stays")
	}
}

// lifecycle row 50: the instances of a hundred claims are gone at once.
func TestManyClaimsAtOnce(t *testing.T) {
	const n = 100
	var objects []client.Object
	for i := range n {
		name := fmt.Sprint(i)
		objects = append(objects, fixture.Claim(name, fixture.Registered), fixture.Up(name, fixture.NotReady))
	}
	f := fixture.New(t, append(objects, fixture.Pod("web", "node-7"))...)
	c := &Claims{Client: f.API, Cloud: &fakeFleet{}, Metrics: f.Metrics, Log: f.Log}
	if err := c.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.Counted("garbage_collected"); got != n {
		t.Errorf("%d claims were deleted", got)
	}
	if got := testutil.ToFloat64(f.Metrics.PodsDisruption.WithLabelValues("garbage_collected", "general", "", "", "graceful")); got != 1 {
		t.Errorf("counted %v pods", got)
	}
}

func TestKilledWhileCollecting(t *testing.T) {
	killtest.Run(t, killtest.Story{
		Objects: func() []client.Object {
			return []client.Object{fixture.Claim("a", fixture.Registered), fixture.Claim("b", fixture.Registered), fixture.Up("a", fixture.NotReady)}
		},
		Process: func(_ *killtest.World, c client.Client, ec2 *killtest.Cloud) []killtest.Actor {
			f := fixture.New(t)
			collect := &Claims{Client: c, Cloud: ec2, Metrics: f.Metrics, Log: f.Log}
			return []killtest.Actor{{Kind: &karpv1.NodeClaimList{}, Reconciler: killtest.Pass(collect.pass)}}
		},
		Check: func(t *testing.T, w *killtest.World) {
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
