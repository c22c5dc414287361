package quarantine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// podOf returns a pod of an owner that requests so much.
func podOf(name, owner, cpu string) *corev1.Pod {
	controls := true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
	if owner != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: owner, UID: types.UID(owner), Controller: &controls}}
	}
	pod.Spec.Containers = []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}},
	}
	return pod
}

// manyPods are n pods that wait, each of an owner of its own.
func manyPods(n int) *snapshot.Snapshot {
	s := &snapshot.Snapshot{}
	for i := range n {
		s.Pods = append(s.Pods, podOf(fmt.Sprintf("pod-%d", i), fmt.Sprintf("owner-%d", i), "1"))
	}
	return s
}

func owners(set Set) []string {
	var out []string
	for u := range set {
		out = append(out, string(u.Owner))
	}
	slices.Sort(out)
	return out
}

// Anyone who is poisonous alone is left out, nobody else; of those that are only together, one of each pair. It takes few
// plans.
func TestSearchFindsTheCulprits(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 1))
	for round := range 300 {
		n := 1 + random.IntN(400)
		s := manyPods(n)
		alone, pairs := map[types.UID]bool{}, [][2]types.UID{}
		pick := func() types.UID { return types.UID(fmt.Sprintf("owner-%d", random.IntN(n))) }
		for range random.IntN(4) {
			alone[pick()] = true
		}
		for range random.IntN(3) {
			if a, b := pick(), pick(); a != b && !alone[a] && !alone[b] {
				pairs = append(pairs, [2]types.UID{a, b})
			}
		}
		poisonous := func(s *snapshot.Snapshot) bool {
			there := map[types.UID]bool{}
			for _, pod := range s.Pods {
				there[ownerOf(pod)] = true
			}
			return slices.ContainsFunc(slices.Collect(maps.Keys(alone)), func(uid types.UID) bool { return there[uid] }) ||
				slices.ContainsFunc(pairs, func(p [2]types.UID) bool { return there[p[0]] && there[p[1]] })
		}
		if !poisonous(s) {
			continue
		}
		unitIndex, tests := NewUnits(), 0
		got := FindCause(s, nil, unitIndex, func(out Set) bool {
			tests++
			return !poisonous(Without(s, out, unitIndex))
		})
		if !got.Found || len(got.Unproven) > 0 || poisonous(Without(s, got.All(), unitIndex)) {
			t.Fatalf("round %d: found %v, %d unproven; the plan without %v fails", round, got.Found, len(got.Unproven), owners(got.All()))
		}
		if len(got.Proven) > len(alone)+len(pairs) {
			t.Errorf("round %d: left out %v, want %v and one of each of %v", round, owners(got.Proven), alone, pairs)
		}
		for u := range got.Proven {
			inPair := slices.ContainsFunc(pairs, func(p [2]types.UID) bool { return p[0] == u.Owner || p[1] == u.Owner })
			if !alone[u.Owner] && !inPair {
				t.Errorf("round %d: left out %s, which does no harm", round, u.Owner)
			}
		}
		if tests > 2*MaxPlans+2 {
			t.Errorf("round %d: %d plans", round, tests)
		}
	}
}

// However many are poisonous, the search finishes; whom it did not get to is left out for this pass only.
func TestSearchEndsWithManyCulprits(t *testing.T) {
	s, unitIndex, tests := manyPods(5000), NewUnits(), 0
	got := FindCause(s, nil, unitIndex, func(out Set) bool {
		tests++
		left := Without(s, out, unitIndex).Pods
		return len(left) == 0 || len(left) == 1 && left[0].Name == "pod-0"
	})
	if !got.Found || len(got.Unproven) == 0 || tests > 2*MaxPlans+2 {
		t.Errorf("found %v after %d plans, %d proven, %d unproven", got.Found, tests, len(got.Proven), len(got.Unproven))
	}
	if all := got.All(); all[unitIndex.Unit(s.Pods[0])] || len(all) != 4999 {
		t.Errorf("%d units left out, want all but that of pod-0", len(all))
	}
}

// One among thousands is found with about twice the logarithm of plans.
func TestOneCulpritAmongThousands(t *testing.T) {
	s, unitIndex, tests := manyPods(4096), NewUnits(), 0
	got := FindCause(s, nil, unitIndex, func(out Set) bool {
		tests++
		return !slices.ContainsFunc(Without(s, out, unitIndex).Pods, func(p *corev1.Pod) bool { return p.Name == "pod-1234" })
	})
	if diff := cmp.Diff([]string{"owner-1234"}, owners(got.Proven)); diff != "" || tests > 26 {
		t.Errorf("%d plans, left out (-want +got):\n%s", tests, diff)
	}
}

// A DaemonSet weighs on all plans: it is left out, not every pod that waits.
func TestDaemonSetIsTheCulprit(t *testing.T) {
	s := manyPods(50)
	s.DaemonSets = []snapshot.DaemonSet{
		{Namespace: "kube-system", Name: "agent", Pod: podOf("agent", "", "1")},
		{Namespace: "kube-system", Name: "huge", Pod: podOf("huge", "", "9E")},
	}
	unitIndex := NewUnits()
	got := FindCause(s, nil, unitIndex, func(out Set) bool {
		w := Without(s, out, unitIndex)
		return len(w.Pods) == 0 || !slices.ContainsFunc(w.DaemonSets, func(d snapshot.DaemonSet) bool { return d.Name == "huge" })
	})
	if diff := cmp.Diff([]string{"daemonset/kube-system/huge"}, owners(got.All())); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
}

// Where planning fails without any pod, nobody is blamed.
func TestNoCulpritForAFailureOfTheCluster(t *testing.T) {
	s, tests := manyPods(100), 0
	got := FindCause(s, nil, NewUnits(), func(Set) bool { tests++; return false })
	if got.Found || tests > 2*MaxPlans {
		t.Errorf("found %v after %d plans", got.Found, tests)
	}
}

// A node that holds a pod which is left out takes no others, and nobody disrupts it.
func TestNodeWithAQuarantinedPodIsUnplannable(t *testing.T) {
	bad, good := podOf("bad", "bad", "1"), podOf("good", "good", "1")
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	s := &snapshot.Snapshot{
		Nodes: []snapshot.Node{
			{Name: "a", Pods: []*corev1.Pod{bad, good}, Allocatable: room},
			{Name: "b", Pods: []*corev1.Pod{good}, Allocatable: room},
		},
	}
	unitIndex := NewUnits()
	got := Without(s, Set{unitIndex.Unit(bad): true}, unitIndex)
	if n := got.Nodes[0]; n.Unplannable == "" || len(n.Pods) != 1 || !n.Allocatable.Cpu().IsZero() {
		t.Errorf("node a %+v", n)
	}
	if n := got.Nodes[1]; n.Unplannable != "" || n.Allocatable.Cpu().Value() != 8 {
		t.Errorf("node b %+v", n)
	}
	if s.Nodes[0].Unplannable != "" || len(s.Nodes[0].Pods) != 2 || s.Nodes[0].Allocatable.Cpu().Value() != 8 {
		t.Error("the snapshot itself has changed")
	}
}

// A pod is left out for a minute, then for longer each time; one that was edited is tried at once.
func TestQuarantineExpiresAndEditedPodsArePlannedAtOnce(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	b := NewRegistry(func() time.Time { return now })
	bad := podOf("bad", "set", "1")
	s := &snapshot.Snapshot{Pods: []*corev1.Pod{bad, podOf("good", "other", "1")}}
	out := func(s *snapshot.Snapshot) []string {
		set, _ := b.Excluded(s, NewUnits(), Provisioning)
		return owners(set)
	}
	unit := Set{NewUnits().Unit(bad): true}
	for _, pause := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		b.Add(Provisioning, unit, "it panics")
		now = now.Add(pause - time.Second)
		if diff := cmp.Diff([]string{"set"}, out(s)); diff != "" {
			t.Fatalf("just before %v have passed (-want +got):\n%s", pause, diff)
		}
		if got := out(&snapshot.Snapshot{Pods: []*corev1.Pod{podOf("bad", "set", "2")}}); got != nil {
			t.Fatalf("the edited pod is left out: %v", got)
		}
		now = now.Add(2 * time.Second)
		if got := out(s); got != nil {
			t.Fatalf("after %v: %v", pause, got)
		}
	}
	if set, _ := b.Excluded(s, NewUnits(), Disruption); len(set) > 0 {
		t.Errorf("left out of another pass: %v", set)
	}
}

// Those that were left out before are suspected first: the search is over at once.
func TestKnownCulpritIsFoundAtOnce(t *testing.T) {
	s, unitIndex, tests := manyPods(4096), NewUnits(), 0
	got := FindCause(s, Set{unitIndex.Unit(s.Pods[77]): true}, unitIndex, func(out Set) bool {
		tests++
		return !slices.ContainsFunc(Without(s, out, unitIndex).Pods, func(p *corev1.Pod) bool { return p.Name == "pod-77" })
	})
	if diff := cmp.Diff([]string{"owner-77"}, owners(got.Proven)); diff != "" || tests > 2 {
		t.Errorf("%d plans, left out (-want +got):\n%s", tests, diff)
	}
}
