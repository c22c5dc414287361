package join

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/nodeclaim/initialization"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// joiners are nodes that join at once, with the reconcilers that follow them on a clock of their own.
type joiners struct {
	t          *testing.T
	fixture    *controllertest.Fixture
	api        *controllertest.BulkAPI
	nodes      []*corev1.Node
	removals   *cluster.TaintRemovals
	initialize *initialization.Reconciler
	join       *Reconciler
	due        map[string]time.Time // when a claim is to be looked at again
}

func name(n int) string { return fmt.Sprintf("c%04d", n) }

// newJoiners returns n nodes that have just registered and wait for the cloud controller manager.
func newJoiners(t *testing.T, n int) *joiners {
	t.Helper()
	j := &joiners{t: t, fixture: controllertest.New(t), removals: cluster.NewTaintRemovals(), due: map[string]time.Time{}}
	var claims []*karpv1.NodeClaim
	for i := range n {
		claims = append(claims, controllertest.Claim(name(i), controllertest.Registered))
		j.nodes = append(j.nodes, controllertest.JoinedNode(name(i), func(node *corev1.Node) {
			node.CreationTimestamp = metav1.NewTime(controllertest.Start)
			node.Spec.Taints = []corev1.Taint{{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
		}))
		j.due[name(i)] = controllertest.Start
	}
	j.api = controllertest.NewBulkAPI(claims)
	j.api.SetNodeClass(class())
	for _, node := range j.nodes {
		j.api.SetNode(node)
	}
	j.initialize = &initialization.Reconciler{
		Client: j.api, Events: j.fixture.Events, Log: j.fixture.Log, Now: j.fixture.Now, RepairStaleTaints: true, Removals: j.removals,
	}
	j.join = reconciler(j.fixture, &fakeCloud{})
	j.join.Client, j.join.Removals = j.api, j.removals
	return j
}

// look reconciles a claim with both reconcilers.
func (j *joiners) look(claim string) {
	j.t.Helper()
	delete(j.due, claim)
	if again := j.fixture.Reconcile(j.initialize, claim).RequeueAfter; again > 0 {
		j.due[claim] = j.fixture.Clock.Add(again)
	}
	j.fixture.Reconcile(j.join, claim)
	j.fixture.RecordedEvents()
}

// untaint is what the cloud controller manager does when it is done with a node.
func (j *joiners) untaint(n int) {
	before := j.nodes[n]
	after := before.DeepCopy()
	after.Spec.Taints = nil
	j.nodes[n] = after
	j.api.SetNode(after)
	j.removals.Observe(before, after, j.fixture.Clock)
	j.look(name(n))
}

// second passes, with all that is due in it.
func (j *joiners) second() {
	j.t.Helper()
	j.fixture.Clock = j.fixture.Clock.Add(time.Second)
	for n := range j.nodes {
		if at, ok := j.due[name(n)]; ok && !j.fixture.Clock.Before(at) {
			j.look(name(n))
		}
	}
}

func (j *joiners) reason(n int) string {
	claim := &karpv1.NodeClaim{}
	claim.Name = name(n)
	if err := j.api.Get(j.t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
		j.t.Fatal(err)
	}
	initialized, _ := condition.Get(claim, karpv1.ConditionInitialized)
	return initialized.Reason
}

// A thousand nodes join at once, and the cloud controller manager initializes one a second: the last waits for a
// quarter of an hour. Slow is not absent: no node is given up, no launch held back, and each node is initialized as
// soon as its taint is gone.
func TestThousandNodesAndOneTaintASecondHoldNoLaunchBack(t *testing.T) {
	const nodes = 1000
	j := newJoiners(t, nodes)
	for n := range nodes {
		j.second()
		j.untaint(n)
		if open := j.join.Breakers.Open(); len(open) > 0 {
			t.Fatalf("after %d of %d nodes launches are held back: %+v", n+1, nodes, open)
		}
		if n%100 == 99 {
			for other := range nodes {
				if got := j.reason(other); got == cluster.ReasonTaintStuck {
					t.Fatalf("after %d of %d nodes, %s is given up: %s", n+1, nodes, name(other), got)
				}
			}
		}
	}
	for n := range nodes {
		if got := j.reason(n); got != karpv1.ConditionInitialized {
			t.Fatalf("%s waits in the end: %s", name(n), got)
		}
	}
}

// A cloud controller manager that stops in the middle is found out soon after the last taint that it has removed.
func TestTaintsAreNamedSoonAfterTheirOwnerStops(t *testing.T) {
	const nodes, done = 200, 100
	j := newJoiners(t, nodes)
	for n := range done {
		j.second()
		j.untaint(n)
	}
	for range int(cluster.TaintOwnerWindow/time.Second) - 1 {
		j.second()
	}
	if got := j.reason(nodes - 1); got == cluster.ReasonTaintStuck {
		t.Error("given up within the time in which its owner counts as working")
	}
	j.second()
	if got := j.reason(nodes - 1); got != cluster.ReasonTaintStuck {
		t.Errorf("the owner of the taint has done nothing for %v, and the node reports %s", cluster.TaintOwnerWindow, got)
	}
	if len(j.join.Breakers.Open()) != 1 {
		t.Error("launches are not held back")
	}
}
