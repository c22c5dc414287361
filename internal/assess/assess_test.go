package assess_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// list is a catalog of fixed types.
type list []*catalog.InstanceType

func (l list) Types(*awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) { return l, nil }

// fragmented is a cluster of on-demand nodes that are used to 31 %.
func fragmented(tb testing.TB, nodes int) *inspect.View {
	tb.Helper()
	return fragmentedOf(tb, nodes, karpv1.CapacityTypeOnDemand)
}

// fragmentedOf is the same of nodes of a capacity type.
func fragmentedOf(tb testing.TB, nodes int, capacityType string) *inspect.View {
	tb.Helper()
	types, err := workload.EC2Types("us-east-1", capacityType)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := workload.RunningCluster(nodes, 0.31, 1, types)
	if err != nil {
		tb.Fatal(err)
	}
	yes := true
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].Pods {
			for k := range p.OwnerReferences {
				p.OwnerReferences[k].Controller = &yes // as the controllers of Kubernetes do
			}
		}
	}
	return view(s, types)
}

func view(s *snapshot.Snapshot, types list) *inspect.View {
	return &inspect.View{ClusterState: &manifest.ClusterState{Now: s.Now}, Snapshot: s, Catalog: types, Prices: "a test"}
}

func assessed(tb testing.TB, v *inspect.View) *assess.Report {
	tb.Helper()
	return assess.Assess(v, assess.DefaultSettings())
}

// The outcomes are in order: the fewer rules, the cheaper; and no plan beats the lower bound. The budget is all nodes, as consolidation
// does not exceed the bound by more than a tenth only if it may change as many nodes at once as it likes: see TestBudgetsCost.
func TestOutcomes(t *testing.T) {
	v := fragmented(t, 60)
	v.Snapshot.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	r := assessed(t, v)
	done, free, repacked, bound := r.Outcome(assess.Consolidated), r.Outcome(assess.Unguarded), r.Outcome(assess.Repacked),
		r.Outcome(assess.LowerBound)
	if r.Now.Nodes != 60 || r.Now.HourlyCost <= 0 || len(r.Now.Unpriced) > 0 {
		t.Errorf("the fleet has %d nodes for $%.2f/h, %d without a price", r.Now.Nodes, r.Now.HourlyCost, len(r.Now.Unpriced))
	}
	if done.HourlyCost > 0.6*r.Now.HourlyCost || done.Cut {
		t.Errorf("consolidation of a fleet that is used to 31 %% ends at $%.2f/h of $%.2f/h", done.HourlyCost, r.Now.HourlyCost)
	}
	for _, o := range []assess.Outcome{done, free, repacked} {
		if o.HourlyCost < bound.HourlyCost-1e-9 {
			t.Errorf("%s costs $%.4f/h, less than the bound of $%.4f/h", o.Name, o.HourlyCost, bound.HourlyCost)
		}
		if o.HourlyCost > 1.1*bound.HourlyCost {
			t.Errorf("%s costs $%.4f/h, more than 1.1 x the bound of $%.4f/h", o.Name, o.HourlyCost, bound.HourlyCost)
		}
	}
}

// With a small budget, consolidation finishes where no set of so few nodes saves anything, and larger sets would. That is what budgets
// cost, and all that keeps consolidation from finishing where it finishes without protections.
func TestBudgetsCost(t *testing.T) {
	var costs []float64
	for _, nodes := range []string{"10%", "40%", "100%"} {
		v := fragmented(t, 60)
		v.Snapshot.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: nodes}}
		r := assessed(t, v)
		done, free := r.Outcome(assess.Consolidated), r.Outcome(assess.Unguarded)
		costs = append(costs, done.HourlyCost)
		if nodes == "100%" {
			if len(r.Guards) > 0 {
				t.Errorf("a budget of all nodes costs something: %+v", r.Guards)
			}
			continue
		}
		if len(r.Guards) != 1 || math.Abs(r.Guards[0].HourlyCost-(done.HourlyCost-free.HourlyCost)) > 1e-9 || done.Cut {
			t.Errorf("a budget of %s costs %+v, and consolidation ends at $%.4f/h instead of $%.4f/h (cut: %v)", nodes, r.Guards,
				done.HourlyCost, free.HourlyCost, done.Cut)
		}
	}
	if costs[0] <= costs[1] || costs[1] <= costs[2] {
		t.Errorf("with budgets of 10 %%, 40 %% and 100 %%, consolidation ends at $%.4f/h", costs)
	}
}

// A search that finishes early reports it, in every format.
func TestBoundedSearch(t *testing.T) {
	settings := assess.DefaultSettings()
	settings.Steps, settings.FreeSteps, settings.RuleSteps = 200_000, 200_000, 1
	r := assess.Assess(fragmented(t, 60), settings)
	if !r.Outcome(assess.Consolidated).Cut || len(r.Search.UnmeasuredRules) == 0 {
		t.Errorf("the search is not said to have ended early: %+v, %+v", r.Outcomes, r.Search)
	}
	for name, print := range map[string]func(io.Writer) error{"text": r.Text, "page": r.HTML} {
		var b bytes.Buffer
		if err := print(&b); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(text, "stopped at this bound; more can be saved.") ||
			!strings.Contains(text, "not measured, since the others took") {
			t.Errorf("the %s does not say that the search ended early", name)
		}
	}
}

// What protections cost is measured from the cluster as it is, not as consolidation within them leaves it.
func TestOutcomesBeginWithTheClusterNow(t *testing.T) {
	v := fragmented(t, 20)
	v.Snapshot.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	r := assessed(t, v)
	done, free := r.Outcome(assess.Consolidated), r.Outcome(assess.Unguarded)
	if done.Moves == 0 || free.Moves != done.Moves || free.Evictions != done.Evictions || free.HourlyCost != done.HourlyCost {
		t.Errorf("without any protection the two outcomes differ: %+v and %+v", done, free)
	}
}

// The savings of the moves add up to what the outcome saves, and budgets hold in each pass.
func TestMovesAddUp(t *testing.T) {
	v := fragmented(t, 60)
	v.Snapshot.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "5"}}
	r := assessed(t, v)
	saved, evicted, nodes := 0.0, 0, r.Now.Nodes
	perPass := map[int]int{}
	for _, m := range r.Moves {
		saved += m.HourlySavings
		evicted += m.Evictions
		nodes += len(m.Launched) - len(m.Removed)
		perPass[m.Pass] += len(m.Removed)
	}
	done := r.Outcome(assess.Consolidated)
	if math.Abs(saved-done.HourlySavings) > 1e-6 || evicted != done.Evictions || nodes != done.Nodes || len(r.Moves) != done.Moves {
		t.Errorf("%d moves save $%.4f/h with %d evictions to %d nodes; the outcome is %+v", len(r.Moves), saved, evicted, nodes, done)
	}
	for pass, n := range perPass {
		if n > 5 {
			t.Errorf("pass %d removes %d nodes, and the budget is 5", pass, n)
		}
	}
}

// Protections that block every node have the whole saving as their cost, and name the objects.
// Of a fleet of spot nodes, the headline names the feature gate with which they may replace each other, and what it saves; unasked.
func TestTheGateForSpotIsNamed(t *testing.T) {
	v := fragmentedOf(t, 12, karpv1.CapacityTypeSpot)
	r := assessed(t, v)
	if r.Gate == nil || r.Gate.Name != "SpotToSpotConsolidation" {
		t.Fatalf("gate %+v", r.Gate)
	}
	headline := strings.Join(r.Headline(), "\n")
	want := "the feature gate SpotToSpotConsolidation: " + assess.PerMonth(r.Gate.MonthlySavings) + " a month"
	if !strings.Contains(headline, want) {
		t.Errorf("%q is not in:\n%s", want, headline)
	}
	settings := assess.DefaultSettings()
	settings.Consolidation.SpotToSpot = true
	on := assess.Assess(v, settings)
	done := on.Outcome(assess.Consolidated)
	if on.Gate != nil || done.HourlyCost > 1.05*r.Gate.HourlyCost || r.Gate.HourlyCost > 1.05*done.HourlyCost {
		t.Errorf("with the gate the fleet costs $%.3f/h, predicted were $%.3f/h; gate %+v", done.HourlyCost, r.Gate.HourlyCost, on.Gate)
	}
	if r := assessed(t, fragmented(t, 12)); r.Gate != nil {
		t.Errorf("a fleet without spot nodes has gate %+v", r.Gate)
	}
}

func TestGuards(t *testing.T) {
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "everything", Namespace: "default"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	}
	protect := func(s *snapshot.Snapshot) {
		for i := range s.Nodes {
			for _, p := range s.Nodes[i].Pods {
				p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
			}
		}
	}
	for _, c := range []struct {
		name  string
		guard func(*snapshot.Snapshot)
		want  string
	}{
		{
			"PodDisruptionBudgets", func(s *snapshot.Snapshot) { s.PDBs = []*policyv1.PodDisruptionBudget{pdb} },
			"PodDisruptionBudget default/everything",
		},
		{"do-not-disrupt", protect, "ReplicaSet default/"},
		{"disruption budgets", func(s *snapshot.Snapshot) {
			s.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
		}, "NodePool general"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := fragmented(t, 20)
			c.guard(v.Snapshot)
			r := assessed(t, v)
			if len(r.Moves) > 0 {
				t.Errorf("%d moves although everything is blocked", len(r.Moves))
			}
			if len(r.Guards) != 1 || r.Guards[0].Name != c.name || r.Guards[0].Nodes == 0 || len(r.Guards[0].Objects) == 0 ||
				!strings.HasPrefix(r.Guards[0].Objects[0].Object, c.want) {
				t.Fatalf("the protections are %+v, want those of %s", r.Guards, c.want)
			}
			saves := r.Outcome(assess.Unguarded).HourlySavings - r.Outcome(assess.Consolidated).HourlySavings
			if r.Guards[0].HourlyCost < 0.9*saves {
				t.Errorf("it costs $%.4f/h, and without it $%.4f/h more is saved", r.Guards[0].HourlyCost, saves)
			}
		})
	}
}

// A consolidation policy that spares nodes with pods has the whole saving as its cost, and the answer states that there is one.
func TestConsolidationPolicyCosts(t *testing.T) {
	for setting, change := range map[string]func(*karpv1.Disruption){
		"consolidationPolicy: WhenEmpty": func(d *karpv1.Disruption) { d.ConsolidationPolicy = karpv1.ConsolidationWhenEmpty },
		"consolidateAfter: Never":        func(d *karpv1.Disruption) { d.ConsolidateAfter = karpv1.Never() },
	} {
		t.Run(setting, func(t *testing.T) {
			v := fragmented(t, 20)
			pool := v.Snapshot.Pools[0].NodePool
			change(&pool.Spec.Disruption)
			r := assessed(t, v)
			free := r.Outcome(assess.Unguarded)
			if len(r.Moves) > 0 || free.HourlySavings < 0.3*r.Now.HourlyCost {
				t.Errorf("%d moves; without protections $%.4f/h of $%.4f/h is saved", len(r.Moves), free.HourlySavings, r.Now.HourlyCost)
			}
			if len(r.Guards) == 0 || r.Guards[0].Name != "consolidation policies" || r.Guards[0].Nodes != 20 ||
				r.Guards[0].Objects[0].Object != "NodePool "+pool.Name+": "+setting || r.Guards[0].HourlyCost < 0.9*free.HourlySavings {
				t.Errorf("the protections are %+v", r.Guards)
			}
			if text := strings.Join(r.Headline(), " "); !strings.Contains(text, "nothing to save within the protections") {
				t.Errorf("the answer is %q", text)
			}
		})
	}
}

// asGroups makes all nodes those of a node group.
func asGroups(s *snapshot.Snapshot) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Claim, n.ClaimUID, n.Pool = "", "", ""
		n.Labels = maps.Clone(n.Labels)
		delete(n.Labels, karpv1.LabelNodePool)
		n.Labels["eks.amazonaws.com/nodegroup"] = "workers"
	}
}

// Of a cluster of node groups, the report claims no saving and shows how to find one; NodePools and --node-groups show it.
func TestNodeGroups(t *testing.T) {
	v := fragmented(t, 20)
	asGroups(v.Snapshot)
	r := assessed(t, v)
	var b bytes.Buffer
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	if len(r.Moves) > 0 || r.Consolidatable != 0 || r.Outcome(assess.Repacked).HourlySavings != 0 ||
		strings.Contains(b.String(), "Lower bound") || !strings.Contains(b.String(), "--node-groups") {
		t.Errorf("%d moves, %d consolidatable nodes:\n%s", len(r.Moves), r.Consolidatable, b.String())
	}
	settings := assess.DefaultSettings()
	settings.NodeGroups = true
	r = assess.Assess(v, settings)
	repacked, bound := r.Outcome(assess.Repacked), r.Outcome(assess.LowerBound)
	if repacked.HourlyCost > 0.6*r.Now.HourlyCost || repacked.HourlyCost < bound.HourlyCost-1e-9 || len(r.Moves) > 0 {
		t.Errorf("new nodes for the pods of node groups cost $%.4f/h of $%.4f/h, the bound is $%.4f/h", repacked.HourlyCost,
			r.Now.HourlyCost, bound.HourlyCost)
	}
	if text := strings.Join(r.Headline(), " "); !strings.Contains(text, "On nodes of its NodePools, the same pods would cost") {
		t.Errorf("the answer is %q", text)
	}
}

// Nodes without a known price count as nothing in all outcomes: they are not replaced by nodes that cost something.
func TestUnpricedNodesStay(t *testing.T) {
	v := fragmented(t, 20)
	for i := range v.Snapshot.Nodes {
		n := &v.Snapshot.Nodes[i]
		n.Labels = maps.Clone(n.Labels)
		n.Labels[corev1.LabelInstanceTypeStable], n.Price = "z9.mystery", 0
	}
	r := assessed(t, v)
	for _, o := range r.Outcomes {
		if o.HourlyCost != 0 || o.HourlySavings != 0 {
			t.Errorf("%s costs $%.4f/h, $%.4f/h less than nodes that count as nothing", o.Name, o.HourlyCost, o.HourlySavings)
		}
	}
	if text := strings.Join(r.Headline(), " "); len(r.Now.Unpriced) != 20 || !strings.Contains(text, "The price of 20 nodes is not known") {
		t.Errorf("%d nodes without a price; the answer is %q", len(r.Now.Unpriced), text)
	}
}

// What is being deleted already is not a saving of consolidation.
func TestDeletedNodesSaveNothing(t *testing.T) {
	v := fragmented(t, 20)
	deleted := 0.0
	for i := range v.Snapshot.Nodes[:10] {
		n := &v.Snapshot.Nodes[i]
		n.Deleting, n.Pods = true, nil
		deleted += n.Price
	}
	v.Snapshot.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0"}}
	r := assessed(t, v)
	if r.Pending.DeletedNodes != 10 || r.Pending.DeletedHourlyCost <= 0 {
		t.Errorf("%d nodes for $%.4f/h are being deleted, want 10 for $%.4f/h", r.Pending.DeletedNodes, r.Pending.DeletedHourlyCost, deleted)
	}
	if done := r.Outcome(assess.Consolidated); len(r.Moves) > 0 || math.Abs(done.HourlySavings) > 1e-9 || done.Nodes != 10 {
		t.Errorf("%d moves save $%.4f/h and leave %d nodes, although nothing may be disrupted", len(r.Moves), done.HourlySavings, done.Nodes)
	}
	var b bytes.Buffer
	if err := r.Text(&b); err != nil || !strings.Contains(b.String(), "Without nodes that are being deleted") {
		t.Errorf("the text does not show what is being deleted (%v):\n%s", err, b.String())
	}
}

// A budget that is closed now and opens at night does not keep nodes: consolidation waits for it.
func TestWaitsForWindow(t *testing.T) {
	v := fragmented(t, 20)
	day, hours := "0 0 * * *", metav1.Duration{Duration: 20 * 3600 * 1e9}
	v.Snapshot.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "0", Schedule: &day, Duration: &hours}}
	r := assessed(t, v)
	if len(r.Moves) == 0 || r.Outcome(assess.Consolidated).HourlySavings <= 0 {
		t.Error("nothing is saved although the budget opens every night")
	}
}

// What an anti-affinity costs is named with its workload.
func TestRules(t *testing.T) {
	v := fragmented(t, 20)
	for i := range v.Snapshot.Nodes {
		for k := range 2 {
			p := enginetest.Pod(fmt.Sprintf("web-%d-%d", i, k), enginetest.Labeled("app", "web"), enginetest.Requests("cpu", "100m"),
				enginetest.OwnedBy("apps/v1", "ReplicaSet"), enginetest.Apart(enginetest.Host, "web"))
			if k == 0 {
				v.Snapshot.Nodes[i].Pods = append(v.Snapshot.Nodes[i].Pods, enginetest.Bound(p, v.Snapshot.Nodes[i].Name))
			}
		}
	}
	r := assessed(t, v)
	if at := slices.IndexFunc(r.Rules, func(x assess.Rule) bool { return x.Rule == "host rules" }); at < 0 || r.Rules[at].MonthlyCost <= 0 {
		t.Errorf("the anti-affinity of 20 pods is not among what constraints cost: %+v", r.Rules)
	}
}

// Nodes of node groups count, are named, and stay; those without a price are named, and count as nothing.
func TestNodesWithoutNodePool(t *testing.T) {
	v := fragmented(t, 10)
	first := v.Snapshot.Nodes[0]
	for i, labels := range []map[string]string{
		{
			"eks.amazonaws.com/nodegroup": "system", corev1.LabelInstanceTypeStable: first.Labels[corev1.LabelInstanceTypeStable],
			corev1.LabelTopologyZone: first.Labels[corev1.LabelTopologyZone], "eks.amazonaws.com/capacityType": "ON_DEMAND",
		},
		{corev1.LabelInstanceTypeStable: "z9.mystery", corev1.LabelTopologyZone: "us-east-1a"},
		nil,
	} {
		v.Snapshot.Nodes = append(v.Snapshot.Nodes, snapshot.Node{
			Name: fmt.Sprintf("group-%d", i), Labels: labels, Launched: true, Registered: true, Initialized: true, Ready: true,
		})
	}
	r := assessed(t, v)
	at := slices.IndexFunc(r.Now.ByPool, func(p assess.Part) bool { return p.Name == "system" })
	if at < 0 || r.Now.ByPool[at].Managed || r.Now.ByPool[at].HourlyCost <= 0 {
		t.Errorf("the node group is not shown with its price: %+v", r.Now.ByPool)
	}
	if len(r.Now.Unpriced) != 2 || r.Now.Nodes != 13 {
		t.Errorf("%d nodes, without a price %+v", r.Now.Nodes, r.Now.Unpriced)
	}
	for _, m := range r.Moves {
		for _, n := range m.Removed {
			if strings.HasPrefix(n.Name, "group-") {
				t.Errorf("the node %s of a node group is removed", n.Name)
			}
		}
	}
}

// Equal clusters give equal reports, in every format.
func TestDeterministic(t *testing.T) {
	print := func() string {
		r := assessed(t, fragmented(t, 30))
		var b bytes.Buffer
		for _, to := range []func() error{
			func() error { return r.JSON(&b) }, func() error { return r.WideText(&b) },
			func() error { return r.HTML(&b) },
		} {
			if err := to(); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	if first, second := print(), print(); first != second {
		t.Error("two reports of one cluster differ")
	}
}

// An empty cluster has a report, too, and its lists are not null.
func TestEmptyCluster(t *testing.T) {
	v := fragmented(t, 1)
	v.Snapshot.Nodes = nil
	r := assessed(t, v)
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "null") || !json.Valid(b.Bytes()) {
		t.Errorf("a list is null:\n%s", b.String())
	}
	b.Reset()
	if err := r.Text(&b); err != nil || !strings.HasPrefix(b.String(), "This cluster has no nodes") {
		t.Errorf("the report begins with %.80q (%v)", b.String(), err)
	}
	if err := r.HTML(&b); err != nil {
		t.Error(err)
	}
}

// The text form fits 80 columns.
func TestTextFits(t *testing.T) {
	var b bytes.Buffer
	if err := assessed(t, fragmented(t, 30)).Text(&b); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	t.Log("\n" + b.String())
}

// Whatever names a cluster has, the page has no script, no markup of theirs, and makes no request.
func TestHostileNames(t *testing.T) {
	const evil = `"><script src=//evil></script><img src=x onerror=alert(1)>&'` + "\x1b[31m\u202e"
	v := fragmented(t, 4)
	v.Notes = []string{evil}
	v.Prices = evil
	pool := v.Snapshot.Pools[0].NodePool
	for i := range v.Snapshot.Nodes {
		n := &v.Snapshot.Nodes[i]
		n.Name += evil
		for _, p := range n.Pods {
			p.Name, p.Annotations = p.Name+evil, map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
			for k := range p.OwnerReferences {
				p.OwnerReferences[k].Name, p.OwnerReferences[k].Kind = evil, evil
			}
		}
	}
	v.Snapshot.Nodes = append(v.Snapshot.Nodes, snapshot.Node{
		Name: evil, Launched: true, Labels: map[string]string{
			corev1.LabelInstanceTypeStable: evil, corev1.LabelTopologyZone: evil, karpv1.LabelCapacityType: evil,
			"eks.amazonaws.com/nodegroup": evil,
		},
	})
	pool.Name += evil
	r := assessed(t, v)
	r.Cluster = evil
	var b bytes.Buffer
	if err := r.HTML(&b); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"<script", "<img", "javascript:", "http://", "https://", "src=x o", "\x1b", "\u202e", "url(", "@import",
		`"">`,
	} {
		if strings.Contains(strings.ReplaceAll(b.String(),
			"&#34;&gt;&lt;script src=//evil&gt;&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;", ""), bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	b.Reset()
	if err := r.WideText(&b); err != nil || strings.ContainsAny(b.String(), "\x1b\u202e") {
		t.Errorf("the text has control characters (%v)", err)
	}
}
