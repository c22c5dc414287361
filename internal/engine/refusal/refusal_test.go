package refusal_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/refusal"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

var start = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// pod waits for a core.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web", "pod-template-hash": "1"},
	}}
	p.Spec.Containers = []corev1.Container{{Image: "web:1", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	}}}
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/1 nodes are available: 1 node(s) had volume node affinity conflict.",
	}}
	for _, f := range change {
		f(p)
	}
	return p
}

// node was created at one second, came up ten seconds later, and has settled 20 s after that.
func node(claim string, second int, pods ...*corev1.Pod) snapshot.Node {
	var names, classes []string
	for _, p := range pods {
		names, classes = append(names, string(p.UID)), append(classes, refusal.ClassOf(p))
	}
	return snapshot.Node{
		Name: "node-" + claim, Claim: claim, Pool: "general", CreatedAt: at(second), Initialized: true, SettledAt: at(second + 30),
		LaunchedFor: strings.Join(names, ","), PodClasses: strings.Join(classes, ","),
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("10")},
	}
}

func TestOutcomesOfNodes(t *testing.T) {
	web := pod("web-a")
	bound := func(p *corev1.Pod) { p.Spec.NodeName = "node-c1" }
	other := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }
	young := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(at(11)) }
	daemon := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent"}}
	}
	for _, tt := range []struct {
		name       string
		second     int
		relaunched bool
		pending    *corev1.Pod
		edit       func(*snapshot.Node)
		want       string // empty for no finding
	}{
		{"a plan has another node for the pod, and kube-scheduler has had a minute", 95, true, web, nil, "refused shop/web-a SchedulerRefuses"},
		{"kube-scheduler may not have tried the pod", 31, true, web, nil, "undecided shop/web-a"},
		{
			"kube-scheduler has not reported on the pod", 200, true, pod("web-a", func(p *corev1.Pod) { p.Status.Conditions = nil }), nil,
			"undecided shop/web-a",
		},
		{"the node shows a taint, and a plan has another node", 31, true, web, func(n *snapshot.Node) {
			n.Taints = []corev1.Taint{{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}}
		}, "refused shop/web-a NodeTainted"},
		{"the node is not Ready for a moment", 31, true, web, func(n *snapshot.Node) {
			n.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
		}, "undecided shop/web-a"},
		{"it has one before the node has settled", 20, true, web, nil, "undecided shop/web-a"},
		{"the pod may still be bound", 60, false, web, nil, "undecided shop/web-a"},
		{"the pod suits the node by the plan, and is not bound for long", 95, false, web, nil, "refused shop/web-a SchedulerRefuses"},
		{
			"the Node is initialized, and its claim does not say so yet", 95, true, web,
			func(n *snapshot.Node) { n.SettledAt = time.Time{} }, "undecided shop/web-a",
		},
		{"the node is not initialized", 95, true, web, func(n *snapshot.Node) { n.Initialized = false }, ""},
		{"the node goes before it has settled", 20, true, web, func(n *snapshot.Node) { n.Deleting = true }, ""},
		{"the node expires, and takes long to go", 200, true, web, func(n *snapshot.Node) { n.Deleting = true }, ""},
		{"the node is being replaced", 95, true, web, func(n *snapshot.Node) { n.Disrupting = true }, ""},
		{"the node is removed since it is empty", 31, true, web, func(n *snapshot.Node) {
			n.Deleting, n.Emptied = true, true
		}, "refused shop/web-a SchedulerRefuses"},
		{"a node with a taint goes", 31, false, web, func(n *snapshot.Node) {
			n.Deleting = true
			n.Taints = []corev1.Taint{{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}}
		}, "refused shop/web-a NodeTainted"},
		{"another pod took the place", 20, true, web, func(n *snapshot.Node) {
			n.TakenFrom = []types.UID{"web-a"}
			n.Pods = []*corev1.Pod{pod("other", bound, other, young)}
		}, "taken shop/web-a OtherPodsFirst"},
		{"a pod that waited before the node was launched took the place", 95, true, web, func(n *snapshot.Node) {
			n.TakenFrom = []types.UID{"web-a"}
			n.Pods = []*corev1.Pod{pod("other", bound, other)}
		}, ""},
		{"a pod took the place that a node was launched for", 95, true, web, func(n *snapshot.Node) {
			n.TakenFrom = []types.UID{"web-a"}
			n.Pods = []*corev1.Pod{pod("other", bound, other, young)}
			n.LaunchedFor += ",other"
		}, ""},
		{"an equal pod took the place", 95, true, web, func(n *snapshot.Node) { n.Pods = []*corev1.Pod{pod("web-b", bound)} }, ""},
		{"the node has a taint", 95, true, web, func(n *snapshot.Node) {
			n.Taints = []corev1.Taint{{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}}
		}, "refused shop/web-a NodeTainted"},
		{
			"the node lacks a label", 95, true, pod("web-a", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"tier": "gold"} }), nil,
			"refused shop/web-a NodeLabelsDiffer",
		},
		{"kubelet has less than the catalog says, which no waiting changes", 12, true, web, func(n *snapshot.Node) {
			n.Allocatable[corev1.ResourceCPU], n.TooSmallFor = resource.MustParse("900m"), []types.UID{"web-a"}
		}, "refused shop/web-a NodeTooSmall"},
		{"pods of a DaemonSet take more than planned", 12, true, web, func(n *snapshot.Node) {
			n.TooSmallFor = []types.UID{"web-a"}
			n.Pods = []*corev1.Pod{pod("agent", bound, daemon, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1500m")
			})}
		}, "refused shop/web-a NodeTooSmall"},
		{"the owner has made the pod again", 95, true, pod("web-z"), nil, "refused shop/web-z SchedulerRefuses"},
		{"the owner has made the pod again, and the node is young", 20, true, pod("web-z"), nil, "undecided shop/web-z"},
		{
			"the owner has made the pod again, and one came to the node before", 95, true, pod("web-z"),
			func(n *snapshot.Node) { n.PodCame = true }, "",
		},
		{"a pod of another kind", 95, true, pod("other", other), nil, ""},
		{"an edited pod", 95, true, pod("web-a", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}), func(n *snapshot.Node) { n.LaunchedFor = "" }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := node("c1", 0, pod("web-a"))
			if tt.pending.UID == "web-a" && tt.edit == nil {
				n = node("c1", 0, tt.pending)
			}
			if tt.edit != nil {
				tt.edit(&n)
			}
			s := &snapshot.Snapshot{Now: at(tt.second), Nodes: []snapshot.Node{n}, Pods: []*corev1.Pod{tt.pending}}
			search := &refusal.Search{Snapshot: s, Classes: refusal.Classes{}, Pods: s.Pods, Relaunched: tt.relaunched}
			got := ""
			for _, f := range search.Find() {
				name := map[refusal.Outcome]string{refusal.Refused: "refused", refusal.Taken: "taken", refusal.Undecided: "undecided"}[f.Outcome]
				got += strings.TrimSpace(fmt.Sprintf("%s %s %s", name, f.PodName(), f.Cause))
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// world launches a node for the pod whenever it may, and each node refuses it.
type world struct {
	histories map[string]*refusal.History
	snap      *snapshot.Snapshot
	launches  []int // seconds
}

func newWorld(pods ...*corev1.Pod) *world {
	h := &refusal.History{}
	h.ResetIfChanged(refusal.Cause{Pool: 1}, false, start)
	return &world{histories: map[string]*refusal.History{"general": h}, snap: &snapshot.Snapshot{Pods: pods}}
}

// run lets so many seconds pass.
func (w *world) run(from, to int) {
	for second := from; second < to; second++ {
		w.snap.Now = at(second)
		search := &refusal.Search{Snapshot: w.snap, Classes: refusal.Classes{}, Pods: w.snap.Pods, Relaunched: true}
		found := search.Find()
		w.histories["general"].Add(found, w.snap.Now, refusal.FirstPause)
		judge := refusal.NewJudge(w.histories, w.snap)
		for _, p := range w.snap.Pods {
			undecided := false
			for _, f := range found {
				undecided = undecided || f.Outcome == refusal.Undecided && f.Class == refusal.ClassOf(p)
			}
			if v := judge.Of(refusal.ClassOf(p)); !undecided && (v.State == refusal.Free || v.State == refusal.Due) && !w.inFlight(second) {
				w.launches = append(w.launches, second)
				w.snap.Nodes = append(w.snap.Nodes, node(fmt.Sprint("c", len(w.launches)), second, p))
				break
			}
		}
	}
}

func (w *world) inFlight(second int) bool {
	n := len(w.launches)
	return n > 0 && second < w.launches[n-1]+10
}

func TestAPodThatEachNodeRefusesGetsThreeNodesWithGrowingPauses(t *testing.T) {
	w := newWorld(pod("web-a"))
	w.run(0, 6*3600)
	if len(w.launches) != refusal.MaxNodes {
		t.Fatalf("nodes are launched at %v, want %d", w.launches, refusal.MaxNodes)
	}
	first, second := w.launches[1]-w.launches[0], w.launches[2]-w.launches[1]
	if first != 120 || second != 150 { // a node takes 30 s to settle, kube-scheduler has a minute; the pauses are 30 s and 60 s
		t.Errorf("pauses of %d s and %d s, want 120 and 150", first, second)
	}
	v := refusal.NewJudge(w.histories, w.snap).Of(refusal.ClassOf(w.snap.Pods[0]))
	if v.State != refusal.Held || !strings.Contains(v.Message(), "kubectl annotate nodepool general dovetail.sh/refused-pods-") {
		t.Errorf("state %v: %s", v.State, v.Message())
	}
}

// The nodes are gone, the pods have other names: what was learned is not lost.
func TestNodesThatAreGoneAndPodsWithNewNamesCount(t *testing.T) {
	w := newWorld(pod("web-a"))
	for round := range 30 {
		w.run(round*600, (round+1)*600)
		w.snap.Nodes, w.snap.Pods = nil, []*corev1.Pod{pod(fmt.Sprint("web-", round))}
	}
	if len(w.launches) != refusal.MaxNodes {
		t.Errorf("nodes are launched at %v, want %d", w.launches, refusal.MaxNodes)
	}
}

func TestEqualPodsCountTogether(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 100 {
		pods = append(pods, pod(fmt.Sprint("web-", i)))
	}
	w := newWorld(pods...)
	w.run(0, 3600)
	if len(w.launches) != refusal.MaxNodes {
		t.Errorf("%d nodes for 100 equal pods, want %d", len(w.launches), refusal.MaxNodes)
	}
}

// One fault of a pool's nodes concerns pods of many owners: three nodes an hour are tried for all of them.
func TestPodsOfManyOwnersShareThePoolsNodes(t *testing.T) {
	var pods []*corev1.Pod
	first := snapshot.Snapshot{}
	for i := range 20 {
		p := pod(fmt.Sprint("web-", i), func(p *corev1.Pod) { p.Labels["app"] = fmt.Sprint("app-", i) })
		pods = append(pods, p)
	}
	first.Nodes = []snapshot.Node{node("c0", 0, pods...)}
	w := newWorld(pods...)
	w.snap.Nodes = first.Nodes
	w.run(31, 600)
	if len(w.launches) != refusal.MaxNodes-1 {
		t.Errorf("nodes are launched at %v after the first, want %d", w.launches, refusal.MaxNodes-1)
	}
}

func TestUnaffectedPodsAreNeverSlowed(t *testing.T) {
	w := newWorld(pod("web-a"))
	w.run(0, 600)
	other := pod("db", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "db"} })
	if v := refusal.NewJudge(w.histories, w.snap).Of(refusal.ClassOf(other)); v.State != refusal.Free {
		t.Errorf("state %v: %s", v.State, v.Message())
	}
}

func TestWhatBeginsAfresh(t *testing.T) {
	refused := pod("web-a")
	class := refusal.ClassOf(refused)
	for _, tt := range []struct {
		name   string
		change func(*world)
		class  string
		want   refusal.State
	}{
		{"nothing", func(*world) {}, class, refusal.Held},
		{"an edit of the pool", func(w *world) {
			w.histories["general"].ResetIfChanged(refusal.Cause{Pool: 2}, false, w.snap.Now)
		}, class, refusal.Free},
		{"another image", func(w *world) {
			w.histories["general"].ResetIfChanged(refusal.Cause{Pool: 1, Images: "ami-2"}, false, w.snap.Now)
		}, class, refusal.Free},
		{"a person removes the history", func(w *world) {
			h := &refusal.History{}
			h.ResetIfChanged(refusal.Cause{Pool: 1}, true, w.snap.Now)
			w.histories["general"] = h
		}, class, refusal.Free},
		{"a pod of another template", func(*world) {}, refusal.ClassOf(pod("web-b", func(p *corev1.Pod) {
			p.Labels["pod-template-hash"] = "2"
		})), refusal.Free},
		{"a pod that came to its node after all", func(w *world) {
			bound := pod("web-b", func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{
					Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.snap.Now),
				}}
			})
			w.snap.Nodes[0].Pods = []*corev1.Pod{bound}
			w.histories["general"].Add(refusal.FindAccepted(w.snap, w.histories, refusal.Classes{}), w.snap.Now, refusal.FirstPause)
		}, class, refusal.Due},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(refused)
			w.run(0, 600)
			tt.change(w)
			if v := refusal.NewJudge(w.histories, w.snap).Of(tt.class); v.State != tt.want {
				t.Errorf("state %v, want %v: %s", v.State, tt.want, v.Message())
			}
			// Nodes that were refused before do not count again.
			search := &refusal.Search{Snapshot: w.snap, Classes: refusal.Classes{}, Pods: w.snap.Pods, Relaunched: true}
			w.histories["general"].Add(search.Find(), w.snap.Now.Add(time.Second), refusal.FirstPause)
			if v := refusal.NewJudge(w.histories, w.snap).Of(tt.class); v.State != tt.want {
				t.Errorf("after another pass: state %v, want %v: %s", v.State, tt.want, v.Message())
			}
		})
	}
}

// bind binds a pod to the n-th node, from 1, in place of one that is done.
func (w *world) bind(n, second int) {
	node, taken := &w.snap.Nodes[n-1], w.snap.Pods[0]
	taken.Spec.NodeName = node.Name
	taken.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(second)),
	}}
	node.Pods = []*corev1.Pod{taken}
	w.snap.Pods = append(w.snap.Pods[1:], pod(fmt.Sprint("web-", second)))
}

// Nodes take one pod each, or none, as soon as they are up. Other pods stay pending.
func TestNodesThatTakeAPodNowAndThen(t *testing.T) {
	const hour = 3600
	for _, tt := range []struct {
		name string
		// takes reports whether the n-th node, from 1, takes a pod; every so many seconds, the first one takes another one.
		takes func(n int) bool
		again int
		// vain counts how many nodes are launched in vain in any ten minutes at most; launches how many in total, at least, in an hour.
		vain, launches int
	}{
		{"never", func(int) bool { return false }, 0, 3, 3},
		{"always: anti-affinity or a host port admits one pod per node", func(int) bool { return true }, 0, 0, 300},
		{"one node takes a pod every minute, the others take none", func(n int) bool { return n == 1 }, 60, 3, 12},
		{"one node takes a pod every 20 s, the others take none", func(n int) bool { return n == 1 }, 20, 3, 12},
		{"every second node", func(n int) bool { return n%2 == 0 }, 0, 3, 12},
		{"every third node", func(n int) bool { return n%3 == 0 }, 0, 3, 12},
		{"every fourth node", func(n int) bool { return n%4 == 0 }, 0, 3, 3},
		{"the second, and then never", func(n int) bool { return n == 2 }, 0, 3, 5},
		{"one did not, then always", func(n int) bool { return n > 1 }, 0, 1, 250},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(pod("web-a"), pod("web-b"), pod("web-c"))
			for second := range hour {
				w.run(second, second+1)
				n := len(w.launches)
				if n > 0 && tt.takes(n) && second == w.launches[n-1]+10 {
					w.bind(n, second)
				}
				if tt.again > 0 && second%tt.again == tt.again-1 {
					w.bind(1, second)
				}
				w.histories["general"].Add(refusal.FindAccepted(w.snap, w.histories, refusal.Classes{}), at(second), refusal.FirstPause)
			}
			if len(w.launches) < tt.launches {
				t.Errorf("%d nodes are launched, want at least %d", len(w.launches), tt.launches)
			}
			for i, from := range w.launches {
				vain := 0
				for k := i; k < len(w.launches) && w.launches[k] < from+600; k++ {
					if !tt.takes(k + 1) {
						vain++
					}
				}
				if vain > tt.vain {
					t.Fatalf("%d nodes are launched in vain within ten minutes, want at most %d: all at %v", vain, tt.vain, w.launches)
				}
			}
		})
	}
}

func TestAPlaceThatOthersTookIsNoRefusal(t *testing.T) {
	h, p := &refusal.History{}, pod("web-a")
	h.ResetIfChanged(refusal.Cause{Pool: 1}, false, start)
	class := refusal.ClassOf(p)
	state := func() refusal.State {
		return refusal.NewJudge(map[string]*refusal.History{"general": h}, &snapshot.Snapshot{Now: at(100)}).Of(class).State
	}
	for i := range refusal.MaxNodes {
		found := refusal.Finding{Outcome: refusal.Taken, Class: class, Claim: fmt.Sprint("c", i), Pool: "general", Created: at(i), Pod: p}
		h.Add([]refusal.Finding{found, found}, at(100), refusal.FirstPause)
		if state() != refusal.Free {
			t.Fatalf("after %d places that others took, no node is launched", i+1)
		}
	}
	h.Add([]refusal.Finding{{Outcome: refusal.Taken, Class: class, Claim: "c9", Pool: "general", Created: at(50), Pod: p}}, at(100), refusal.FirstPause)
	if state() != refusal.Waiting {
		t.Error("nodes whose place others take are launched without a pause for ever")
	}
}

func TestHistorySurvivesARestartAndStaysSmall(t *testing.T) {
	h := &refusal.History{}
	h.ResetIfChanged(refusal.Cause{Pool: 1}, false, start)
	for i := range 5000 {
		p := pod(fmt.Sprint("web-", i), func(p *corev1.Pod) {
			p.Labels["app"] = fmt.Sprint("app-", i)
			p.Status.Conditions[0].Message = strings.Repeat("x", 5000)
		})
		n := node(fmt.Sprint("c", i), i, p)
		s := &snapshot.Snapshot{Now: at(i + 90), Nodes: []snapshot.Node{n}, Pods: []*corev1.Pod{p}}
		h.Add((&refusal.Search{Snapshot: s, Classes: refusal.Classes{}, Pods: s.Pods, Relaunched: true}).Find(), s.Now, refusal.FirstPause)
	}
	pool := &karpv1.NodePool{}
	if changed, err := h.Write(pool); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if size := len(pool.Annotations[karpv1.AnnotationRefusedPods]); size > 200<<10 {
		t.Errorf("the annotation has %d bytes", size)
	}
	read := refusal.Read(pool)
	if changed, err := read.Write(pool); err != nil || changed {
		t.Errorf("what was read differs from what was written: %v", err)
	}
	read.Expire(at(100_000 + 5000))
	if len(read.Classes) > 0 {
		t.Errorf("%d records are kept forever", len(read.Classes))
	}
	pool.Annotations[karpv1.AnnotationRefusedPods] = `{"classes":{"a":null}`
	if !refusal.Read(pool).Empty() {
		t.Error("what cannot be read is no history")
	}
}

func TestClasses(t *testing.T) {
	same := func(change func(*corev1.Pod)) bool {
		return refusal.ClassOf(pod("a")) == refusal.ClassOf(pod("b", change))
	}
	for name, change := range map[string]func(*corev1.Pod){
		"another Job": func(p *corev1.Pod) { p.Labels["batch.kubernetes.io/job-name"] = "backup-2" },
		"another ordinal": func(p *corev1.Pod) {
			p.Labels["statefulset.kubernetes.io/pod-name"] = "b"
			p.Labels["apps.kubernetes.io/pod-index"] = "1"
		},
		"another owner":        func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "x", UID: "x"}} },
		"the zone of its node": func(p *corev1.Pod) { p.Labels[corev1.LabelTopologyZone] = "us-east-1a" },
	} {
		if !same(change) {
			t.Errorf("%s makes another class", name)
		}
	}
	for name, change := range map[string]func(*corev1.Pod){
		"a revision":   func(p *corev1.Pod) { p.Labels["pod-template-hash"] = "2" },
		"an image":     func(p *corev1.Pod) { p.Spec.Containers[0].Image = "web:2" },
		"a toleration": func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a"}} },
		"a namespace":  func(p *corev1.Pod) { p.Namespace = "other" },
	} {
		if same(change) {
			t.Errorf("%s makes no other class", name)
		}
	}
}

func TestTheTaintIsNamedWithItsRemedy(t *testing.T) {
	p := pod("web-a")
	n := node("c1", 0, p)
	n.Taints = []corev1.Taint{{Key: "node.cilium.io/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}}
	s := &snapshot.Snapshot{Now: at(95), Nodes: []snapshot.Node{n}, Pods: []*corev1.Pod{p}}
	found := (&refusal.Search{Snapshot: s, Classes: refusal.Classes{}, Pods: s.Pods, Relaunched: true}).Find()
	if len(found) != 1 {
		t.Fatalf("%d findings", len(found))
	}
	for _, part := range []string{
		"node node-c1 has taint node.cilium.io/agent-not-ready:NoSchedule", "Cilium", "no startupTaint of NodePool general declares",
		"add it to spec.template.spec.startupTaints", "0/1 nodes are available",
	} {
		if !strings.Contains(found[0].Why, part) {
			t.Errorf("the message lacks %q: %s", part, found[0].Why)
		}
	}
}

func TestWhatTheNodeLacksIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pod   func(*corev1.Pod)
		node  func(*snapshot.Node)
		cause refusal.Kind
		why   string
	}{
		{
			"a feature of the kubelet", func(p *corev1.Pod) {
				p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
			}, func(*snapshot.Node) {}, refusal.LacksFeature,
			`the kubelet of node node-c1 does not declare feature "RestartAllContainersOnContainerExits", which the pod needs`,
		},
		{"a CSI driver", claims, func(*snapshot.Node) {}, refusal.LacksDriver, `CSI driver "ebs.csi.aws.com" is not installed on node node-c1`},
		{"nothing", claims, func(n *snapshot.Node) { n.CSIDrivers = []string{"ebs.csi.aws.com"} }, refusal.OnlySchedulers, "0/1 nodes are available"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pod("web-a")
			tt.pod(p)
			n := node("c1", 0, p)
			tt.node(&n)
			class := "gp3"
			s := &snapshot.Snapshot{Now: at(95), Nodes: []snapshot.Node{n}, Pods: []*corev1.Pod{p}}
			s.Volumes = snapshot.Volumes{
				MustBeInstalled: map[string]bool{"ebs.csi.aws.com": true},
				StorageClasses:  map[string]*storagev1.StorageClass{class: {ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "ebs.csi.aws.com"}},
				Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{{Namespace: p.Namespace, Name: "data"}: {
					ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "data"},
					Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
				}},
			}
			found := (&refusal.Search{Snapshot: s, Classes: refusal.Classes{}, Pods: s.Pods, Relaunched: true}).Find()
			if len(found) != 1 || found[0].Cause != tt.cause || !strings.Contains(found[0].Why, tt.why) {
				t.Errorf("got %+v, want cause %s and %q", found, tt.cause, tt.why)
			}
		})
	}
}

// claims gives the pod a volume of the claim data.
func claims(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
	}}}
}
