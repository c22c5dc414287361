package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	staticcontroller "github.com/dovetail-k8s/dovetail/internal/controller/nodepool/static"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// reservedTypes has m.small in reservation cr-1, with so many free instances.
type reservedTypes struct{ free int }

func (r reservedTypes) InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	small := engine.Type("m.small", 0.1, "cpu", "2", "memory", "8Gi")
	o := engine.Offering("z1", karpv1.CapacityTypeReserved, 1e-8)
	o.Requirements = o.Requirements.With(requirement.In(awsv1.LabelReservationID, "cr-1"))
	o.ReservationID, o.Remaining, o.Available = "cr-1", r.free, r.free > 0
	if r.free == 0 {
		o.UnavailableReason = catalog.ReasonFull
	}
	return []*catalog.InstanceType{engine.WithOfferings(small, append(small.Offerings, o)...)}, nil
}

// firstLoop is a Loop that may terminate nodes first, with these instance types.
func firstLoop(t *testing.T, f *controllertest.Fixture, c client.Client, instanceTypes cluster.InstanceTypes, now func() time.Time) *Loop {
	t.Helper()
	labels := requirement.Labels{Vocabulary: awsv1.Vocabulary()}
	l := repairingLoop(t, f, c, now)
	state := cluster.NewState(cluster.Config{
		Cache: c, Live: c, Types: instanceTypes, OnPoolSkipped: func(*karpv1.NodePool, error) {}, NominationWindow: time.Minute, Now: now,
		Labels: labels, Repair: repairPolicies(t),
	})
	l.State, l.Queue.State, l.Labels = state, state, labels
	l.TerminateFirst = TerminateFirst{Drift: true, Repair: true}
	return l
}

// fixedAt makes a pool one of so many replicas with the limit; budgets allow all.
func fixedAt(replicas int64, limit string) func(*karpv1.NodePool) {
	return func(p *karpv1.NodePool) {
		p.Spec.Replicas = &replicas
		p.Spec.Limits = corev1.ResourceList{karpv1.ResourceNodes: resource.MustParse(limit)}
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	}
}

func onlyReserved(p *karpv1.NodePool) {
	p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	p.Spec.Template.Spec.Requirements = []karpv1.Requirement{{
		Key: karpv1.LabelCapacityType, Operator: corev1.NodeSelectorOpIn, Values: []string{karpv1.CapacityTypeReserved},
	}}
}

// driftedOf are n drifted nodes of the pool, the first drifted longest; with id, they are in that reservation.
func driftedOf(n int, id string, pool ...func(*karpv1.NodePool)) []client.Object {
	objects := []client.Object{controllertest.Class(), controllertest.Pool("general", pool...)}
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		objects = append(objects,
			controllertest.Claim(name, controllertest.Initialized, func(c *karpv1.NodeClaim) {
				since := controllertest.Start.Add(time.Duration(i-n) * time.Minute)
				condition.SetTrueWithReason(c, karpv1.ConditionDrifted, condition.Because("AMIDrift", "AMIDrift"), since)
			}),
			controllertest.ReadyNode(name, asInstance("m.small"), func(node *corev1.Node) {
				node.UID = types.UID(node.Name)
				if id != "" {
					node.Labels[karpv1.LabelCapacityType], node.Labels[awsv1.LabelReservationID] = karpv1.CapacityTypeReserved, id
				}
			}),
			controllertest.Pod("pod-"+name, "node-"+name, requestsCPU("1500m")),
		)
	}
	return objects
}

func recorded(f *controllertest.Fixture, text string) bool {
	return slices.ContainsFunc(f.RecordedEvents(), func(e string) bool { return strings.Contains(e, text) })
}

// Edge case 18: a pool with replicas at its limit drifts. One node goes; the next one only after a new node has come up.
func TestStaticPoolAtItsLimitDrifts(t *testing.T) {
	const blocked = "Normal DisruptionBlocked Static NodePool is at its node limit and cannot stage a replacement"
	f := controllertest.New(t, driftedOf(3, "", fixedAt(3, "3"))...)
	l := firstLoop(t, f, f.API, fakeInstanceTypes{}, f.Now)
	l.TerminateFirst = TerminateFirst{Repair: true}
	passes(t, l)
	if got := deletingClaims(f); len(got) > 0 || len(replacements(f)) > 0 || !recorded(f, blocked) {
		t.Fatalf("gate off: deleting %v, %d replacements", got, len(replacements(f)))
	}
	l.TerminateFirst.Drift = true
	for range 3 {
		passes(t, l)
	}
	if got := deletingClaims(f); !slices.Equal(got, []string{"n0"}) || len(replacements(f)) > 0 {
		t.Fatalf("deleting %v, %d replacements; want n0 alone to go", got, len(replacements(f)))
	}
	if c := f.Claim("n0"); condition.IsTrue(c, karpv1.ConditionDisruptionReason) == false || !isTainted(f, "node-n0") {
		t.Error("the node that goes is not tainted, or its claim has no reason")
	}
	for name, n := range map[string]float64{
		"terminate-first": testutil.ToFloat64(l.Metrics.TerminateFirst.WithLabelValues("general", "drifted", "static-at-limit")),
		"decisions":       testutil.ToFloat64(l.Metrics.Decisions.WithLabelValues("terminate-first", "drifted", "")),
	} {
		if n != 1 {
			t.Errorf("%s: %v counted, want 1", name, n)
		}
	}
	endNode(t, f.API, "n0")
	passes(t, l)
	if got := deletingClaims(f); len(got) > 0 {
		t.Fatalf("%v goes while a node is missing", got)
	}
	f.Clock = f.Clock.Add(time.Minute)
	bad := controllertest.Claim("bad", controllertest.Launched, func(c *karpv1.NodeClaim) { c.Labels[karpv1.LabelNodePool] = "general" })
	f.Do(f.API.Create(t.Context(), bad))
	passes(t, l)
	if got := deletingClaims(f); len(got) > 0 || !recorded(f, "No other node is terminated first until the node of NodePool \"general\"") {
		t.Fatalf("%v goes before the new node has come up", got)
	}
	f.Do(initialize(t.Context(), f.API, f.Claim("bad"), f.Now()))
	passes(t, l)
	if got := deletingClaims(f); !slices.Contains(got, "n1") {
		t.Errorf("deleting %v after the new node has come up, want n1", got)
	}
}

// endNode stops the instance of a claim that is being deleted: claim and Node are gone.
func endNode(t *testing.T, api client.Client, name string) {
	t.Helper()
	claim, node := &karpv1.NodeClaim{}, &corev1.Node{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: name}, claim); err != nil {
		t.Fatal(err)
	}
	if err := api.Get(t.Context(), client.ObjectKey{Name: claim.Status.NodeName}, node); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{node, claim} {
		if o.GetResourceVersion() == "" {
			continue
		}
		if controllerutil.RemoveFinalizer(o, karpv1.FinalizerTermination) {
			if err := api.Update(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.IgnoreNotFound(api.Delete(t.Context(), o)); err != nil {
			t.Fatal(err)
		}
	}
}

// A static pool of which the reservations are full replaces nodes in their own slots; with a free instance, one comes first.
func TestStaticPoolInFullReservationsDrifts(t *testing.T) {
	for _, tt := range []struct {
		name         string
		free         int
		id           string
		off          bool
		deleting     []string
		replacements int
		event        string
	}{
		{name: "full", id: "cr-1", deleting: []string{"n0"}},
		{name: "one is free", free: 1, id: "cr-1", replacements: 1},
		{name: "gate off", id: "cr-1", off: true, event: "Static NodePool's capacity reservations are full and cannot stage a replacement"},
		{name: "the nodes hold no slot", event: "Static NodePool's capacity reservations are full and cannot stage a replacement"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, driftedOf(2, tt.id, fixedAt(2, "9"), onlyReserved)...)
			l := firstLoop(t, f, f.API, reservedTypes{tt.free}, f.Now)
			l.TerminateFirst.Drift = !tt.off
			passes(t, l)
			if got := deletingClaims(f); !slices.Equal(got, tt.deleting) || len(replacements(f)) != tt.replacements {
				t.Errorf("deleting %v, %d replacements; want %v, %d", got, len(replacements(f)), tt.deleting, tt.replacements)
			}
			if tt.event != "" && !recorded(f, tt.event) {
				t.Errorf("no event %q", tt.event)
			}
			if n := testutil.ToFloat64(l.Metrics.TerminateFirst.WithLabelValues("general", "drifted", "no-reserved-capacity")); int(n) != len(tt.deleting) {
				t.Errorf("%v counted", n)
			}
		})
	}
}

// Pods that fit only into a full reservation: their drifted node makes room for its own replacement, one at a time.
func TestDriftInAFullReservation(t *testing.T) {
	f := controllertest.New(t, driftedOf(2, "cr-1", onlyReserved)...)
	l := firstLoop(t, f, f.API, reservedTypes{}, f.Now)
	l.TerminateFirst = TerminateFirst{}
	passes(t, l)
	if got := deletingClaims(f); len(got) > 0 || !recorded(f, "Not all pods would schedule") {
		t.Fatalf("gate off: deleting %v", got)
	}
	l.TerminateFirst.Drift = true
	for range 3 {
		passes(t, l)
	}
	if got := deletingClaims(f); !slices.Equal(got, []string{"n0"}) || len(replacements(f)) > 0 {
		t.Errorf("deleting %v, %d replacements; want n0 alone to go", got, len(replacements(f)))
	}
	if n := testutil.ToFloat64(l.Metrics.TerminateFirst.WithLabelValues("general", "drifted", "no-reserved-capacity")); n != 1 {
		t.Errorf("%v counted, want 1", n)
	}
}

// Replacements of the pool have failed: no node goes before the breaker closes.
func TestBreakerHoldsTerminationsBack(t *testing.T) {
	for pool, want := range map[string]int{"general": 0, "other": 1} {
		f := controllertest.New(t, driftedOf(2, "", fixedAt(2, "2"))...)
		l := firstLoop(t, f, f.API, fakeInstanceTypes{}, f.Now)
		l.Breaker = pausedBreaker(pool)
		passes(t, l)
		if got := deletingClaims(f); len(got) != want || want == 0 && isTainted(f, "node-n0") {
			t.Errorf("pool %s pauses: deleting %v, want %d", pool, got, want)
		}
	}
}

// An unhealthy node of a static pool without room for its replacement.
func TestUnhealthyNodeIsTerminatedFirst(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pool   []func(*karpv1.NodePool)
		id     string
		reason string
	}{
		{name: "at the limit", pool: []func(*karpv1.NodePool){fixedAt(5, "5")}, reason: "static-at-limit"},
		{name: "in a full reservation", pool: []func(*karpv1.NodePool){fixedAt(5, "9"), onlyReserved}, id: "cr-1", reason: "no-reserved-capacity"},
		{name: "dynamic, in a full reservation", pool: []func(*karpv1.NodePool){onlyReserved}, id: "cr-1", reason: "no-reserved-capacity"},
	} {
		for _, enabled := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, gate %t", tt.name, enabled), func(t *testing.T) {
				f := controllertest.New(t, nodesWith(5, 1, notReady, tt.pool...)...)
				if tt.id != "" {
					n := f.Node("node-n0")
					n.Labels[karpv1.LabelCapacityType], n.Labels[awsv1.LabelReservationID] = karpv1.CapacityTypeReserved, tt.id
					f.Do(f.API.Update(t.Context(), n))
				}
				l := firstLoop(t, f, f.API, reservedTypes{}, f.Now)
				l.TerminateFirst = TerminateFirst{Drift: true, Repair: enabled}
				passes(t, l)
				if got := deletingClaims(f); (len(got) == 1 && got[0] == "n0") != enabled || len(replacements(f)) > 0 {
					t.Errorf("deleting %v, %d replacements; want n0 to go: %t", got, len(replacements(f)), enabled)
				}
				if n := testutil.ToFloat64(l.Metrics.TerminateFirst.WithLabelValues("general", "unhealthy", tt.reason)); (n == 1) != enabled {
					t.Errorf("%v counted", n)
				}
				if at, err := f.Claim("n0").TerminationDeadline(); enabled && (err != nil || at == nil || !at.Equal(f.Clock.Add(10*time.Minute))) {
					t.Errorf("deadline %v (%v), want that of the policy", at, err)
				}
			})
		}
	}
}

// Killed at any write, a static pool at its limit is replaced node by node: the limit holds, and no node goes before the one launched
// instead of the last one is up.
func TestTerminateFirstKilled(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object { return driftedOf(2, "", fixedAt(2, "2")) },
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			f := controllertest.New(t)
			l := firstLoop(t, f, c, fakeInstanceTypes{}, w.Now)
			return append(actors(l), kill.Actor{Kind: &karpv1.NodePoolList{}, Reconciler: &staticcontroller.Reconciler{
				Client: c, Guard: destroytest.Guard(c, w.Now), State: l.State.(*cluster.State), Labels: l.Labels, TerminateFirst: true, Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: w.Now,
			}})
		},
		Others: replaceNodeByNode,
		Check: func(t *testing.T, w *kill.World) {
			var list karpv1.NodeClaimList
			if err := w.API.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			for _, c := range list.Items {
				if strings.HasPrefix(c.Name, "n") || !condition.IsTrue(&c, karpv1.ConditionInitialized) {
					t.Errorf("claim %s is there at the end", c.Name)
				}
			}
			if len(list.Items) != 2 {
				t.Errorf("%d claims at the end, want 2", len(list.Items))
			}
		},
	})
}

// replaceNodeByNode boots one claim a round and stops one that is being deleted, and checks that both nodes are never missing.
func replaceNodeByNode(t *testing.T, w *kill.World) {
	t.Helper()
	var list karpv1.NodeClaimList
	if err := w.API.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	up := 0
	for i := range list.Items {
		if c := &list.Items[i]; c.DeletionTimestamp == nil && condition.IsTrue(c, karpv1.ConditionInitialized) {
			up++
		}
	}
	if len(list.Items) > 2 || up == 0 {
		t.Fatalf("round %d: %d claims, %d are up", w.Round, len(list.Items), up)
	}
	if w.Round%2 == 0 {
		return // it takes a round
	}
	var nodes corev1.NodeList
	if err := w.API.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		switch c := &list.Items[i]; {
		case c.DeletionTimestamp != nil:
			endNode(t, w.API, c.Name)
		case !condition.IsTrue(c, karpv1.ConditionInitialized):
			name := "fresh-1"
			if slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == "node-fresh-1" }) {
				name = "fresh-2"
			}
			if err := initializeAs(t.Context(), w.API, c, name, w.Now()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
