package disruption

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// noTypes is a cloud that offers nothing; what exists exists.
type noTypes struct{}

func (noTypes) InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	return []*catalog.InstanceType{}, nil
}

func consolidatableClaim(c *karpv1.NodeClaim) {
	controllertest.Initialized(c)
	condition.SetTrue(c, karpv1.ConditionConsolidatable, controllertest.Start)
}

func tainted(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{karpv1.TaintDisrupted()} }

// emptyNodes are nodes that may be terminated, under a budget for all of them.
func emptyNodes(names ...string) []client.Object {
	objects := []client.Object{controllertest.Class(), controllertest.Pool("general", func(p *karpv1.NodePool) {
		p.Spec.Disruption.ConsolidateAfter = karpv1.After(0)
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	})}
	for _, name := range names {
		objects = append(objects, controllertest.Claim(name, consolidatableClaim), controllertest.ReadyNode(name))
	}
	return objects
}

func stateOf(cache, live client.Reader, now func() time.Time) *cluster.State {
	return cluster.NewState(cluster.Config{
		Cache: cache, Live: live, Types: noTypes{}, OnPoolSkipped: func(*karpv1.NodePool, error) {}, NominationWindow: time.Minute, Now: now,
	})
}

// loop returns a Loop with a cache that is the API server, and its state.
func loop(f *controllertest.Fixture) (*Loop, *cluster.State) {
	state := stateOf(f.API, f.API, f.Now)
	return newLoop(f, f.API, state, f.Now), state
}

// newLoop returns a Loop with its Queue. IDs are those of no other.
func newLoop(f *controllertest.Fixture, c client.Client, state *cluster.State, now func() time.Time) *Loop {
	q := &Queue{
		Client: c, Guard: destroytest.Guard(c, now),
		Live:    c,
		State:   state,
		Events:  f.Events,
		Metrics: f.Metrics,
		Log:     f.Log,
		Now:     now,
		Jitter:  func() float64 { return 0 },
	}
	return &Loop{
		Client: c, Live: c, State: state, Queue: q, StaticCapacity: true, Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()},
		Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: now, ID: f.NewID,
	}
}

// deletingClaims lists the claims that are being deleted.
func deletingClaims(f *controllertest.Fixture) []string {
	var list karpv1.NodeClaimList
	f.Do(f.API.List(f.Context(), &list))
	var out []string
	for _, c := range list.Items {
		if c.DeletionTimestamp != nil {
			out = append(out, c.Name)
		}
	}
	return out
}

func isTainted(f *controllertest.Fixture, node string) bool {
	return slices.ContainsFunc(f.Node(node).Spec.Taints, karpv1.IsTaintDisrupted)
}

// passes proposes, and acts on what was proposed.
func passes(t *testing.T, l *Loop) {
	t.Helper()
	for range 2 {
		if _, err := l.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhichNodesAreDisrupted(t *testing.T) {
	f := controllertest.New(t, append(emptyNodes("busy", "daemons", "empty", "kept", "young"),
		controllertest.Pod("web", "node-busy"), controllertest.Pod("agent", "node-daemons", controllertest.OwnedByDaemonSet))...)
	kept := f.Node("node-kept")
	kept.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
	f.Do(f.API.Update(f.Context(), kept))
	young := f.Claim("young")
	condition.Clear(young, karpv1.ConditionConsolidatable, controllertest.Start)
	f.Do(f.API.Status().Update(f.Context(), young))
	l, _ := loop(f)
	passes(t, l)
	if diff := cmp.Diff([]string{"daemons", "empty"}, deletingClaims(f)); diff != "" {
		t.Errorf("ending (-want +got):\n%s", diff)
	}
	c := f.Claim("empty")
	if reason, _ := condition.Get(c, karpv1.ConditionDisruptionReason); reason.Reason != "Empty" || !isTainted(f, "node-empty") ||
		isTainted(f, "node-busy") {
		t.Errorf("reason %+v, tainted %v, busy tainted %v", reason, isTainted(f, "node-empty"), isTainted(f, "node-busy"))
	}
	if f.Counted("empty") != 2 {
		t.Errorf("counted %d", f.Counted("empty"))
	}
	said := strings.Join(f.RecordedEvents(), "\n")
	for _, want := range []string{"DisruptionTerminating Disrupting Node: Empty", "DisruptionTerminating Disrupting NodeClaim: Empty", "DisruptionBlocked Disruption is blocked through"} {
		if !strings.Contains(said, want) {
			t.Errorf("events\n%s\nwant %q", said, want)
		}
	}
	passes(t, l)
	if diff := cmp.Diff([]string{"daemons", "empty"}, deletingClaims(f)); diff != "" || !isTainted(f, "node-empty") {
		t.Errorf("the next pass: tainted %v, ending (-want +got):\n%s", isTainted(f, "node-empty"), diff)
	}
}

// The cache does not show the pod that was bound at the last moment; the API server does.
func TestPodBoundAtTheLastMoment(t *testing.T) {
	f := controllertest.New(t, emptyNodes("a")...)
	l, _ := loop(f)
	l.Live = interceptor.NewClient(f.API, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			if !isTainted(f, "node-a") {
				t.Error("looked before the node was closed")
			}
			list.(*corev1.PodList).Items = []corev1.Pod{*controllertest.Pod("web", "node-a")}
			return nil
		},
	})
	passes(t, l)
	if got := deletingClaims(f); len(got) > 0 || isTainted(f, "node-a") {
		t.Errorf("ending %v, tainted %v", got, isTainted(f, "node-a"))
	}
}

// Between the two looks a pod comes; the others still go.
func TestDecisionMustStayValid(t *testing.T) {
	f := controllertest.New(t, emptyNodes("a", "b")...)
	l, state := loop(f)
	looks := 0
	l.State = slowCacheState{state, func() {
		if looks++; looks == 2 {
			f.Do(f.API.Create(f.Context(), controllertest.Pod("web", "node-a")))
		}
	}}
	passes(t, l)
	if diff := cmp.Diff([]string{"b"}, deletingClaims(f)); diff != "" || isTainted(f, "node-a") {
		t.Errorf("a tainted %v, ending (-want +got):\n%s", isTainted(f, "node-a"), diff)
	}
}

type slowCacheState struct {
	*cluster.State
	before func()
}

func (s slowCacheState) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	s.before()
	return s.State.Snapshot(ctx)
}

// A deletion that is refused leaves the node as it was.
func TestRefusedDeletion(t *testing.T) {
	f := controllertest.New(t, emptyNodes("a")...)
	l, state := loop(f)
	refused := errors.New("webhook says no")
	l.Queue.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return refused },
	})
	l.Queue.Guard = destroytest.Guard(l.Queue.Client, f.Now)
	if _, err := l.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.pass(t.Context()); !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	s, err := state.Snapshot(t.Context())
	if err != nil || s.Nodes[0].Deleting {
		t.Errorf("error %v; the node counts as leaving, and takes no pods for ever", err)
	}
	if _, has := condition.Get(f.Claim("a"), karpv1.ConditionDisruptionReason); has || isTainted(f, "node-a") {
		t.Errorf("tainted %v, reason kept %v", isTainted(f, "node-a"), has)
	}
}

// reason is why a claim's node was about to be terminated.
func reason(c *karpv1.NodeClaim) {
	controllertest.Initialized(c)
	condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason, condition.Because("Empty", "Empty"), controllertest.Start)
}

// What this process is finishing is not opened again before the cache shows that it finishes.
func TestCacheLagDoesNotUntaint(t *testing.T) {
	f := controllertest.New(t, emptyNodes("a")...)
	l, _ := loop(f)
	before := f.Claim("a")
	l.State = stateOf(interceptor.NewClient(f.API, interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if claims, ok := list.(*karpv1.NodeClaimList); ok {
				claims.Items = []karpv1.NodeClaim{*before.DeepCopy()}
				return nil
			}
			return api.List(ctx, list, opts...)
		},
	}), f.API, f.Now)
	for range 3 {
		passes(t, l)
		if !isTainted(f, "node-a") || f.Claim("a").DeletionTimestamp == nil {
			t.Fatal("the node takes pods while its claim is being deleted")
		}
	}
	if f.Counted("empty") != 1 {
		t.Errorf("ended %d times", f.Counted("empty"))
	}
}

func TestUntaintOrphans(t *testing.T) {
	tests := []struct {
		name     string
		claim    *karpv1.NodeClaim
		node     *corev1.Node
		marked   bool
		reopened bool
	}{
		{"no command disrupts it", controllertest.Claim("a", reason), controllertest.ReadyNode("a", tainted), false, true},
		{"this process is ending it", controllertest.Claim("a", reason), controllertest.ReadyNode("a", tainted), true, false},
		{
			"its claim is being deleted",
			controllertest.Claim("a", reason, controllertest.Deleting),
			controllertest.ReadyNode("a", tainted),
			false,
			false,
		},
		{
			"its Node is being deleted",
			controllertest.Claim("a", reason),
			controllertest.ReadyNode("a", tainted, controllertest.DeletingNode),
			false,
			false,
		},
		{
			"nobody's node: the owner of the taint is unknown",
			nil,
			controllertest.ReadyNode("a", tainted, func(n *corev1.Node) { n.Labels = nil }),
			false,
			false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := []client.Object{tt.node}
			if tt.claim != nil {
				objects = append(objects, tt.claim)
			}
			f := controllertest.New(t, objects...)
			l, state := loop(f)
			if tt.marked {
				state.MarkForDeletion(tt.claim.UID)
			}
			passes(t, l)
			if got := !isTainted(f, "node-a"); got != tt.reopened {
				t.Errorf("reopened %v, want %v", got, tt.reopened)
			}
			if tt.claim == nil {
				return
			}
			if _, has := condition.Get(f.Claim("a"), karpv1.ConditionDisruptionReason); has == tt.reopened {
				t.Errorf("reason kept %v", has)
			}
		})
	}
}

// A node that has gone since the snapshot keeps no other closed.
func TestUntaintOrphansPastADeletedNode(t *testing.T) {
	f := controllertest.New(
		t,
		controllertest.Claim("a", controllertest.Initialized),
		controllertest.ReadyNode("a", tainted),
		controllertest.Claim("b", controllertest.Initialized),
		controllertest.ReadyNode("b", tainted),
	)
	l, state := loop(f)
	s, err := state.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := f.Node("node-a")
	a.Finalizers = nil
	f.Do(f.API.Update(f.Context(), a))
	f.Do(f.API.Delete(f.Context(), a))
	if err := l.untaintOrphans(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if isTainted(f, "node-b") {
		t.Error("node-b is still closed")
	}
}

// process starts a Loop that makes one pass a round.
func process(t *testing.T) func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
	return func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
		l := newLoop(controllertest.New(t), c, stateOf(c, c, w.Now), w.Now)
		return actors(l)
	}
}

// actors are the loop and its queue.
func actors(l *Loop) []kill.Actor {
	return []kill.Actor{
		{
			Kind: &karpv1.NodeClaimList{},
			Reconciler: reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				claim := &karpv1.NodeClaim{}
				if err := l.Client.Get(ctx, req.NamespacedName, claim); err != nil || cluster.CommandOf(claim) == "" {
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				return l.Queue.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: cluster.CommandOf(claim)}})
			}),
		},
		{Kind: &karpv1.NodePoolList{}, Reconciler: kill.Pass(func(ctx context.Context) error {
			_, err := l.pass(ctx)
			return err
		})},
	}
}

// Killed anywhere, the loop stops what it has begun, or begins anew.
func TestLoopKilled(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object { return emptyNodes("a", "b") },
		Process: process(t),
		Check: func(t *testing.T, w *kill.World) {
			for _, name := range []string{"a", "b"} {
				claim := &karpv1.NodeClaim{}
				if err := w.API.Get(t.Context(), client.ObjectKey{Name: name}, claim); err != nil || claim.DeletionTimestamp == nil {
					t.Errorf("claim %s stays, error %v", name, err)
				}
			}
		},
	})
}

// The process is killed while it untaints an orphan.
func TestUntaintOrphansKilled(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object {
			return []client.Object{
				controllertest.Pool("general"),
				controllertest.Claim("a", reason),
				controllertest.ReadyNode("a", tainted),
				controllertest.Claim("b", reason),
				controllertest.ReadyNode("b", tainted),
			}
		},
		Process: process(t),
	})
}

// The condition follows consolidateAfter, and a pool that is gone changes nothing.
func TestConsolidatable(t *testing.T) {
	f := controllertest.New(
		t,
		controllertest.Claim("a", consolidatableClaim, func(c *karpv1.NodeClaim) { c.Status.LastPodEventTime = after(0) }),
		controllertest.Pool("general", func(p *karpv1.NodePool) { p.Spec.Disruption.ConsolidateAfter = karpv1.After(time.Minute) }),
	)
	r := &Consolidatable{Client: f.API, Log: f.Log, Now: f.Now}
	has := func() bool { _, ok := condition.Get(f.Claim("a"), karpv1.ConditionConsolidatable); return ok }
	if result := f.Reconcile(r, "a"); has() || result.RequeueAfter != time.Minute {
		t.Errorf("condition kept %v, comes back after %v", has(), result.RequeueAfter)
	}
	f.Clock = after(60).Time
	f.Reconcile(r, "a")
	if !condition.IsTrue(f.Claim("a"), karpv1.ConditionConsolidatable) {
		t.Error("not consolidatable after a minute")
	}
	f.Do(f.API.Delete(t.Context(), controllertest.Pool("general")))
	f.Reconcile(r, "a")
	if !has() {
		t.Error("pool gone, condition changed")
	}
}

// after is a time in seconds after the start.
func after(seconds int) metav1.Time {
	return metav1.NewTime(controllertest.Start.Add(time.Duration(seconds) * time.Second))
}
