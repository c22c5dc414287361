package disruption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	noderepair "github.com/dovetail-k8s/dovetail/internal/controller/node/repair"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
)

// repairPolicies replace a node that is NotReady for 30 minutes, within a drain of 10, and one with a GPU fault after 10
// minutes without bound.
func repairPolicies(t *testing.T) *repair.Policies {
	t.Helper()
	minutes := func(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Minute} }
	ten := minutes(10)
	s, err := repair.Compile([]karpv1.RepairPolicy{
		{
			Condition: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: ".*", Toleration: minutes(30),
			TerminationGracePeriod: &ten, Action: karpv1.RepairReplace,
		},
		{Condition: "GPU", Status: corev1.ConditionFalse, Toleration: minutes(10), Action: karpv1.RepairReplace},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// broken gives a Node a condition since so many minutes before the start; it existed before.
func broken(typ corev1.NodeConditionType, status corev1.ConditionStatus, since int) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.CreationTimestamp = metav1.NewTime(controllertest.Start.Add(-24 * time.Hour))
		n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == typ })
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: typ, Status: status, LastTransitionTime: metav1.NewTime(controllertest.Start.Add(-time.Duration(since) * time.Minute)),
		})
	}
}

var notReady = broken(corev1.NodeReady, corev1.ConditionUnknown, 31)

// repairingLoop is a Loop with node repair and instance types.
func repairingLoop(t *testing.T, f *controllertest.Fixture, c client.Client, now func() time.Time) *Loop {
	t.Helper()
	state := cluster.NewState(cluster.Config{
		Cache: c, Live: c, Types: fakeInstanceTypes{}, OnPoolSkipped: func(*karpv1.NodePool, error) {}, NominationWindow: time.Minute, Now: now,
		Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()}, Repair: repairPolicies(t),
	})
	l := newLoop(f, c, state, now)
	repairs, err := noderepair.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	l.Repairs = repairs
	return l
}

// nodesWith are n nodes with a pod each; the first of them are changed.
func nodesWith(n, changed int, change func(*corev1.Node), pool ...func(*karpv1.NodePool)) []client.Object {
	objects := []client.Object{controllertest.Class(), controllertest.Pool("general", pool...)}
	for i := range n {
		name, how := fmt.Sprintf("n%d", i), change
		if i >= changed {
			how = func(*corev1.Node) {}
		}
		objects = append(
			objects,
			controllertest.Claim(name, controllertest.Initialized),
			controllertest.ReadyNode(name, asInstance("m.small"), how),
			controllertest.Pod("pod-"+name, "node-"+name, requestsCPU("1500m")),
		)
	}
	return objects
}

// repaired are the claims that repairs replace or have replaced.
func repaired(f *controllertest.Fixture) (out []string) {
	for _, c := range claims(f) {
		if e, ok, err := c.DisruptionCommand(); ok && err == nil && e.Reason == karpv1.DisruptionUnhealthy {
			out = append(out, c.Name)
		}
	}
	return out
}

func annotated(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations = map[string]string{key: value} }
}

func both(a, b func(*corev1.Node)) func(*corev1.Node) { return func(n *corev1.Node) { a(n); b(n) } }

func uninitialized(n *corev1.Node) { delete(n.Labels, karpv1.LabelInitialized) }

func TestWhichNodesAreRepaired(t *testing.T) {
	protected := controllertest.Pod("protected", "node-n0", func(p *corev1.Pod) {
		p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
	}, requestsCPU("100m"))
	guarded := []client.Object{
		controllertest.Pod("guarded", "node-n0", requestsCPU("100m"), func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} }),
		&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: &intstr.IntOrString{}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			},
		},
	}
	boundedClaim := func(c *karpv1.NodeClaim) {
		c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	}
	gpuFault := broken("GPU", corev1.ConditionFalse, 11)
	for _, tc := range []struct {
		name    string
		nodes   int
		bad     int
		change  func(*corev1.Node)
		pool    []func(*karpv1.NodePool)
		more    []client.Object
		claim   func(*karpv1.NodeClaim)
		repairs bool
		event   string
	}{
		{name: "1 of 5", nodes: 5, bad: 1, change: notReady, repairs: true},
		{
			name: "2 of 5", nodes: 5, bad: 2, change: notReady,
			event: "Warning NodeRepairBlocked more than 20% nodes are unhealthy in the nodepool (2 of 5)",
		},
		{name: "still tolerated", nodes: 5, bad: 1, change: broken(corev1.NodeReady, corev1.ConditionUnknown, 29)},
		{name: "a condition without a policy", nodes: 5, bad: 1, change: broken(corev1.NodeDiskPressure, corev1.ConditionTrue, 1000)},
		{
			name: "budget 0", nodes: 5, bad: 1, change: notReady, pool: []func(*karpv1.NodePool){budget("0")},
			event: "Normal DisruptionBlocked No allowed disruptions for disruption reason Unhealthy due to blocking budget",
		},
		{name: "budget 0, not initialized", nodes: 5, bad: 1, change: both(notReady, uninitialized), pool: []func(*karpv1.NodePool){budget("0")}, repairs: true},
		{name: "budget 0 for other reasons", nodes: 5, bad: 1, change: notReady, repairs: true, pool: []func(*karpv1.NodePool){func(p *karpv1.NodePool) {
			p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionDrifted}}}
		}}},
		{name: "do-not-disrupt of the node", nodes: 5, bad: 1, change: both(notReady, annotated(karpv1.AnnotationDoNotDisrupt, "true")), repairs: true},
		{
			name: "do-not-repair of the node", nodes: 5, bad: 1, change: both(notReady, annotated(karpv1.AnnotationDoNotRepair, "true")),
			event: `Normal DisruptionBlocked Repair is blocked through the "karpenter.sh/do-not-repair" annotation of Node node-n0`,
		},
		{name: "do-not-repair that is not true", nodes: 5, bad: 1, change: both(notReady, annotated(karpv1.AnnotationDoNotRepair, "True")), repairs: true},
		{
			name: "do-not-repair of the pool", nodes: 5, bad: 1, change: notReady,
			pool:  []func(*karpv1.NodePool){func(p *karpv1.NodePool) { p.Annotations = map[string]string{karpv1.AnnotationDoNotRepair: "true"} }},
			event: `annotation of NodePool general`,
		},
		{name: "a protected pod, and a policy that bounds the drain", nodes: 5, bad: 1, change: notReady, more: []client.Object{protected}, repairs: true},
		{name: "a guarded pod, and a policy that bounds the drain", nodes: 5, bad: 1, change: notReady, more: guarded, repairs: true},
		{
			name: "a protected pod, and no bound", nodes: 5, bad: 1, change: gpuFault, more: []client.Object{protected},
			event: "Normal DisruptionBlocked Pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=shop/protected)",
		},
		{
			name: "a protected pod, and a NodeClaim with a bound", nodes: 5, bad: 1, change: gpuFault, more: []client.Object{protected},
			claim: boundedClaim, repairs: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := controllertest.New(t, append(nodesWith(tc.nodes, tc.bad, tc.change, tc.pool...), tc.more...)...)
			if tc.claim != nil {
				c := f.Claim("n0")
				tc.claim(c)
				f.Do(f.API.Update(t.Context(), c))
			}
			l := repairingLoop(t, f, f.API, f.Now)
			passes(t, l)
			if got := repaired(f); (len(got) == 1 && got[0] == "n0") != tc.repairs || len(got) > 1 {
				t.Errorf("repaired %v, want n0: %t", got, tc.repairs)
			}
			if tc.repairs != (len(replacements(f)) == 1) {
				t.Errorf("%d replacements", len(replacements(f)))
			}
			if tc.event != "" && !slices.ContainsFunc(f.RecordedEvents(), func(e string) bool { return strings.Contains(e, tc.event) }) {
				t.Errorf("no event %q", tc.event)
			}
		})
	}
}

// The replacement comes first. Then the old node goes, and what the drain may take counts from that moment.
func TestRepairReplacesFirst(t *testing.T) {
	for _, tc := range []struct {
		name     string
		deadline string // that the claim has before
		want     time.Duration
	}{
		{name: "the bound of the policy", want: 10 * time.Minute},
		{name: "an earlier deadline stays", deadline: controllertest.Start.Add(7 * time.Minute).Format(time.RFC3339), want: 2 * time.Minute},
		{name: "a later deadline is tightened", deadline: controllertest.Start.Add(time.Hour).Format(time.RFC3339), want: 10 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := controllertest.New(t, nodesWith(5, 1, notReady)...)
			if tc.deadline != "" {
				c := f.Claim("n0")
				c.Annotations = map[string]string{karpv1.AnnotationTerminationTimestamp: tc.deadline}
				f.Do(f.API.Update(t.Context(), c))
			}
			l := repairingLoop(t, f, f.API, f.Now)
			passes(t, l)
			runDue(t, l)
			if got := deletingClaims(f); len(got) > 0 {
				t.Fatalf("%v go before their replacement is ready", got)
			}
			f.Clock = f.Clock.Add(5 * time.Minute) // the replacement takes that long
			created := replacements(f)
			f.Do(initialize(t.Context(), f.API, &created[0], f.Now()))
			runDue(t, l)
			if got := deletingClaims(f); !slices.Equal(got, []string{"n0"}) {
				t.Fatalf("deleting %v, want n0", got)
			}
			at, err := f.Claim("n0").TerminationDeadline()
			if err != nil || at == nil || !at.Equal(f.Clock.Add(tc.want)) {
				t.Errorf("deadline %v (%v), want %v", at, err, f.Clock.Add(tc.want))
			}
			if n := testutil.ToFloat64(l.Repairs.Unhealthy.WithLabelValues("ready", "general", "on-demand", "", "graceful")); n != 1 {
				t.Errorf("%v repairs counted, want 1", n)
			}
			if n := testutil.ToFloat64(l.Metrics.Decisions.WithLabelValues("replace", "unhealthy", "")); n != 1 {
				t.Errorf("%v decisions counted, want 1", n)
			}
		})
	}
}

// The fault that has been due longest is repaired after half an hour, although the breaker holds the others back.
func TestOldestFaultIsNotHeldBackForEver(t *testing.T) {
	f := controllertest.New(t, nodesWith(5, 2, notReady, budget("100%"))...)
	l := repairingLoop(t, f, f.API, f.Now)
	passes(t, l)
	if got := repaired(f); len(got) > 0 {
		t.Fatalf("%v repaired at once", got)
	}
	f.Clock = f.Clock.Add(30 * time.Minute)
	passes(t, l)
	passes(t, l)
	if got := repaired(f); !slices.Equal(got, []string{"n0"}) {
		t.Errorf("repaired %v, want n0 alone", got)
	}
}

// A NodePool may have policies of its own, and an invalid one is named.
func TestRepairPoliciesOfANodePool(t *testing.T) {
	withPolicies := func(text string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) { p.Annotations = map[string]string{karpv1.AnnotationRepairPolicies: text} }
	}
	for _, tc := range []struct {
		name, policies string
		repairs        bool
		event          string
	}{
		{name: "sooner", policies: `[{"condition":"DiskPressure","status":"True","reason":".*","toleration":"5m","action":"ReplaceNode"}]`, repairs: true},
		{name: "later", policies: `[{"condition":"DiskPressure","status":"True","reason":".*","toleration":"2h","action":"ReplaceNode"}]`},
		{
			name: "invalid", policies: `[{"condition":"DiskPressure","status":"True","reason":".*","toleration":"5m","action":"Replace"}]`,
			event: `Warning InvalidRepairPolicies Repair policies of the NodePool are ignored: annotation dovetail.sh/repair-policies, entry 0: ` +
				`action "Replace" is none of Ignore, RebootNode, ReplaceNode`,
		},
		{name: "not JSON", policies: `x`, event: "annotation dovetail.sh/repair-policies is not a JSON list of repair policies"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := controllertest.New(t, nodesWith(5, 1, broken(corev1.NodeDiskPressure, corev1.ConditionTrue, 10), withPolicies(tc.policies))...)
			passes(t, repairingLoop(t, f, f.API, f.Now))
			if got := repaired(f); (len(got) == 1) != tc.repairs {
				t.Errorf("repaired %v, want %t", got, tc.repairs)
			}
			events := f.RecordedEvents()
			if tc.event != "" && !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, tc.event) }) {
				t.Errorf("events %q, want %q", events, tc.event)
			}
		})
	}
}

// A node of a static pool is replaced one for one where the limit leaves a slot.
func TestRepairOfAStaticPool(t *testing.T) {
	for limit, want := range map[string]int{"5": 0, "6": 1} {
		t.Run("5 nodes, limit "+limit, func(t *testing.T) {
			replicas := int64(5)
			f := controllertest.New(t, nodesWith(5, 1, notReady, func(p *karpv1.NodePool) {
				p.Spec.Replicas = &replicas
				p.Spec.Limits = corev1.ResourceList{karpv1.ResourceNodes: resource.MustParse(limit)}
				p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
			})...)
			passes(t, repairingLoop(t, f, f.API, f.Now))
			if got := len(replacements(f)); got != want || len(repaired(f)) != want {
				t.Errorf("%d replacements for %v, want %d", got, repaired(f), want)
			}
			full := "Static NodePool is at its node limit and cannot stage a replacement"
			if got := slices.ContainsFunc(f.RecordedEvents(), func(e string) bool { return strings.Contains(e, full) }); got != (want == 0) {
				t.Errorf("event of the full pool: %t", got)
			}
		})
	}
}

// No pod is planned onto a node that is to be repaired: it would only have to move again.
func TestNodeThatAwaitsRepairTakesNoPods(t *testing.T) {
	f := controllertest.New(t, append(nodesWith(5, 1, notReady, budget("0")), controllertest.Pod("new", "", requestsCPU("100m"), func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-n0"}
	}))...)
	l := repairingLoop(t, f, f.API, f.Now)
	snap := snapshotOf(t, l)
	if n := nodeOf(t, snap, "n0"); !n.AwaitsRepair() {
		t.Fatal("the node does not await its repair")
	}
	if plan := consolidate.Compile(snap).WhatIf(nil, nil, schedule.DefaultBudget()); len(plan.Placements) != 0 {
		t.Errorf("placements %+v", plan.Placements)
	}
}

// A node that is not Ready does not wait forever for room for pods that fit nowhere.
func TestRepairDoesNotWaitForEverForRoom(t *testing.T) {
	f := controllertest.New(t, append(nodesWith(5, 1, notReady, func(p *karpv1.NodePool) {
		p.Spec.Limits = corev1.ResourceList{karpv1.ResourceNodes: resource.MustParse("5")}
	}), controllertest.Pod("other", "node-n0", requestsCPU("100m")))...)
	l := repairingLoop(t, f, f.API, f.Now)
	passes(t, l)
	if got := repaired(f); len(got) > 0 {
		t.Fatalf("%v repaired without room for its pods", got)
	}
	f.Clock = f.Clock.Add(30 * time.Minute)
	passes(t, l)
	if got := deletingClaims(f); !slices.Equal(got, []string{"n0"}) {
		t.Errorf("deleting %v, want n0", got)
	}
}

// Killed at any write, an unhealthy node is replaced by one, or stays.
func TestRepairKilled(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object {
			return []client.Object{
				controllertest.Class(), controllertest.Pool("general", budget("100%")),
				controllertest.Claim("a", controllertest.Initialized),
				controllertest.ReadyNode("a", asInstance("m.small"), notReady, func(n *corev1.Node) { n.UID = types.UID(n.Name) }),
				controllertest.Pod("web", "node-a", requestsCPU("1500m")),
			}
		},
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			return actors(repairingLoop(t, controllertest.New(t), c, w.Now))
		},
		Others: bootReplacements("a"),
		Check: func(t *testing.T, w *kill.World) {
			claim := &karpv1.NodeClaim{}
			if err := w.API.Get(t.Context(), client.ObjectKey{Name: "a"}, claim); err != nil || claim.DeletionTimestamp == nil {
				t.Errorf("the unhealthy node stays, error %v", err)
			}
			if at, err := claim.TerminationDeadline(); err != nil || at == nil {
				t.Errorf("its drain has no bound: %v", err)
			}
			wantOneNode(t, w)
		},
	})
}
