package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// fakeInstanceTypes is a cloud that offers a small and a large instance type in three zones.
type fakeInstanceTypes struct{}

func (fakeInstanceTypes) InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	return []*catalog.InstanceType{
		engine.Type("m.small", 0.1, "cpu", "2", "memory", "8Gi"),
		engine.Type("m.large", 0.4, "cpu", "8", "memory", "32Gi"),
	}, nil
}

func newStateWithTypes(c client.Client, now func() time.Time) *cluster.State {
	return cluster.NewState(cluster.Config{
		Cache: c, Live: c, Types: fakeInstanceTypes{}, OnPoolSkipped: func(*karpv1.NodePool, error) {}, NominationWindow: time.Minute, Now: now,
		Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()},
	})
}

func drifted(c *karpv1.NodeClaim) {
	controllertest.Initialized(c)
	condition.SetTrueWithReason(c, karpv1.ConditionDrifted, condition.Because("AMIDrift", "AMIDrift"), controllertest.Start)
}

// asInstance makes a Node an instance with the fake instance types.
func asInstance(name string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelTopologyZone], n.Labels[karpv1.LabelCapacityType] = name, "z1", karpv1.CapacityTypeOnDemand
		n.Labels[corev1.LabelHostname] = n.Name
		cpu := "2"
		if name == "m.large" {
			cpu = "8"
		}
		n.Status.Allocatable = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(
				cpu,
			), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}
		n.Status.Capacity = n.Status.Allocatable
	}
}

func requestsCPU(cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Spec.Containers = []corev1.Container{
			{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}},
		}
	}
}

func budget(nodes string) func(*karpv1.NodePool) {
	return func(p *karpv1.NodePool) {
		p.Spec.Disruption.ConsolidateAfter = karpv1.Never()
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: nodes}}
	}
}

// driftedNodes are full nodes that are out of date, with a pod each.
func driftedNodes(names ...string) []client.Object {
	objects := []client.Object{controllertest.Class(), controllertest.Pool("general", budget("100%"))}
	for _, name := range names {
		objects = append(
			objects,
			controllertest.Claim(name, drifted),
			controllertest.ReadyNode(name, asInstance("m.small")),
			controllertest.Pod("pod-"+name, "node-"+name, requestsCPU("1500m")),
		)
	}
	return objects
}

// newLoopWithTypes returns a Loop with instance types.
func newLoopWithTypes(f *controllertest.Fixture) *Loop {
	return newLoop(f, f.API, newStateWithTypes(f.API, f.Now), f.Now)
}

func claims(f *controllertest.Fixture) []karpv1.NodeClaim {
	var list karpv1.NodeClaimList
	f.Do(f.API.List(f.Context(), &list))
	return list.Items
}

// replacements are the claims that were created in place of others and are not deleting.
func replacements(f *controllertest.Fixture) (out []karpv1.NodeClaim) {
	return slices.DeleteFunc(claims(f), func(c karpv1.NodeClaim) bool {
		return c.Annotations[karpv1.AnnotationReplacementOf] == "" || c.DeletionTimestamp != nil
	})
}

// initialize makes a claim a node that is ready for use.
func initialize(ctx context.Context, api client.Client, claim *karpv1.NodeClaim, now time.Time) error {
	return initializeAs(ctx, api, claim, claim.Name, now)
}

// initializeAs is initialize with a name for node and instance.
func initializeAs(ctx context.Context, api client.Client, claim *karpv1.NodeClaim, name string, now time.Time) error {
	claim.Finalizers = []string{karpv1.FinalizerTermination}
	if err := api.Update(ctx, claim); err != nil {
		return err
	}
	claim.Status.ProviderID, claim.Status.NodeName = "aws:///us-east-1a/i-"+name, "node-"+name
	for _, typ := range []string{karpv1.ConditionLaunched, karpv1.ConditionRegistered, karpv1.ConditionInitialized} {
		condition.SetTrue(claim, typ, now)
	}
	if err := api.Status().Update(ctx, claim); err != nil {
		return err
	}
	return api.Create(ctx, controllertest.ReadyNode(name, asInstance("m.small"), func(n *corev1.Node) { n.UID = types.UID(n.Name) }))
}

// runDue lets the queue look at every command once.
func runDue(t *testing.T, l *Loop) time.Duration {
	t.Helper()
	var list karpv1.NodeClaimList
	if err := l.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var again time.Duration
	seen := map[string]bool{"": true}
	for i := range list.Items {
		id := cluster.CommandOf(&list.Items[i])
		if seen[id] {
			continue
		}
		seen[id] = true
		result, err := l.Queue.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: id}})
		if err != nil {
			t.Fatal(err)
		}
		again = max(again, result.RequeueAfter)
	}
	return again
}

func snapshotOf(t *testing.T, l *Loop) *snapshot.Snapshot {
	t.Helper()
	s, err := l.State.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func nodeOf(t *testing.T, s *snapshot.Snapshot, claim string) snapshot.Node {
	t.Helper()
	i := slices.IndexFunc(s.Nodes, func(n snapshot.Node) bool { return n.Claim == claim })
	if i < 0 {
		t.Fatalf("no node of claim %s", claim)
	}
	return s.Nodes[i]
}

func TestReplacement(t *testing.T) {
	f := controllertest.New(t, driftedNodes("a")...)
	l := newLoopWithTypes(f)
	passes(t, l)
	created := replacements(f)
	if len(created) != 1 || len(deletingClaims(f)) > 0 || !isTainted(f, "node-a") {
		t.Fatalf("created %d, ending %v, tainted %v", len(created), deletingClaims(f), isTainted(f, "node-a"))
	}
	b := created[0]
	want := map[string]string{
		karpv1.AnnotationLaunchReason: "Drifted", karpv1.AnnotationReplaces: "a", karpv1.AnnotationNominatedPods: "uid-pod-a",
	}
	for key, value := range want {
		if b.Annotations[key] != value {
			t.Errorf("annotation %s is %q, want %q", key, b.Annotations[key], value)
		}
	}
	if c, _ := condition.Get(f.Claim("a"), karpv1.ConditionDisruptionReason); c.Reason != "Drifted" {
		t.Errorf("reason %q", c.Reason)
	}
	t.Run("the pod has its place, so that nobody provisions for it again", func(t *testing.T) {
		s := snapshotOf(t, l)
		if n := nodeOf(t, s, b.Name); !slices.Contains(n.Nominated, "uid-pod-a") {
			t.Errorf("nominated %v", n.Nominated)
		}
		if n := nodeOf(t, s, "a"); !n.Deleting || len(s.Pods) != 1 {
			t.Errorf("leaving %v, %d pods want a place", n.Deleting, len(s.Pods))
		}
	})
	t.Run("a candidate in the queue is no candidate again", func(t *testing.T) {
		passes(t, l)
		if n := len(replacements(f)); n != 1 {
			t.Errorf("%d replacements", n)
		}
	})
	t.Run("as long as the replacement is not initialized the node stays closed", func(t *testing.T) {
		if again := runDue(t, l); again != pollInterval || len(deletingClaims(f)) > 0 || !isTainted(f, "node-a") {
			t.Errorf("again %v, ending %v, tainted %v", again, deletingClaims(f), isTainted(f, "node-a"))
		}
		if said := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(said, "DisruptionLaunching Launching NodeClaim: Drifted") {
			t.Errorf("events\n%s", said)
		}
	})
	f.Do(initialize(t.Context(), f.API, &b, f.Now()))
	runDue(t, l)
	if diff := cmp.Diff([]string{"a"}, deletingClaims(f)); diff != "" {
		t.Errorf("ending (-want +got):\n%s", diff)
	}
	runDue(t, l)
	if got := f.Counted("drifted"); got != 1 {
		t.Errorf("counted %d times", got)
	}
	said := strings.Join(f.RecordedEvents(), "\n")
	for _, want := range []string{
		"DisruptionTerminating Disrupting Node: Drifted, decision ", "DisruptionTerminating Disrupting NodeClaim: Drifted, decision ",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("events\n%s\nwant %q", said, want)
		}
	}
	if n := testutil.ToFloat64(l.Metrics.Decisions.WithLabelValues("replace", "drifted", "")); n != 1 {
		t.Errorf("%v decisions", n)
	}
	if n := testutil.ToFloat64(l.Metrics.ClaimsCreated.WithLabelValues("drifted", "general", "false")); n != 1 {
		t.Errorf("%v claims created", n)
	}
	t.Run("the new node is kept until the pods of the old node have come", func(t *testing.T) {
		passes(t, l)
		passes(t, l)
		if diff := cmp.Diff([]string{"a"}, deletingClaims(f)); diff != "" {
			t.Errorf("ending (-want +got):\n%s", diff)
		}
	})
}

// wantRestored fails the test unless the node is as it was before the command.
func wantRestored(t *testing.T, f *controllertest.Fixture, name string) {
	t.Helper()
	c := f.Claim(name)
	_, reason := condition.Get(c, karpv1.ConditionDisruptionReason)
	_, ends, _ := c.DisruptionCommand()
	if reason || ends || isTainted(f, "node-"+name) || c.DeletionTimestamp != nil {
		t.Errorf(
			"claim %s: reason %v, remembers its end %v, tainted %v, deleting %v",
			name,
			reason,
			ends,
			isTainted(f, "node-"+name),
			c.DeletionTimestamp,
		)
	}
}

// A pod has one claim at a time, however it came to where it is.
func TestPodHasOneClaim(t *testing.T) {
	objects := append(
		driftedNodes("a"),
		controllertest.Claim("other", controllertest.Initialized),
		controllertest.ReadyNode("other", asInstance("m.small")),
		controllertest.Pod("full", "node-other", requestsCPU("1500m")),
	)
	f := controllertest.New(t, objects...)
	for _, name := range []string{"a", "other"} {
		c := f.Claim(name)
		c.Annotations = map[string]string{karpv1.AnnotationNominatedPods: "uid-x,uid-pod-a"}
		f.Do(f.API.Update(t.Context(), c))
	}
	l := newLoopWithTypes(f)
	passes(t, l)
	for _, c := range claims(f) {
		got, want := c.Annotations[karpv1.AnnotationNominatedPods], "uid-x"
		if c.Annotations[karpv1.AnnotationReplacementOf] != "" {
			want = "uid-pod-a"
		}
		if got != want {
			t.Errorf("claim %s was created for %q, want %q", c.Name, got, want)
		}
	}
	if len(replacements(f)) != 1 {
		t.Errorf("%d replacements", len(replacements(f)))
	}
}

func TestReplacementFails(t *testing.T) {
	t.Run("it is deleted", func(t *testing.T) {
		f := controllertest.New(t, driftedNodes("a")...)
		l := newLoopWithTypes(f)
		passes(t, l)
		f.Do(f.API.Delete(t.Context(), &replacements(f)[0]))
		runDue(t, l)
		wantRestored(t, f, "a")
		if n := testutil.ToFloat64(l.Metrics.QueueFailures.WithLabelValues("replace", "drifted", "")); n != 1 {
			t.Errorf("%v failures", n)
		}
		if n := nodeOf(t, snapshotOf(t, l), "a"); n.Deleting || n.Disrupting {
			t.Errorf("the node still counts as leaving")
		}
		passes(t, l)
		if n := len(replacements(f)); n > 0 {
			t.Errorf("%d replacements at once: the pool does not pause", n)
		}
		f.Clock = f.Clock.Add(time.Minute)
		passes(t, l)
		if n := len(replacements(f)); n != 1 {
			t.Errorf("%d replacements later", n)
		}
	})
	t.Run("it is late", func(t *testing.T) {
		f := controllertest.New(t, driftedNodes("a")...)
		l := newLoopWithTypes(f)
		passes(t, l)
		f.Clock = f.Clock.Add(10*time.Minute - time.Second)
		if runDue(t, l); !isTainted(f, "node-a") {
			t.Fatal("given up too soon")
		}
		f.Clock = f.Clock.Add(time.Second)
		runDue(t, l)
		wantRestored(t, f, "a")
		if n := len(replacements(f)); n > 0 {
			t.Errorf("the replacement is not deleted")
		}
	})
	t.Run("ready at the last moment counts as ready", func(t *testing.T) {
		f := controllertest.New(t, driftedNodes("a")...)
		l := newLoopWithTypes(f)
		passes(t, l)
		f.Do(initialize(t.Context(), f.API, &replacements(f)[0], f.Now()))
		f.Clock = f.Clock.Add(time.Hour)
		runDue(t, l)
		if diff := cmp.Diff([]string{"a"}, deletingClaims(f)); diff != "" {
			t.Errorf("ending (-want +got):\n%s", diff)
		}
	})
	t.Run("the cache does not show it yet", func(t *testing.T) {
		f := controllertest.New(t, driftedNodes("a")...)
		l := newLoopWithTypes(f)
		passes(t, l)
		name := replacements(f)[0].Name
		l.Queue.Client = interceptor.NewClient(f.API, interceptor.Funcs{
			Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if key.Name == name {
					key.Name = "nobody"
				}
				return api.Get(ctx, key, o, opts...)
			},
		})
		if runDue(t, l); !isTainted(f, "node-a") {
			t.Error("taken back")
		}
	})
	t.Run("one of two is lost: the other is deleted, unless pods use it", func(t *testing.T) {
		for _, used := range []bool{false, true} {
			f := controllertest.New(t, twoDriftedNodes()...)
			l := newLoopWithTypes(f)
			passes(t, l)
			created := replacements(f)
			if len(created) != 2 {
				t.Fatalf("%d replacements", len(created))
			}
			f.Do(initialize(t.Context(), f.API, &created[0], f.Now()))
			if runDue(t, l); len(deletingClaims(f)) > 0 {
				t.Error("does not wait for both")
			}
			if used {
				f.Do(f.API.Create(t.Context(), controllertest.Pod("new", "node-"+created[0].Name, requestsCPU("1"))))
			}
			f.Do(f.API.Delete(t.Context(), &created[1]))
			runDue(t, l)
			wantRestored(t, f, "a")
			other := f.Claim(created[0].Name)
			if stays := other != nil && other.DeletionTimestamp == nil; stays != used {
				t.Errorf("used %v: the other stays %v", used, stays)
			}
		}
	})
	t.Run("a node that was ended needs its replacement", func(t *testing.T) {
		f := controllertest.New(t, twoDriftedNodes()...)
		l := newLoopWithTypes(f)
		passes(t, l)
		created := replacements(f)
		f.Do(f.API.Delete(t.Context(), f.Claim("a")))
		f.Do(f.API.Delete(t.Context(), &created[1]))
		runDue(t, l)
		if len(replacements(f)) != 1 {
			t.Error("deleted")
		}
	})
}

// A process that has lost its lease creates a replacement after the next one has taken its command back.
func TestUnneededReplacementIsDeleted(t *testing.T) {
	late := func(c *karpv1.NodeClaim) {
		c.Annotations = map[string]string{karpv1.AnnotationReplacementOf: "gone", karpv1.AnnotationReplaces: "a"}
	}
	f := controllertest.New(t, append(driftedNodes("a"), controllertest.Claim("late", late))...)
	runDue(t, newLoopWithTypes(f))
	if f.Claim("late").DeletionTimestamp == nil || len(deletingClaims(f)) != 1 {
		t.Errorf("ending %v, want late", deletingClaims(f))
	}
	t.Run("its node was ended after all", func(t *testing.T) {
		f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), controllertest.Claim("late", late))
		if runDue(t, newLoopWithTypes(f)); len(deletingClaims(f)) > 0 {
			t.Error("deleted")
		}
	})
}

// twoDriftedNodes is a node with two pods that need a node each.
func twoDriftedNodes() []client.Object {
	objects := []client.Object{controllertest.Class(), controllertest.Pool("general", budget("100%"), func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.Requirements = []karpv1.Requirement{
			{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"m.small"}},
		}
	})}
	return append(objects, controllertest.Claim("a", drifted), controllertest.ReadyNode("a", asInstance("m.large")),
		controllertest.Pod("one", "node-a", requestsCPU("1500m")), controllertest.Pod("two", "node-a", requestsCPU("1500m")))
}

// Killed at any write, a command is carried through or taken back: the node is not finished before its replacement is up,
// and in the end there is one node for the pod.
func TestReplacementKilled(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object { return driftedNodes("a") },
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			return actors(newLoop(controllertest.New(t), c, newStateWithTypes(c, w.Now), w.Now))
		},
		Others: bootReplacements("a"),
		Check:  wantOneNode,
	})
}

// bootReplacements brings up what was created in place of a claim, and fails the test if that is deleted before.
func bootReplacements(old string) func(t *testing.T, w *kill.World) {
	return func(t *testing.T, w *kill.World) {
		var list karpv1.NodeClaimList
		if err := w.API.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		up, gone := 0, false
		for i := range list.Items {
			c := &list.Items[i]
			switch {
			case c.Name == old:
				gone = c.DeletionTimestamp != nil
			case c.DeletionTimestamp != nil:
			case condition.IsTrue(c, karpv1.ConditionInitialized):
				up++
			}
		}
		if gone && up == 0 {
			t.Fatalf("round %d: the node is ended without its replacement", w.Round)
		}
		for i := range list.Items { // it takes a round to come up
			c := &list.Items[i]
			if c.Name != old && c.DeletionTimestamp == nil && !condition.IsTrue(c, karpv1.ConditionInitialized) && w.Round%2 == 1 {
				if err := initializeAs(t.Context(), w.API, c, "new", w.Now()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// wantOneNode checks that there is one claim in the end, the others being deleting.
func wantOneNode(t *testing.T, w *kill.World) {
	var list karpv1.NodeClaimList
	if err := w.API.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var stay []string
	for _, c := range list.Items {
		if c.DeletionTimestamp == nil {
			stay = append(stay, c.Name)
		}
	}
	if len(stay) != 1 || stay[0] == "a" {
		t.Errorf("there are claims %v", stay)
	}
}

// A node that needs two replacements: killed between the two, the first is deleted.
func TestTwoReplacementsKilled(t *testing.T) {
	created := func(t *testing.T, w *kill.World) (out []karpv1.NodeClaim, ended bool) {
		var list karpv1.NodeClaimList
		if err := w.API.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for _, c := range list.Items {
			switch {
			case c.Name == "a":
				ended = c.DeletionTimestamp != nil
			case c.DeletionTimestamp == nil:
				out = append(out, c)
			}
		}
		slices.SortFunc(out, func(a, b karpv1.NodeClaim) int { // names are of no two tellings
			return strings.Compare(a.Annotations[karpv1.AnnotationNominatedPods], b.Annotations[karpv1.AnnotationNominatedPods])
		})
		return out, ended
	}
	kill.Run(t, kill.Scenario{
		Objects: twoDriftedNodes,
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			return actors(newLoop(controllertest.New(t), c, newStateWithTypes(c, w.Now), w.Now))
		},
		Others: func(t *testing.T, w *kill.World) {
			out, ended := created(t, w)
			for i := range out {
				up := condition.IsTrue(&out[i], karpv1.ConditionInitialized)
				if ended && !up {
					t.Fatalf("round %d: the node is deleted before both are up", w.Round)
				}
				if len(out) == 2 && !up && w.Round%2 == 1 {
					if err := initializeAs(t.Context(), w.API, &out[i], fmt.Sprintf("new-%d", i), w.Now()); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
		Check: func(t *testing.T, w *kill.World) {
			if out, ended := created(t, w); len(out) != 2 || !ended {
				t.Errorf("%d replacements, the old node ended %v", len(out), ended)
			}
		},
	})
}
