package status

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func reconciler(f *controllertest.Fixture) *Reconciler {
	return &Reconciler{Client: f.API, Events: f.Events, Log: f.Log, Now: f.Now}
}

// unjudged is a pool without conditions.
func unjudged(change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	return controllertest.Pool(
		"general",
		append([]func(*karpv1.NodePool){func(p *karpv1.NodePool) { p.Status.Conditions = nil }}, change...)...)
}

func pool(f *controllertest.Fixture) *karpv1.NodePool {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
	f.Get(p)
	return p
}

func TestReadiness(t *testing.T) {
	tests := []struct {
		name   string
		class  *awsv1.EC2NodeClass
		ready  bool
		reason string
	}{
		{"class ready", controllertest.Class(), true, karpv1.ConditionNodeClassReady},
		{"class missing", nil, false, "NodeClassNotFound"},
		{"class terminating, though ready", controllertest.Class(func(c *awsv1.EC2NodeClass) {
			c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: controllertest.Start}, []string{awsv1.FinalizerTermination}
		}), false, "NodeClassTerminating"},
		{"class not ready: in its own words", controllertest.Class(func(c *awsv1.EC2NodeClass) {
			condition.SetFalse(c, awsv1.ConditionSubnetsReady, condition.Because("SubnetsNotFound", "no subnet"), controllertest.Start)
		}), false, condition.ReasonUnhealthyDependents},
		{"class without conditions", &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, false, "NodeClassReadinessUnknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := []client.Object{unjudged()}
			if tt.class != nil {
				objects = append(objects, tt.class)
			}
			f := controllertest.New(t, objects...)
			f.Reconcile(reconciler(f), "general")
			p := pool(f)
			if got := condition.IsTrue(p, condition.Ready); got != tt.ready {
				t.Errorf("ready %v, want %v: %+v", got, tt.ready, p.Status.Conditions)
			}
			if c, _ := condition.Get(p, karpv1.ConditionNodeClassReady); c.Reason != tt.reason {
				t.Errorf("reason %s, want %s", c.Reason, tt.reason)
			}
		})
	}
}

func TestInvalidPool(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), unjudged(func(p *karpv1.NodePool) {
		p.Spec.Template.Labels = map[string]string{karpv1.LabelNodePool: "other"}
	}))
	f.Reconcile(reconciler(f), "general")
	if c, _ := condition.Get(pool(f), karpv1.ConditionValidationSucceeded); c.Status != metav1.ConditionFalse ||
		c.Reason != "NodePoolValidationFailed" ||
		!strings.Contains(c.Message, karpv1.LabelNodePool) {
		t.Errorf("ValidationSucceeded %+v", c)
	}
}

func TestAnnotationsWithoutEffectAreNamed(t *testing.T) {
	replicas := int64(2)
	for _, tt := range []struct {
		value    string
		replicas *int64
		want     string
	}{
		{value: "10m"},
		{value: "", want: `"" is not a duration, such as 10m`},
		{value: "5 m", want: `"5 m" is not a duration, such as 10m`},
		{value: "Never", want: `"Never" is not a duration, such as 10m`},
		{value: "５m", want: `"５m" is not a duration, such as 10m`},
		{value: "9999999h", want: `"9999999h" is not a duration, such as 10m`},
		{value: "-10m", want: "-10m is shorter than 5m0s"},
		{value: "1s", want: "1s is shorter than 5m0s"},
		{value: "10m", replicas: &replicas, want: "spec.replicas is set, and such a pool launches the same nodes again"},
	} {
		t.Run(tt.value, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Class(), unjudged(func(p *karpv1.NodePool) {
				p.Annotations, p.Spec.Replicas = map[string]string{karpv1.AnnotationReplaceDeferredResize: tt.value}, tt.replicas
			}))
			f.Reconcile(reconciler(f), "general")
			const about = "annotation " + karpv1.AnnotationReplaceDeferredResize + ": "
			events := strings.Join(f.RecordedEvents(), "\n")
			if said := strings.Contains(events, about); said != (tt.want != "") || !strings.Contains(events, tt.want) {
				t.Errorf("events %s", events)
			}
		})
	}
}

func TestDrainModesWithoutEffectAreNamed(t *testing.T) {
	for modes, want := range map[string]bool{"SurgeSingletons": false, "Surge": true} {
		f := controllertest.New(t, controllertest.Class(), unjudged(func(p *karpv1.NodePool) {
			p.Annotations = map[string]string{karpv1.AnnotationDrain: modes}
		}))
		f.Reconcile(reconciler(f), "general")
		events := strings.Join(f.RecordedEvents(), "\n")
		const text = `InvalidAnnotation Pods leave nodes as without it: annotation dovetail.sh/drain: "Surge" is none of [SurgeSingletons]`
		if strings.Contains(events, text) != want {
			t.Errorf("%s: events %s", modes, events)
		}
	}
}

func TestFieldsWithoutEffectAreNamed(t *testing.T) {
	replicas := int64(2)
	f := controllertest.New(t, controllertest.Class(), unjudged(func(p *karpv1.NodePool) { p.Spec.Replicas = &replicas }))
	r := reconciler(f)
	f.Reconcile(r, "general")
	if events := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(events, "Warning FieldWithoutEffect spec.replicas") {
		t.Errorf("events %q", events)
	}
	f.Clock = f.Clock.Add(30 * time.Minute)
	f.Reconcile(r, "general")
	if events := f.RecordedEvents(); len(events) > 0 {
		t.Errorf("events again within the hour: %v", events)
	}
	f.Clock = f.Clock.Add(time.Hour)
	r.StaticCapacity = true
	f.Reconcile(r, "general")
	if events := f.RecordedEvents(); len(events) > 0 {
		t.Errorf("events though the gate is on: %v", events)
	}
}

func TestHash(t *testing.T) {
	current := karpv1.NodePoolHashVersion
	stamped := func(hash, version string) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) {
			c.Annotations = map[string]string{karpv1.AnnotationNodePoolHash: hash, karpv1.AnnotationNodePoolHashVersion: version}
		}
	}
	drifted := func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionDrifted, controllertest.Start) }
	want, err := unjudged().Hash()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name        string
		poolVersion string
		claim       *karpv1.NodeClaim
		hash        string
	}{
		{"a new version re-stamps", "v2", controllertest.Claim("a", stamped("old", "v2")), want},
		{"one that has drifted keeps its hash", "v2", controllertest.Claim("a", stamped("old", "v2"), drifted), "old"},
		{"one that has the version already", "v2", controllertest.Claim("a", stamped("old", current)), "old"},
		{"a change of the template under the same version is drift", current, controllertest.Claim("a", stamped("old", current)), "old"},
		{
			"another pool's",
			"v2",
			controllertest.Claim("a", stamped("old", current), func(c *karpv1.NodeClaim) { c.Labels[karpv1.LabelNodePool] = "other" }),
			"old",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Class(), tt.claim, unjudged(func(p *karpv1.NodePool) {
				p.Annotations = map[string]string{karpv1.AnnotationNodePoolHash: "old", karpv1.AnnotationNodePoolHashVersion: tt.poolVersion}
			}))
			f.Reconcile(reconciler(f), "general")
			for what, annotations := range map[string]map[string]string{tt.hash: f.Claim("a").Annotations, want: pool(f).Annotations} {
				if annotations[karpv1.AnnotationNodePoolHash] != what || annotations[karpv1.AnnotationNodePoolHashVersion] != current {
					t.Errorf("annotations %v, want hash %s", annotations, what)
				}
			}
		})
	}
}

func TestKilledWhileStamping(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object {
			old := map[string]string{karpv1.AnnotationNodePoolHash: "old", karpv1.AnnotationNodePoolHashVersion: "v2"}
			objects := []client.Object{controllertest.Class(), unjudged(func(p *karpv1.NodePool) { p.Annotations = old })}
			for _, name := range []string{"a", "b", "c"} {
				objects = append(objects, controllertest.Claim(name, func(c *karpv1.NodeClaim) { c.Annotations = old }))
			}
			return objects
		},
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			f := controllertest.New(t)
			return []kill.Actor{{Kind: &karpv1.NodePoolList{}, Reconciler: &Reconciler{Client: c, Events: f.Events, Log: f.Log, Now: w.Now}}}
		},
		Check: func(t *testing.T, w *kill.World) {
			var claims karpv1.NodeClaimList
			if err := w.API.List(t.Context(), &claims); err != nil {
				t.Fatal(err)
			}
			for _, c := range claims.Items {
				if c.Annotations[karpv1.AnnotationNodePoolHash] == "old" {
					t.Errorf("claim %s counts as drifted, though only the version of the hash is new", c.Name)
				}
			}
		},
	})
}

type use map[string]corev1.ResourceList

func (u use) Usage(context.Context) (map[string]corev1.ResourceList, error) { return u, nil }

func (use) Nodes(context.Context) (*snapshot.Snapshot, error) {
	return &snapshot.Snapshot{Now: controllertest.Start}, nil
}

func (use) Version(context.Context) (cluster.Version, bool) { return cluster.Version{}, false }

// counting counts how often a cluster is read.
type counting struct {
	use
	version cluster.Version
	unknown bool
	reads   int
}

func (c *counting) Usage(ctx context.Context) (map[string]corev1.ResourceList, error) {
	c.reads++
	return c.use.Usage(ctx)
}

func (c *counting) Version(context.Context) (cluster.Version, bool) { return c.version, !c.unknown }

// While nothing changes, a large cluster is counted once a minute: then schedules of budgets may have begun or finished.
func TestAClusterThatDoesNotChangeIsNotCounted(t *testing.T) {
	f := controllertest.New(t, controllertest.Pool("general"))
	state := &counting{use: use{}}
	c := &Counter{Client: f.API, Metrics: f.Metrics, Log: f.Log, Now: f.Now, State: state}
	for i, tt := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {5 * time.Second, 1}, {54 * time.Second, 1}, {time.Second, 2}, {59 * time.Second, 2}} {
		f.Clock = f.Clock.Add(tt.after)
		if f.Do(c.pass(t.Context())); state.reads != tt.want {
			t.Errorf("pass %d: counted %d times, want %d", i, state.reads, tt.want)
		}
	}
	state.unknown = true
	if f.Do(c.pass(t.Context())); state.reads != 3 {
		t.Error("not counted, though it is not known whether anything has changed")
	}
}

// versioned is a fleet with changes that are counted.
type versioned struct {
	*fleet
	versions *cluster.State
}

func (v *versioned) Version(ctx context.Context) (cluster.Version, bool) {
	return v.versions.Version(ctx)
}

// A change shows in status.disruption within 15 seconds, and what depends on the time within a minute and 15 seconds, though nothing
// changes afterwards.
func TestDisruptionOfAClusterThatDoesNotChangeIsCounted(t *testing.T) {
	f := controllertest.New(t, controllertest.Pool("general"))
	changes := uint64(0)
	state := &versioned{twenty(), cluster.NewState(cluster.Config{
		Cache: f.API, Live: f.API, Now: f.Now, Changes: func(context.Context) (uint64, error) { return changes, nil },
	})}
	f.Do(state.versions.Refresh(t.Context()))
	c := &Counter{Client: f.API, Metrics: f.Metrics, Log: f.Log, Now: f.Now, State: state}
	run := func(passes int) string {
		for range passes {
			f.Clock = f.Clock.Add(countInterval)
			f.Do(c.pass(t.Context()))
		}
		if status := pool(f).Status.Disruption; status != nil {
			return status.Allowed
		}
		return ""
	}
	budget := func(nodes string) {
		p := pool(f)
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: nodes}}
		f.Do(f.API.Update(t.Context(), p))
	}
	for changed := range 4 {
		before := run(changed) // the pass after a change may be any of those that share a count
		budget("1")
		changes++
		if got := run(passesPerCount); got != "1" {
			t.Errorf("after %s, 15 s after a change to 1: %s may be disrupted", before, got)
		}
		budget("4") // as if by a schedule: the version stays
		if got := run(int(unchangedInterval/countInterval) + passesPerCount); got != "4" {
			t.Errorf("a minute after a change by time to 4: %s may be disrupted", got)
		}
	}
}

func TestCounter(t *testing.T) {
	limited := controllertest.Pool("general", func(p *karpv1.NodePool) {
		p.Spec.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10")}
	})
	theirs := controllertest.Pool("theirs", func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Kind = "Other" })
	f := controllertest.New(t, limited, theirs)
	c := &Counter{Client: f.API, Metrics: f.Metrics, Log: f.Log, Now: f.Now, State: use{"general": {
		corev1.ResourceCPU: resource.MustParse("4"), "nodes": resource.MustParse("2"), "nvidia.com/gpu": resource.MustParse("1"),
	}}}
	count := func() map[string]string {
		if err := c.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for name, q := range pool(f).Status.Resources {
			got[string(name)] = q.String()
		}
		return got
	}
	if diff := cmp.Diff(map[string]string{"cpu": "4", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "2", "nvidia.com/gpu": "1"}, count()); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if n := pool(f).Status.Nodes; n == nil || *n != 2 {
		t.Errorf("nodes %v", n)
	}
	if got := testutil.ToFloat64(f.Metrics.PoolUsage.WithLabelValues("cpu", "general")); got != 4 {
		t.Errorf("gauge of usage %v", got)
	}
	if got := testutil.ToFloat64(f.Metrics.PoolLimit.WithLabelValues("cpu", "general")); got != 10 {
		t.Errorf("gauge of limit %v", got)
	}
	f.Metrics.PoolUsage.Reset()
	f.Metrics.PoolLimit.Reset()
	c.OmitMetrics = true
	count()
	if got := testutil.CollectAndCount(f.Metrics.PoolUsage) + testutil.CollectAndCount(f.Metrics.PoolLimit); got != 0 {
		t.Errorf("%d gauges though nothing is to be measured", got)
	}
	c.OmitMetrics = false
	version := pool(f).ResourceVersion
	count()
	if pool(f).ResourceVersion != version {
		t.Error("written again, though nothing has changed")
	}
	c.State = use{}
	if diff := cmp.Diff(map[string]string{"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"}, count()); diff != "" {
		t.Errorf("all nodes gone (-want +got):\n%s", diff)
	}
	if got := testutil.CollectAndCount(f.Metrics.PoolUsage); got != 5 {
		t.Errorf("%d gauges of usage once the resource that only nodes had is gone, want 5", got)
	}
	unlimited := pool(f)
	unlimited.Spec.Limits = nil
	f.Do(f.API.Update(t.Context(), unlimited))
	if count(); testutil.CollectAndCount(f.Metrics.PoolLimit) != 0 {
		t.Error("a limit that is no more has its gauge")
	}
	f.Do(f.API.Delete(t.Context(), unlimited))
	if err := c.pass(t.Context()); err != nil || testutil.CollectAndCount(f.Metrics.PoolUsage) != 0 {
		t.Errorf("a pool that is gone has gauges, error %v", err)
	}
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	if f.Get(p); p.Status.Nodes != nil {
		t.Error("another provider's pool was counted")
	}
}

// A pool with nodes that do not become ready reports why nothing is launched for it, is reconciled when the next probe
// may launch, and has no such condition any more when one has become ready.
func TestPoolSaysWhyLaunchesAreHeldBack(t *testing.T) {
	f := controllertest.New(t, unjudged(), controllertest.Class())
	held, until := true, controllertest.Start.Add(time.Minute)
	r := reconciler(f)
	r.Held = func(pool, class string) (cloudprovider.Finding, time.Time, bool) {
		if pool != "general" || class != "default" {
			t.Errorf("the breaker is checked for pool %q of class %q", pool, class)
		}
		return cloudprovider.Finding{Cause: "NodeNeverReady", Message: "cni plugin not initialized"}, until, held
	}
	if again := f.Reconcile(r, "general").RequeueAfter; again != time.Minute {
		t.Errorf("requeued after %v, want a minute", again)
	}
	ready, _ := condition.Get(pool(f), condition.Ready)
	if ready.Status != metav1.ConditionFalse || ready.Reason != "NodeNeverReady" || ready.Message != "cni plugin not initialized" {
		t.Errorf("Ready is %+v", ready)
	}
	until = time.Time{}
	if again := f.Reconcile(r, "general").RequeueAfter; again != 0 {
		t.Errorf("requeued after %v while a node is being tried, want at the next change", again)
	}
	held = false
	f.Reconcile(r, "general")
	if _, there := condition.Get(pool(f), karpv1.ConditionNodesCanJoin); there || !condition.IsReady(pool(f)) {
		t.Errorf("conditions %+v", pool(f).Status.Conditions)
	}
}

// Counting the nodes of a large cluster takes no larger share of a core than counting those of a small one.
func TestLargeFleetsAreCountedLessOften(t *testing.T) {
	for nodes, want := range map[int64]time.Duration{0: 5 * time.Second, 999: 5 * time.Second, 5000: 30 * time.Second} {
		if got := (&Counter{nodes: nodes}).interval(); got != want {
			t.Errorf("%d nodes are counted every %v, want %v", nodes, got, want)
		}
	}
}
