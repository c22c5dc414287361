package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// requesting sets what a claim was launched for.
func requesting(requests ...string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) { c.Spec.Resources.Requests = enginetest.Resources(requests...) }
}

func priority(p int32) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.Priority = &p } }

// nominated is which pods each claim is for.
func nominated(s *snapshot.Snapshot) map[string][]types.UID {
	out := map[string][]types.UID{}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Claim != "" {
			out[n.Claim] = n.Nominated
		}
	}
	return out
}

// The anti-affinity of a pod keeps others off its node that have none of their own.
func TestAPlaceBesideAPodThatKeepsTheWaitingOneAway(t *testing.T) {
	half := asks("cpu", "500m")
	app := func(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels["app"] = name } }
	antiAffinity := func(change func(*corev1.PodAffinityTerm)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			term := corev1.PodAffinityTerm{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "noisy"}},
			}
			change(&term)
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
			}}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*corev1.PodAffinityTerm)
		waits  string
		gets   bool
	}{
		{"one that it selects", func(*corev1.PodAffinityTerm) {}, "noisy", false},
		{"one that it does not select", func(*corev1.PodAffinityTerm) {}, "other", true},
		{"one of another namespace", func(t *corev1.PodAffinityTerm) { t.Namespaces = []string{"elsewhere"} }, "noisy", true},
		{"one of any namespace", func(t *corev1.PodAffinityTerm) { t.NamespaceSelector = &metav1.LabelSelector{} }, "noisy", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestCluster(t,
				claimOf("late", nominates("uid-quiet,uid-runs")), nodeOf("old", "i-1"), boundPod("runs", "old", half),
				podOf("quiet", half, app("quiet"), antiAffinity(tt.change), unschedulable), podOf("waits", half, app(tt.waits), unschedulable),
			).snapshot(t)
			if got := slices.Contains(nominated(s)["late"], "uid-waits"); got != tt.gets {
				t.Errorf("the claim is for %v", nominated(s)["late"])
			}
		})
	}
}

// A pod that was resized in place since its claim was launched left a place of the old size.
func TestAPlaceOfAPodThatWasResizedSince(t *testing.T) {
	for _, tt := range []struct {
		waits string
		gets  bool
	}{{"4", false}, {"1", true}} {
		s := newTestCluster(t,
			claimOf("late", nominates("uid-runs,uid-stays"), requesting("cpu", "2", "pods", "2")),
			nodeOf("old", "i-1"), boundPod("runs", "old", asks("cpu", "4")),
			podOf("stays", asks("cpu", "1"), unschedulable), podOf("waits", asks("cpu", tt.waits), unschedulable),
		).snapshot(t)
		if got := slices.Contains(nominated(s)["late"], "uid-waits"); got != tt.gets {
			t.Errorf("a pod that requests %s: the claim is for %v", tt.waits, nominated(s)["late"])
		}
	}
}

// While a command has created some of its replacements, its pods still run on the candidates, and will need the replacements.
func TestPlacesInReplacementsAreKeptForPodsOfCandidates(t *testing.T) {
	cpu := asks("cpu", "1")
	c := newTestCluster(t,
		claimOf("candidate", launched("i-1"), registered("old"), initialized), nodeOf("old", "i-1", joinedNode, initializedNode),
		claimOf("first", nominates("uid-moves")), boundPod("moves", "old", cpu), podOf("waits", cpu, unschedulable),
	)
	c.MarkDisrupting("uid-candidate", []string{"first", "second"})
	if got := nominated(c.snapshot(t))["first"]; !slices.Equal(got, []types.UID{"uid-moves"}) {
		t.Errorf("the first replacement is for %v", got)
	}
}

// The pods with the highest priority get places first, as they get nodes first.
func TestPlacesGoToPodsByPriority(t *testing.T) {
	cpu := asks("cpu", "1")
	s := newTestCluster(t,
		claimOf("late", nominates("uid-runs")), nodeOf("old", "i-1"), boundPod("runs", "old", cpu),
		podOf("a", cpu, unschedulable), podOf("z", cpu, unschedulable, priority(1000)),
	).snapshot(t)
	if got := nominated(s)["late"]; !slices.Equal(got, []types.UID{"uid-z"}) {
		t.Errorf("the claim is for %v", got)
	}
}

// Many waiting pods, no two alike, beside many places that none of them fits in, cost seconds at most.
func TestCostOfPlacesThatSuitNobody(t *testing.T) {
	const places, pods = 1000, 30_000
	o := cluster.Objects{Nodes: []*corev1.Node{nodeOf("old", "i-1")}}
	for i := range places {
		name := fmt.Sprintf("runs-%d", i)
		o.NodeClaims = append(o.NodeClaims, claimOf(fmt.Sprintf("late-%d", i), nominates("uid-"+name)))
		o.Pods = append(o.Pods, boundPod(name, "old", asks("cpu", "1")))
	}
	for i := range pods {
		zone := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "z1"} }
		label := func(p *corev1.Pod) { p.Labels["pod-index"] = fmt.Sprint(i) }
		o.Pods = append(o.Pods, podOf(fmt.Sprintf("waits-%d", i), asks("cpu", "1"), zone, label, unschedulable))
	}
	began := time.Now()
	s := cluster.BuildSnapshot(o, cluster.Facts{Now: start})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the snapshot took %v", took)
	}
	if len(s.Pods) != pods {
		t.Errorf("%d pods", len(s.Pods))
	}
}

// smallCluster is a random cluster: ready nodes and claims without instances, pods that wait and pods that run, some of them nominated.
func smallCluster(r *rand.Rand) cluster.Objects {
	var o cluster.Objects
	nodes := 1 + r.IntN(3)
	for i := range nodes {
		name, id := fmt.Sprintf("n%d", i), fmt.Sprintf("i-%d", i)
		o.Nodes = append(o.Nodes, nodeOf(name, id, joinedNode, initializedNode, func(n *corev1.Node) {
			n.Status.Allocatable = enginetest.Resources("cpu", "3", "pods", "10")
		}))
		o.NodeClaims = append(o.NodeClaims, claimOf("c-"+name, launched(id), registered(name), initialized))
	}
	for i := range 1 + r.IntN(4) {
		o.NodeClaims = append(o.NodeClaims, claimOf(fmt.Sprintf("late-%d", i)))
	}
	total := make([]corev1.ResourceList, len(o.NodeClaims))
	for i := range 3 + r.IntN(12) {
		name, cpu := fmt.Sprintf("p%d", i), asks("cpu", fmt.Sprint(1+r.IntN(3)))
		change := []func(*corev1.Pod){cpu}
		if r.IntN(4) == 0 {
			change = append(change, apart("web"))
		}
		if r.IntN(4) == 0 {
			change = append(change, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} })
		}
		pod := podOf(name, append(change, unschedulable)...)
		if r.IntN(2) == 0 {
			pod = boundPod(name, fmt.Sprintf("n%d", r.IntN(nodes)), change...)
		}
		o.Pods = append(o.Pods, pod)
		if r.IntN(3) > 0 {
			at := r.IntN(len(o.NodeClaims))
			c := o.NodeClaims[at]
			list := append(c.Nominated(karpv1.AnnotationNominatedPods), pod.UID)
			nominates(joined(list))(c)
			total[at] = plus(total[at], snapshot.Requests(pod))
			c.Spec.Resources.Requests = total[at]
		}
	}
	return o
}

func joined(list []types.UID) string {
	out := ""
	for i, uid := range list {
		if i > 0 {
			out += ","
		}
		out += string(uid)
	}
	return out
}

func plus(a, b corev1.ResourceList) corev1.ResourceList {
	out := a.DeepCopy()
	if out == nil {
		out = corev1.ResourceList{}
	}
	for name, amount := range b {
		sum := out[name]
		sum.Add(amount)
		out[name] = sum
	}
	return out
}

// Whatever the cluster: no pod gets two claims, no claim loses a pod that waits for it, what it is for fits in what it was
// launched for, and the order of the objects does not matter.
func TestPlacesOfRandomClusters(t *testing.T) {
	moved := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		o := smallCluster(r)
		facts := cluster.Facts{Now: start, NominationWindow: window}
		s := cluster.BuildSnapshot(o, facts)
		shuffled := o
		shuffled.Pods, shuffled.NodeClaims, shuffled.Nodes = slices.Clone(o.Pods), slices.Clone(o.NodeClaims), slices.Clone(o.Nodes)
		r.Shuffle(len(o.Pods), func(i, k int) { shuffled.Pods[i], shuffled.Pods[k] = shuffled.Pods[k], shuffled.Pods[i] })
		slices.Reverse(shuffled.NodeClaims)
		slices.Reverse(shuffled.Nodes)
		if a, b := fmt.Sprint(nominated(s)), fmt.Sprint(nominated(cluster.BuildSnapshot(shuffled, facts))); a != b {
			t.Fatalf("seed %d: %s, in another order %s", seed, a, b)
		}
		moved += checkPlaces(t, seed, o, s)
	}
	if moved < 300 {
		t.Errorf("%d pods got a place: too few for a test", moved)
	}
}

// checkPlaces compares the nominations of a snapshot with those of its claims. It returns how many pods got a place.
func checkPlaces(t *testing.T, seed uint64, o cluster.Objects, s *snapshot.Snapshot) (moved int) {
	t.Helper()
	pods, places := map[types.UID]*corev1.Pod{}, map[types.UID]int{}
	for _, pod := range o.Pods {
		pods[pod.UID] = pod
	}
	after := nominated(s)
	for _, c := range o.NodeClaims {
		before := c.Nominated(karpv1.AnnotationNominatedPods)
		runElsewhere := 0 // those that are left of them
		for _, uid := range before {
			if pods[uid].Spec.NodeName != "" && !slices.Contains(after[c.Name], uid) {
				runElsewhere++
			}
		}
		if len(after[c.Name]) > len(before) || len(before)-len(after[c.Name]) > runElsewhere {
			t.Fatalf("seed %d: claim %s was for %v and is for %v", seed, c.Name, before, after[c.Name])
		}
		for _, uid := range before {
			if pods[uid].Spec.NodeName == "" && !slices.Contains(after[c.Name], uid) {
				t.Fatalf("seed %d: claim %s is no longer for %s, which waits for it", seed, c.Name, uid)
			}
		}
		var sum corev1.ResourceList
		for _, uid := range after[c.Name] {
			places[uid]++
			sum = plus(sum, snapshot.Requests(pods[uid]))
			if !slices.Contains(before, uid) {
				moved++
				if pods[uid].Spec.NodeName != "" {
					t.Fatalf("seed %d: %s got a place and has a node", seed, uid)
				}
			}
		}
		if launch := c.Spec.Resources.Requests; sum != nil && !within(sum, launch) {
			t.Fatalf("seed %d: claim %s requests %v and is for %v", seed, c.Name, launch, sum)
		}
	}
	for uid, n := range places {
		if pods[uid].Spec.NodeName == "" && n > 1 && !heldByReady(o, uid) {
			t.Fatalf("seed %d: %d claims are for %s", seed, n, uid)
		}
	}
	return moved
}

func within(sum, room corev1.ResourceList) bool {
	for name, amount := range sum {
		if amount.Cmp(room[name]) > 0 {
			return false
		}
	}
	return true
}

// heldByReady reports whether the pod was nominated to a ready node: once others have taken its room there, it gets another.
func heldByReady(o cluster.Objects, uid types.UID) bool {
	return slices.ContainsFunc(o.NodeClaims, func(c *karpv1.NodeClaim) bool {
		return c.Status.NodeName != "" && slices.Contains(c.Nominated(karpv1.AnnotationNominatedPods), uid)
	})
}
