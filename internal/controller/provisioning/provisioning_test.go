package provisioning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/refusal"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// fakeInstanceTypes is a cloud that offers the same four sizes for each class.
type fakeInstanceTypes struct{}

func (fakeInstanceTypes) InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	return engine.Types(), nil
}

func stateOf(cache, live client.Reader, now func() time.Time) *cluster.State {
	return cluster.NewState(cluster.Config{
		Cache: cache, Live: live, Types: fakeInstanceTypes{}, OnPoolSkipped: func(*karpv1.NodePool, error) {},
		Labels: engine.World(nil).Labels, NominationWindow: 20 * time.Second, Now: now,
	})
}

func provisioner(f *controllertest.Fixture) *Provisioner {
	return &Provisioner{
		Client:  f.API,
		Live:    f.API,
		State:   stateOf(f.API, f.API, f.Now),
		Events:  f.Events,
		Metrics: f.Metrics,
		Log:     f.Log,
		Now:     f.Now,
	}
}

// pending returns a pod that waits for half a core.
func pending(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	return controllertest.Pod(name, "", append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{
			{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}}},
		}
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}
	}}, change...)...)
}

func run(t *testing.T, p *Provisioner) {
	t.Helper()
	if err := p.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func claims(t *testing.T, api client.Reader) []karpv1.NodeClaim {
	t.Helper()
	var list karpv1.NodeClaimList
	if err := api.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestClaim(t *testing.T) {
	grace := &metav1.Duration{Duration: 223 * time.Hour}
	pool := controllertest.Pool("general", func(p *karpv1.NodePool) {
		// What the nodepool reconciler stamped before the template was last changed.
		p.Annotations = map[string]string{karpv1.AnnotationNodePoolHash: "old", karpv1.AnnotationNodePoolHashVersion: "v2"}
		p.Spec.Template.Labels = map[string]string{"team": "shop"}
		p.Spec.Template.Annotations = map[string]string{"note": "1"}
		s := &p.Spec.Template.Spec
		s.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
		s.StartupTaints = []corev1.Taint{{Key: "starting", Effect: corev1.TaintEffectNoSchedule}}
		s.ExpireAfter = karpv1.After(720 * time.Hour)
		s.TerminationGracePeriod = grace
		s.Requirements = []karpv1.Requirement{
			{Key: "example.com/tier", Operator: corev1.NodeSelectorOpIn, Values: []string{"gold", "silver"}},
		}
	})
	tolerant := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		p.Spec.NodeSelector = map[string]string{"example.com/tier": "gold"}
	}
	f := controllertest.New(t, controllertest.Class(), pool, pending("a", tolerant), pending("b", tolerant))
	run(t, provisioner(f))
	got := claims(t, f.API)
	if len(got) != 1 {
		t.Fatalf("%d claims, want one for both pods", len(got))
	}
	c := got[0]
	if !strings.HasPrefix(c.Name, "general-") {
		t.Errorf("name %s", c.Name)
	}
	block := true
	if diff := cmp.Diff([]metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: "general", UID: pool.UID, BlockOwnerDeletion: &block}}, c.OwnerReferences); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{karpv1.LabelNodePool: "general", awsv1.LabelNodeClass: "default", "team": "shop", "example.com/tier": "gold"}, c.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	hash, err := pool.Hash()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"note": "1", karpv1.AnnotationMinValuesRelaxed: "false", karpv1.AnnotationNominatedPods: "uid-a,uid-b",
		karpv1.AnnotationPodClasses:   refusal.ClassOf(pending("a", tolerant)),
		karpv1.AnnotationNodePoolHash: hash, karpv1.AnnotationNodePoolHashVersion: karpv1.NodePoolHashVersion,
		karpv1.AnnotationLaunch: cloudprovider.Unlaunched,
	}
	if diff := cmp.Diff([]string{karpv1.FinalizerTermination}, c.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, c.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	template := pool.Spec.Template.Spec
	wantSpec := karpv1.NodeClaimSpec{
		NodeClassRef: template.NodeClassRef, Taints: template.Taints, StartupTaints: template.StartupTaints,
		ExpireAfter: template.ExpireAfter, TerminationGracePeriod: grace,
		Requirements: c.Spec.Requirements, Resources: c.Spec.Resources,
	}
	if diff := cmp.Diff(wantSpec, c.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if cpu, pods := c.Spec.Resources.Requests[corev1.ResourceCPU], c.Spec.Resources.Requests[corev1.ResourcePods]; cpu.String() != "1" ||
		pods.String() != "2" {
		t.Errorf("requests %v", c.Spec.Resources.Requests)
	}
	requirements := map[string]string{}
	for _, r := range c.Spec.Requirements {
		requirements[r.Key] = fmt.Sprintf("%s %v", r.Operator, r.Values)
	}
	for key, want := range map[string]string{
		corev1.LabelInstanceTypeStable: "In [m.small m.medium m.large m.xlarge]",
		karpv1.LabelCapacityType:       "In [on-demand spot]",
		"example.com/tier":             "In [gold]",
	} {
		if requirements[key] != want {
			t.Errorf("requirement on %s: %q, want %q", key, requirements[key], want)
		}
	}
	if _, has := requirements[corev1.LabelHostname]; has {
		t.Error("a claim cannot require a host name")
	}
}

// A pod is created for once, however often it is looked at before its node is there.
func TestOnePodOneClaim(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("a"))
	p := provisioner(f)
	for range 3 {
		run(t, p)
		if got := len(claims(t, f.API)); got != 1 {
			t.Fatalf("%d claims", got)
		}
		// The process after this one knows no more than the API server.
		p = provisioner(f)
	}
	if said := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(said, "Nominated Pod should schedule on: nodeclaim/general-") {
		t.Errorf("events %q", said)
	}
}

// laggingCache is a cache that has not seen a claim yet.
func laggingCache(f *controllertest.Fixture) client.Reader {
	return interceptor.NewClient(f.API, interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*karpv1.NodeClaimList); ok {
				return nil
			}
			return api.List(ctx, list, opts...)
		},
	})
}

// The cache shows nothing of what was created. The state does.
func TestOnePodOneClaimBeforeACacheThatLags(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("a"))
	p := provisioner(f)
	p.State = stateOf(laggingCache(f), f.API, f.Now)
	for range 3 {
		run(t, p)
	}
	if got := len(claims(t, f.API)); got != 1 {
		t.Errorf("%d claims", got)
	}
}

func TestLostCreateResponses(t *testing.T) {
	tests := []struct {
		name   string
		effect bool
		err    error
	}{
		{"done, and the answer was lost", true, errors.New("connection reset")},
		{"not done", false, errors.New("connection refused")},
		{"refused", false, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("quota"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("a"))
			p := provisioner(f)
			p.State = stateOf(laggingCache(f), f.API, f.Now)
			fail := true
			p.Client = interceptor.NewClient(f.API, interceptor.Funcs{
				Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if !fail {
						return api.Create(ctx, o, opts...)
					}
					fail = false
					if tt.effect {
						f.Do(api.Create(ctx, o, opts...))
					}
					return tt.err
				},
			})
			if err := p.pass(t.Context()); !errors.Is(err, tt.err) || !strings.Contains(err.Error(), `"general"`) {
				t.Errorf("error %v, want one that names the pool", err)
			}
			run(t, p)
			if got := len(claims(t, f.API)); got != 1 {
				t.Errorf("%d claims for one pod", got)
			}
		})
	}
}

// A claim states when the prices or the capacity of its types are a user's.
func TestClaimOfOverlaidTypes(t *testing.T) {
	pool, plain, priced, larger := controllertest.Pool("general"), engine.Types()[0], engine.Types()[1], engine.Types()[2]
	priced.Offerings[0].PriceOverlaid = true
	larger.CapacityOverlaid = true
	for _, tt := range []struct {
		types           []*catalog.InstanceType
		price, capacity string
	}{
		{[]*catalog.InstanceType{plain}, "", ""},
		{[]*catalog.InstanceType{plain, priced}, "true", ""},
		{[]*catalog.InstanceType{larger, plain}, "", "true"},
	} {
		claim, err := Claim(&schedule.Launch{Pool: pool, InstanceTypes: tt.types}, engine.World(nil).Labels)
		if err != nil {
			t.Fatal(err)
		}
		if p, c := claim.Annotations[karpv1.AnnotationPriceOverlayApplied], claim.Annotations[karpv1.AnnotationCapacityOverlayApplied]; p != tt.price ||
			c != tt.capacity {
			t.Errorf("price %q, capacity %q; want %q, %q", p, c, tt.price, tt.capacity)
		}
	}
}

// A pool that has gone, or come again, since the plan was made gets no claim.
func TestPoolDeletedBeforeTheClaimIsCreated(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("comes again %v", again), func(t *testing.T) {
			f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("a"))
			p := provisioner(f)
			s, err := p.State.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			plan := schedule.Solve(s, schedule.Budget{})
			if len(plan.Launches) != 1 {
				t.Fatalf("%d launches", len(plan.Launches))
			}
			f.Do(f.API.Delete(t.Context(), controllertest.Pool("general")))
			if again {
				f.Do(f.API.Create(t.Context(), controllertest.Pool("general")))
			}
			_, err = p.launch(t.Context(), plan.Launches, s)
			if got := len(claims(t, f.API)); got != 0 || again != (err == nil) {
				t.Errorf("%d claims, error %v", got, err)
			}
		})
	}
}

func TestEventsOnScheduledAndRejectedPods(t *testing.T) {
	claim := controllertest.Claim("c", controllertest.Initialized)
	node := controllertest.ReadyNode("c", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("10") })
	f := controllertest.New(
		t,
		controllertest.Class(),
		controllertest.Pool("general"),
		claim,
		node,
		pending("fits"),
		pending("huge", func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("999")
		}),
	)
	p := provisioner(f)
	run(t, p)
	said := strings.Join(f.RecordedEvents(), "\n")
	if !strings.Contains(said, "Normal Nominated Pod should schedule on: nodeclaim/c, node/node-c") ||
		!strings.Contains(said, `Warning FailedScheduling Failed to schedule pod, nodepool "general":`) {
		t.Errorf("events\n%s", said)
	}
	s, err := p.State.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := controllertest.Start.Add(20 * time.Second); len(s.Nodes) != 1 || !s.Nodes[0].NominatedUntil.Equal(want) {
		t.Errorf("nodes %+v, want one that is nominated until %v", s.Nodes, want)
	}
	f.Clock = f.Clock.Add(4 * time.Minute)
	run(t, p)
	if said := strings.Join(f.RecordedEvents(), "\n"); strings.Contains(said, "FailedScheduling") {
		t.Errorf("said again: %s", said)
	}
}

// A pod that waits for nodes in flight to show what they leave of a reservation is not complained about, nor counted.
func TestNoEventOnDeferredPod(t *testing.T) {
	f := controllertest.New(t)
	plan := schedule.Plan{Rejected: []schedule.Rejection{
		{
			Pod: pending("waits"),
			Reasons: []schedule.Reason{
				{Code: schedule.Requirement, NodePool: "other", Rule: &rejection.Rule{Stated: "no"}},
				{Code: schedule.Reserved, NodePool: "general", Rule: &rejection.Rule{Stated: "taken"}},
			},
		},
		{Pod: pending("huge"), Reasons: []schedule.Reason{{Code: schedule.Resources, NodePool: "general", Rule: &rejection.Rule{Stated: "too large"}}}},
	}}
	provisioner(f).recordPodEvents(plan, nil)
	if said := f.RecordedEvents(); len(said) != 1 || !strings.Contains(said[0], "too large") {
		t.Errorf("events %q", said)
	}
	if n := unschedulable(plan); n != 1 {
		t.Errorf("%d unschedulable", n)
	}
}

// Among many pools, the one that matters to the pod is not the one that is cut off.
func TestMostRelevantReasonsFirst(t *testing.T) {
	reasons := []schedule.Reason{
		{NodePool: "other", Code: schedule.Taint, Rule: &rejection.Rule{Stated: "is tainted"}},
		{NodePool: "other", Code: schedule.Requirement, Rule: &rejection.Rule{Stated: "is another"}},
		{NodePool: "full", Code: schedule.Limits, Rule: &rejection.Rule{Stated: "is full"}},
	}
	closed := []*karpv1.NodePool{controllertest.Pool("waiting", func(p *karpv1.NodePool) {
		p.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Message: "NodeClassReady=False"}}
	}), controllertest.Pool("fixed", func(p *karpv1.NodePool) { p.Spec.Replicas = new(int64) })}
	want := `nodepool "full": is full; nodepool "waiting": not ready: NodeClassReady=False; nodepool "other": is tainted; is another`
	if got := joinReasons(mostRelevantFirst(reasons, closed)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestJoinReasons(t *testing.T) {
	long := schedule.Reason{Rule: &rejection.Rule{Stated: strings.Repeat("x", 500)}}
	tests := []struct {
		name    string
		reasons []schedule.Reason
		want    string
	}{
		{"one", []schedule.Reason{{Rule: &rejection.Rule{Stated: "no pools"}}}, "no pools"},
		{
			"pools are named",
			[]schedule.Reason{{NodePool: "a", Rule: &rejection.Rule{Stated: "taints"}}, {NodePool: "b", Rule: &rejection.Rule{Stated: "limits"}}},
			`nodepool "a": taints; nodepool "b": limits`,
		},
		{"what does not fit is counted", []schedule.Reason{long, long, long}, wording.Reason(long) + "; and 2 more"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := joinReasons(tt.reasons); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestTriggers(t *testing.T) {
	f := controllertest.New(
		t,
		controllertest.Claim("leaves", controllertest.Deleting),
		controllertest.Claim("stays"),
	)
	tests := []struct {
		name     string
		triggers func(b *Batch) time.Duration
		want     bool
	}{
		{"a node that leaves", func(b *Batch) time.Duration {
			return f.Reconcile(&ClaimTrigger{Client: f.API, Batch: b}, "leaves").RequeueAfter
		}, true},
		{"a node that stays", func(b *Batch) time.Duration {
			return f.Reconcile(&ClaimTrigger{Client: f.API, Batch: b}, "stays").RequeueAfter
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := NewBatch(0, 0)
			wait := tt.triggers(b)
			if opened := len(b.seen) == 1; opened != tt.want || (wait == retriggerInterval) != tt.want {
				t.Errorf("opened %v, comes back after %v; want %v", opened, wait, tt.want)
			}
		})
	}
}

func TestProvisionerKilled(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object {
			return []client.Object{
				controllertest.Class(), controllertest.Pool("general"),
				pending("a", selects("z1")), pending("b", selects("z2")), pending("c", selects("z3")),
			}
		},
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			f := controllertest.New(t)
			p := &Provisioner{Client: c, Live: c, State: stateOf(c, c, w.Now), Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: w.Now}
			return []kill.Actor{{Kind: &karpv1.NodePoolList{}, Reconciler: kill.Pass(p.pass)}}
		},
		Check: func(t *testing.T, w *kill.World) {
			var nominated []string
			for _, c := range claims(t, w.API) {
				nominated = append(nominated, c.Annotations[karpv1.AnnotationNominatedPods])
			}
			slices.Sort(nominated)
			if diff := cmp.Diff([]string{"uid-a", "uid-b", "uid-c"}, nominated); diff != "" {
				t.Errorf("pods that claims were created for (-want +got):\n%s", diff)
			}
		},
	})
}

func selects(zone string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone} }
}

// Without a pool that may launch, nothing is created and every pod gets an event.
func TestNoPools(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general", func(p *karpv1.NodePool) {
		condition.SetFalse(p, karpv1.ConditionNodeClassReady, condition.Because("X", ""), controllertest.Start)
	}), pending("a"))
	run(t, provisioner(f))
	if got := len(claims(t, f.API)); got != 0 {
		t.Errorf("%d claims", got)
	}
	if said := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(said, "FailedScheduling") {
		t.Errorf("events %q", said)
	}
}

// A node that came up was filled with other pods than it was created for: those get another, once the first has let go.
func TestOnePodOneClaimAtATime(t *testing.T) {
	full := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
	}
	world := func(t *testing.T) *controllertest.Fixture {
		return controllertest.New(
			t,
			controllertest.Class(),
			controllertest.Pool("general"),
			pending("late"),
			pending("intruder", full, func(p *corev1.Pod) { p.Spec.NodeName = "node-a" }),
			controllertest.Claim("a", controllertest.Initialized, func(c *karpv1.NodeClaim) {
				c.Annotations[karpv1.AnnotationNominatedPods] = "uid-late,uid-other"
			}),
			controllertest.ReadyNode("a"),
		)
	}
	created := func(f *controllertest.Fixture) map[string]string {
		out := map[string]string{}
		for _, c := range claims(t, f.API) {
			name := "new"
			if c.Name == "a" {
				name = "a"
			}
			out[name] = c.Annotations[karpv1.AnnotationNominatedPods]
		}
		return out
	}
	// Long after the node has come up, the list is no promise any more, but it still reports it.
	for _, later := range []time.Duration{0, time.Minute} {
		f := world(t)
		f.Clock = f.Clock.Add(later)
		run(t, provisioner(f))
		if diff := cmp.Diff(map[string]string{"a": "uid-other", "new": "uid-late"}, created(f)); diff != "" {
			t.Errorf("%v after the node is up, created for (-want +got):\n%s", later, diff)
		}
	}
	// A claim that cannot be patched keeps the pod.
	f := world(t)
	p := provisioner(f)
	p.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewConflict(schema.GroupResource{Resource: "nodeclaims"}, "a", errors.New("it has changed"))
		},
	})
	if err := p.pass(t.Context()); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want the conflict", err)
	}
	if diff := cmp.Diff(map[string]string{"a": "uid-late,uid-other"}, created(f)); diff != "" {
		t.Errorf("created for (-want +got):\n%s", diff)
	}
}
