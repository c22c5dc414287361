package shadow

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	et "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// cluster is a cluster. The test plays its acting controller.
type cluster struct {
	t      *testing.T
	ledger *Ledger
	now    time.Time
	nodes  []snapshot.Node
	pods   []*corev1.Pod // pending
}

func newCluster(t *testing.T, nodes ...snapshot.Node) *cluster {
	t.Helper()
	c := &cluster{t: t, ledger: newLedger(), now: et.Now(), nodes: nodes}
	c.pass(0)
	return c
}

func newLedger() *Ledger {
	return NewLedger(consolidate.Settings{MaxSteps: consolidate.DefaultMaxSteps}, "test")
}

// pass lets time pass, and has the shadow look once.
func (c *cluster) pass(after time.Duration) Report {
	c.t.Helper()
	c.now = c.now.Add(after)
	onDemand := et.Require(et.Capacity, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand)
	s := et.World([]snapshot.Pool{et.Pool("general", et.Types(), openBudget, onDemand)}, c.pods...)
	s.Now, s.Nodes = c.now, append([]snapshot.Node{}, c.nodes...)
	c.ledger.Pass(s, map[types.UID]string{})
	return c.ledger.Report()
}

func openBudget(pool *karpv1.NodePool) {
	pool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmptyOrUnderutilized
}

// launches is the acting controller's launch of a node, in flight.
func (c *cluster) launches(name string, price float64) {
	c.nodes = append(c.nodes, et.Node(name, "general", func(n *snapshot.Node) {
		n.Initialized, n.Registered, n.Ready, n.Consolidatable = false, false, false, false
		n.CreatedAt, n.Price = c.now.Add(time.Millisecond), price
	}))
}

// binds has the last node initialized, and all pending pods bound to it.
func (c *cluster) binds() {
	n := &c.nodes[len(c.nodes)-1]
	n.Initialized, n.Registered, n.Ready = true, true, true
	for _, p := range c.pods {
		n.Pods = append(n.Pods, et.Bound(p, n.Name))
	}
	c.pods = nil
}

func (c *cluster) want(r Report, what string, got, want float64) {
	c.t.Helper()
	if math.Abs(got-want) > 1e-9 {
		c.t.Fatalf("%s is %v, want %v; report %+v", what, got, want, r)
	}
}

// However often pods are planned that nobody launches a node for, the launch counts once; and the node that the acting controller
// launches for them replaces it.
func TestALaunchCountsOnce(t *testing.T) {
	c := newCluster(t)
	c.pods = et.Pods(2, "web", et.Requests("cpu", "900m"))
	for range 3 {
		r := c.pass(5 * time.Second)
		c.want(r, "launches", float64(r.Shadow.Launches), 1)
		c.want(r, "the shadow's fleet", r.Shadow.HourlyCost, 0.1)
		c.want(r, "the acting fleet", r.Acting.HourlyCost, 0)
	}
	c.launches("big", 0.4)
	for range 2 {
		r := c.pass(5 * time.Second)
		c.want(r, "launches", float64(r.Shadow.Launches), 1)
		c.want(r, "launches of the other", float64(r.Acting.Launches), 1)
		c.want(r, "the shadow's fleet", r.Shadow.HourlyCost, 0.1)
		c.want(r, "the acting fleet", r.Acting.HourlyCost, 0.4)
	}
	c.pods = append(c.pods, et.Pods(1, "more", et.Requests("cpu", "900m"))...)
	r := c.pass(5 * time.Second)
	c.want(r, "launches for pods that came later", float64(r.Shadow.Launches), 2)
	c.binds()
	r = c.pass(5 * time.Second)
	c.want(r, "launches in the end", float64(r.Shadow.Launches), 2)
	c.want(r, "the shadow's fleet in the end", r.Shadow.HourlyCost, 0.4)
}

// A node that is not worth its price is removed once, after it was so for 15 s, with its pods; the other's removal of it is the same
// node.
func TestARemovalCountsOnce(t *testing.T) {
	half := et.Node("half", "general", func(n *snapshot.Node) {
		n.Pods = []*corev1.Pod{et.Bound(et.Pod("a", et.Requests("cpu", "1")), "half")}
	})
	other := et.Node("other", "general", func(n *snapshot.Node) {
		n.Pods = []*corev1.Pod{et.Bound(et.Pod("b", et.Requests("cpu", "2500m")), "other")}
	})
	c := newCluster(t, half, other)
	r := c.pass(10 * time.Second)
	c.want(r, "removals before 15 s", float64(r.Shadow.Removed), 0)
	for range 40 { // until long after the removal would be complete
		r = c.pass(5 * time.Second)
		c.want(r, "removals", float64(r.Shadow.Removed), 1)
		c.want(r, "evictions", float64(r.Shadow.Evictions), 1)
		c.want(r, "the shadow's fleet", r.Shadow.HourlyCost, 0.2)
		c.want(r, "removals of the other", float64(r.Acting.Removed), 0)
	}
	if len(r.Decisions) != 1 || r.Decisions[0].Reason != "Underutilized" {
		t.Errorf("the decisions are %+v", r.Decisions)
	}
	gone := 0
	if r.Decisions[0].Nodes[0] == "other" {
		gone = 1
	}
	c.nodes[gone].Deleting = true
	r = c.pass(5 * time.Second)
	c.want(r, "removals of the other", float64(r.Acting.Removed), 1)
	c.want(r, "evictions of the other", float64(r.Acting.Evictions), 1)
	c.want(r, "removals by both", float64(r.RemovedByBoth), 1)
	c.nodes = append(c.nodes[:gone], c.nodes[gone+1:]...)
	r = c.pass(5 * time.Second)
	c.want(r, "removals of the other when the node is gone", float64(r.Acting.Removed), 1)
	c.want(r, "the acting fleet", r.Acting.HourlyCost, 0.2)
	if r.Shadow.TotalCost >= r.Acting.TotalCost {
		t.Errorf("the shadow spent $%v, the other $%v", r.Shadow.TotalCost, r.Acting.TotalCost)
	}
}

// An acting controller that is as quick takes the node before the shadow has validated its command: both have removed it.
func TestTheOtherIsAsQuick(t *testing.T) {
	c := newCluster(t, et.Node("empty", "general"))
	c.nodes[0].Taints = []corev1.Taint{karpv1.TaintDisrupted()}
	r := c.pass(5 * time.Second)
	c.want(r, "removals", float64(r.Shadow.Removed), 1)
	c.want(r, "removals of the other", float64(r.Acting.Removed), 1)
	c.want(r, "removals by both", float64(r.RemovedByBoth), 1)
}

// A node of a type without a price is one that was launched and removed, too.
func TestANodeWithoutAPriceCounts(t *testing.T) {
	c := newCluster(t)
	c.launches("strange", 0)
	c.nodes[0].Labels = map[string]string{corev1.LabelInstanceTypeStable: "x.strange"}
	r := c.pass(5 * time.Second)
	c.want(r, "launches of the other, in flight", float64(r.Acting.Launches), 0)
	c.binds()
	for range 2 {
		r = c.pass(5 * time.Second)
		c.want(r, "launches of the other", float64(r.Acting.Launches), 1)
	}
	c.nodes = nil
	r = c.pass(5 * time.Second)
	c.want(r, "removals of the other", float64(r.Acting.Removed), 1)
	c.want(r, "what they cost", r.Acting.RemovedHourlyCost, 0)
}

// A controller that begins to remove a node, and keeps it after all, has removed none; Dovetail would have.
func TestTheOtherKeepsTheNodeAfterAll(t *testing.T) {
	c := newCluster(t, et.Node("empty", "general"))
	for range 2 {
		c.nodes[0].Taints = []corev1.Taint{karpv1.TaintDisrupted()}
		r := c.pass(5 * time.Second)
		c.want(r, "removals of the other", float64(r.Acting.Removed), 1)
		c.want(r, "removals by both", float64(r.RemovedByBoth), 1)
		c.nodes[0].Taints = nil
		for range 10 {
			r = c.pass(5 * time.Second)
			c.want(r, "removals of the other that keeps it", float64(r.Acting.Removed), 0)
			c.want(r, "what they cost", r.Acting.RemovedHourlyCost, 0)
			c.want(r, "removals by both", float64(r.RemovedByBoth), 0)
			c.want(r, "removals", float64(r.Shadow.Removed), 1)
			c.want(r, "actions of the other", float64(len(r.Actions)), 0)
		}
	}
	c.nodes = nil
	r := c.pass(5 * time.Second)
	c.want(r, "removals of the other", float64(r.Acting.Removed), 1)
	c.want(r, "removals by both", float64(r.RemovedByBoth), 1)
	c.want(r, "removals", float64(r.Shadow.Removed), 1)
}

// A process that is killed and started again goes on: nothing counts twice, and what happened in between counts.
func TestRestart(t *testing.T) {
	c := newCluster(t, et.Node("empty", "general"))
	c.pods = et.Pods(1, "web", et.Requests("cpu", "3500m"), et.Needs(et.Expr(et.Zone, corev1.NodeSelectorOpIn, "z2")))
	c.pass(5 * time.Second)
	before := c.pass(15 * time.Second)
	if before.Shadow.Launches != 1 || before.Shadow.Removed != 1 {
		t.Fatalf("the shadow would have launched and removed %+v", before.Shadow)
	}
	store := ConfigMap{Client: fake.NewClientset().CoreV1().ConfigMaps("karpenter")}
	if err := store.Save(t.Context(), c.ledger); err != nil {
		t.Fatal(err)
	}
	c.ledger = newLedger()
	if err := store.Load(t.Context(), c.ledger); err != nil {
		t.Fatal(err)
	}
	c.launches("big", 0.4)
	r := c.pass(5 * time.Second)
	c.want(r, "launches", float64(r.Shadow.Launches), 1)
	c.want(r, "removals", float64(r.Shadow.Removed), 1)
	c.want(r, "launches of the other", float64(r.Acting.Launches), 1)
	if !r.Since.Equal(before.Since) || r.Passes != before.Passes+1 {
		t.Errorf("since %v after %d passes, before %v after %d", r.Since, r.Passes, before.Since, before.Passes)
	}
}

// The first process finds no ConfigMap, and a ConfigMap of something else is not overwritten.
func TestLoad(t *testing.T) {
	client := fake.NewClientset()
	store := ConfigMap{Client: client.CoreV1().ConfigMaps("karpenter")}
	if err := store.Load(t.Context(), newLedger()); err != nil {
		t.Errorf("without a ConfigMap: %v", err)
	}
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, Namespace: "karpenter"}}
	if _, err := client.CoreV1().ConfigMaps("karpenter").Create(context.Background(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := store.Load(t.Context(), newLedger()); err == nil || !strings.Contains(err.Error(), "delete the ConfigMap") {
		t.Errorf("the error %v does not say what to do", err)
	}
}

func TestText(t *testing.T) {
	at := et.Now()
	r := Report{
		Since: at.Add(-time.Hour), At: at, Passes: 720, RemovedByBoth: 1, Unschedulable: 2,
		Shadow: Totals{Launches: 3, LaunchedHourlyCost: 0.3, Removed: 2, RemovedHourlyCost: 0.4, Evictions: 5, Nodes: 4, HourlyCost: 1.25, TotalCost: 1.3},
		Acting: Totals{Launches: 4, LaunchedHourlyCost: 0.5, Removed: 1, RemovedHourlyCost: 0.2, Evictions: 2, Nodes: 5, HourlyCost: 1.5, TotalCost: 1.6},
		Decisions: []Action{{
			At: at, What: ActionReplace, Reason: "Underutilized", Nodes: []string{"a", "b"}, Pods: 5, HourlySavings: 0.15,
			Launches: []Launch{{InstanceType: "m.large", CapacityType: "spot", Zone: "z1", HourlyCost: 0.05}},
		}},
	}
	var out strings.Builder
	if err := r.Text(&out); err != nil {
		t.Fatal(err)
	}
	want := `Since 2026-08-21T11:00:00Z (1h0m0s, 720 passes), until 2026-08-21T12:00:00Z.
Prices: those of the controller in shadow mode, in $.

                  DOVETAIL      ACTING
launched nodes           3           4
  $/h                0.300       0.500
removed nodes            2           1
  $/h                0.400       0.200
evicted pods             5           2
nodes now                4           5
  $/h                1.250       1.500
spent, $              1.30        1.60

Both removed 1 of these nodes.

2 pending pods fit on no node, existing or new. See dovetail explain pod.

Dovetail would have:
  Aug 21 12:00:00  replaced a, b by m.large spot in z1 (Underutilized, 5 pods, -0.150 $/h)
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}
