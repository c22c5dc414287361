package disruption

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// idleWorld is a cluster in which random changes happen, and a Loop.
type idleWorld struct {
	*controllertest.Fixture
	*rand.Rand
	loop *Loop
	// changes counts what happened to objects; taken counts the snapshots of the loop.
	changes, taken int
	pods           int
}

// countingState counts snapshots.
type countingState struct {
	*cluster.State
	taken *int
}

func (s countingState) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	*s.taken++
	return s.State.Snapshot(ctx)
}

func newIdleWorld(t *testing.T, seed uint64) *idleWorld {
	objects := emptyNodes("a", "b", "c", "d")
	for _, name := range []string{"a", "b", "c", "d"} {
		objects = append(objects, controllertest.Pod("web-"+name, "node-"+name))
	}
	w := &idleWorld{Fixture: controllertest.New(t, objects...), Rand: rand.New(rand.NewPCG(seed, 1))}
	state := cluster.NewState(cluster.Config{
		Cache: w.API, Live: w.API, Types: noTypes{}, OnPoolSkipped: func(*karpv1.NodePool, error) {}, NominationWindow: time.Minute,
		Now: w.Now, Changes: func(context.Context) (uint64, error) { return uint64(w.changes), nil },
	})
	w.loop = newLoop(w.Fixture, w.API, state, w.Now)
	w.loop.State, w.loop.ValidationDelay = countingState{state, &w.taken}, ValidationDelay
	return w
}

// happen changes something, or only the time.
func (w *idleWorld) happen() string {
	w.Clock = w.Clock.Add(time.Duration(5+w.IntN(30)) * time.Second)
	node := "node-" + string(rune('a'+w.IntN(4)))
	what := w.IntN(24)
	if what > 6 {
		return "time passes"
	}
	w.changes++
	switch what {
	case 0:
		w.pods++
		w.Do(w.API.Create(w.Context(), controllertest.Pod(fmt.Sprintf("new-%d", w.pods), node)))
		return "a pod comes to " + node
	case 1:
		var pods corev1.PodList
		w.Do(w.API.List(w.Context(), &pods))
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName == node {
				w.Do(w.API.Delete(w.Context(), &pods.Items[i]))
			}
		}
		return "the pods leave " + node
	case 2:
		w.pods++
		protected := controllertest.Pod(fmt.Sprintf("kept-%d", w.pods), node, controllertest.OwnedByDaemonSet)
		protected.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "1m"}
		protected.Status.StartTime = &metav1.Time{Time: w.Clock}
		w.Do(w.API.Create(w.Context(), protected))
		return "a pod protects " + node + " for a minute"
	case 3:
		w.change(&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}, func(o client.Object) {
			begin := w.Clock.UTC().Add(-time.Duration(w.IntN(3)) * time.Minute)
			schedule := fmt.Sprintf("%d %d * * *", begin.Minute(), begin.Hour())
			o.(*karpv1.NodePool).Spec.Disruption.Budgets = []karpv1.Budget{
				{Nodes: "0", Schedule: &schedule, Duration: &metav1.Duration{Duration: 2 * time.Minute}}, {Nodes: "100%"},
			}
		})
		return "a budget forbids all for two minutes"
	case 4:
		w.loop.State.Nominate(node)
		return node + " is nominated"
	case 5:
		w.change(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, func(o client.Object) {
			o.SetAnnotations(map[string]string{karpv1.AnnotationDoNotDisrupt: map[bool]string{true: "true", false: "false"}[w.IntN(2) == 0]})
		})
		return node + " is protected, or not"
	default:
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: node[len("node-"):]}}
		if w.Get(claim) {
			condition.SetTrue(claim, karpv1.ConditionDrifted, w.Clock)
			w.Do(w.API.Status().Update(w.Context(), claim))
		}
		return node + " drifts"
	}
}

// change edits an object, if it exists.
func (w *idleWorld) change(o client.Object, edit func(client.Object)) {
	if w.Get(o) {
		edit(o)
		w.Do(w.API.Update(w.Context(), o))
	}
}

// wouldAct reports whether a Loop without memory would find something to do now.
func (w *idleWorld) wouldAct(t *testing.T) bool {
	t.Helper()
	fresh := newLoop(w.Fixture, w.API, stateOf(w.API, w.API, w.Now), w.Now)
	fresh.ValidationDelay = ValidationDelay
	acted, err := fresh.pass(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return acted || len(fresh.Queue.memory.now().Proposals) > 0
}

// The oracle of a pass that is left out is one that is not.
func TestPassesThatAreLeftOutWouldDecideNothing(t *testing.T) {
	leftOut, made := 0, 0
	for seed := range uint64(60) {
		w := newIdleWorld(t, seed)
		for range 40 {
			what := w.happen()
			before := w.taken
			acted, err := w.loop.pass(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if acted {
				w.changes++ // a cache shows what the loop has written
			}
			if w.taken > before {
				made++
				continue
			}
			leftOut++
			if w.wouldAct(t) {
				t.Fatalf("seed %d: %s, a pass is left out, and would find something to do", seed, what)
			}
		}
	}
	t.Logf("%d passes were made, %d left out", made, leftOut)
	if leftOut < 100 || made < 100 {
		t.Errorf("%d passes were made, %d left out: that proves little", made, leftOut)
	}
}

// The recording has the fleet at each minute, so that a pass a minute is made in any case.
func TestPassesAreLeftOutForAMinuteAtMost(t *testing.T) {
	w := newIdleWorld(t, 1)
	last, longest := w.Clock, time.Duration(0)
	for range 60 {
		w.Clock = w.Clock.Add(passInterval)
		before := w.taken
		if _, err := w.loop.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w.taken > before {
			last = w.Clock
		}
		longest = max(longest, w.Clock.Sub(last))
	}
	if longest != maxIdle-passInterval {
		t.Errorf("no pass for up to %v, want %v", longest, maxIdle-passInterval)
	}
}
