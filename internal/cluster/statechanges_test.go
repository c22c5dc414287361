package cluster_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// change writes an object and shows it to the cache.
func (w *testCluster) change(t *testing.T, o client.Object, edit func()) {
	t.Helper()
	for _, api := range []client.Client{w.live, w.cache} {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		edit()
		if err := api.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// remove takes an object away from the API server and the cache.
func (w *testCluster) remove(t *testing.T, o client.Object) {
	t.Helper()
	for _, api := range []client.Client{w.live, w.cache} {
		if err := api.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func podNames(pods []*corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func TestStateFollowsTheWorld(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"a Node gets its provider ID later", providerIDLater},
		{"one of two of one name goes", oneNameForTwo},
		{"synced once the API server was read", syncedOnce},
		{"a claim without an instance goes", comeAndGone},
		{"a pod ends", podEnds},
		{"a pod of the same name elsewhere", podElsewhere},
		{"marked, then deleted, is subtracted once", subtractedOnce},
	} {
		t.Run(c.name, c.test)
	}
}

func providerIDLater(t *testing.T) {
	n := nodeOf("node-a", "", joinedNode)
	w := newTestCluster(t, claimOf("claim-a", launched("i-1"), registered("node-a")), n)
	w.snapshot(t)
	w.change(t, n, func() { n.Spec.ProviderID = "aws:///us-east-1a/i-1" })
	wantNodes(t, w.snapshot(t), "node-a")
	// So for a node of others, which is one by its name before.
	foreign := nodeOf("theirs", "")
	w = newTestCluster(t, foreign)
	wantNodes(t, w.snapshot(t), "theirs")
	w.change(t, foreign, func() { foreign.Spec.ProviderID = "aws:///us-east-1a/i-9" })
	wantNodes(t, w.snapshot(t), "theirs")
}

func oneNameForTwo(t *testing.T) {
	for _, claimGoes := range []bool{false, true} {
		claim, node := claimOf("a", launched("i-1")), nodeOf("a", "i-9")
		w := newTestCluster(t, claim, node)
		wantNodes(t, w.snapshot(t), "a", "a")
		gone := client.Object(node)
		if claimGoes {
			gone = claim
		}
		w.remove(t, gone)
		s := w.snapshot(t)
		wantNodes(t, s, "a")
		if ours := s.Nodes[0].Claim == "a"; ours == claimGoes {
			t.Errorf("claim gone: %v, entry that is left: %+v", claimGoes, s.Nodes[0])
		}
	}
}

func podEnds(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		p := boundPod("p", "theirs")
		w := newTestCluster(t, nodeOf("theirs", "i-9"), p)
		if s := w.snapshot(t); len(s.Nodes[0].Pods) != 1 {
			t.Fatalf("pods %v", podNames(s.Nodes[0].Pods))
		}
		p.Status.Phase = phase
		for _, api := range []client.Client{w.live, w.cache} {
			p.ResourceVersion = ""
			if err := api.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		if s := w.snapshot(t); len(s.Nodes[0].Pods) != 0 {
			t.Errorf("%s pods use room: %v", phase, podNames(s.Nodes[0].Pods))
		}
	}
}

func podElsewhere(t *testing.T) {
	w := newTestCluster(t, nodeOf("node-a", "i-1"), nodeOf("node-b", "i-2"), boundPod("p", "node-a"))
	w.snapshot(t)
	w.remove(t, boundPod("p", "node-a"))
	again := boundPod("p", "node-b", func(p *corev1.Pod) { p.UID = "again" })
	w.create(t, again)
	w.catchUp(t, again)
	s := w.snapshot(t)
	if a, b := podNames(s.Nodes[0].Pods), podNames(s.Nodes[1].Pods); len(a) != 0 || !slices.Equal(b, []string{"p"}) {
		t.Errorf("node-a holds %v, node-b %v", a, b)
	}
}

func subtractedOnce(t *testing.T) {
	leaving := claimOf("leaving", launched("i-1"), func(c *karpv1.NodeClaim) { c.Finalizers = []string{karpv1.FinalizerTermination} })
	w := newTestCluster(t, leaving, claimOf("staying", launched("i-2")))
	cpu := func(when, want string) {
		t.Helper()
		used, err := w.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := used["general"][corev1.ResourceCPU]; got.String() != want {
			t.Errorf("%s: %s cpu in use, want %s", when, got.String(), want)
		}
	}
	cpu("before", "8")
	w.MarkForDeletion(leaving.UID)
	cpu("marked", "4")
	w.Unmark(leaving.UID)
	cpu("unmarked", "8")
	w.MarkForDeletion(leaving.UID)
	w.remove(t, leaving)
	cpu("marked, then deleted", "4")
	w.change(t, leaving, func() { leaving.Finalizers = nil })
	cpu("gone", "4")
}

func comeAndGone(t *testing.T) {
	w := newTestCluster(t)
	c := claimOf("a")
	w.create(t, c)
	w.Created(c)
	wantNodes(t, w.snapshot(t), "a")
	if err := w.live.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s := w.snapshot(t)
	wantNodes(t, s)
	if !w.Primed() {
		t.Error("a claim that came and went leaves the state unsynced")
	}
}

func syncedOnce(t *testing.T) {
	w := newTestCluster(t, claimOf("cached", launched("i-1")))
	w.create(t, claimOf("not-cached"))
	if w.Primed() {
		t.Error("synced before everything is known")
	}
	wantNodes(t, w.snapshot(t), "cached", "not-cached")
	if !w.Primed() {
		t.Error("not synced though everything was read")
	}
	w.create(t, nodeOf("new", "i-7", func(n *corev1.Node) { n.UID = types.UID("new") }))
	w.snapshot(t)
	if !w.Primed() {
		t.Error("a new Node that the cache has not shown yet unsets it")
	}
}
