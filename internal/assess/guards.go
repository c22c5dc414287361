package assess

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/parallel"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const labelPool = karpv1.LabelNodePool

// isInstanceLabel reports whether a label describes instance types of EC2: karpenter.k8s.aws/instance-family and so on.
func isInstanceLabel(key string) bool { return strings.HasPrefix(key, awsv1.Group+"/instance-") }

// maxObjects limits how many objects of a guard are named: as many as a reader can change in one go.
const maxObjects = 10

// guardNames are the words of the report.
var guardNames = map[guard]string{
	guardBudgets: "disruption budgets", guardPDBs: "PodDisruptionBudgets", guardDoNotDisrupt: "do-not-disrupt",
	guardPolicies: "consolidation policies",
}

// guards measures what each protection costs: how much less the nodes cost in the end without it. PodDisruptionBudgets, do-not-disrupt
// and consolidation policies are measured while nothing else holds consolidation back, so two protections of one node have no cost of
// their own: without either of them, the other holds it. Disruption budgets are measured while the others hold, from where consolidation
// finishes with them: what larger sets of nodes would save there.
//
// Cost: that of consolidateFully for each protection that some node has, and for disruption budgets.
func (a *assessment) guards(begin *future, guarded, unguarded *endState) []Guard {
	out := []Guard{}
	least, _ := cost(unguarded.Snapshot, a.prices)
	blocked := a.blocked(begin)
	held := parallel.Begin(func() *endState { return a.withoutBudgets(guarded, blocked, unguarded) })
	for _, g := range objectGuards {
		objects := blocked[g]
		if objects.nodes == 0 {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(allGuards), func(x guard) bool { return x == g })
		with := a.consolidateFully(begin.without(others...), a.settings.FreeSteps)
		hourly, _ := cost(with.Snapshot, a.prices)
		out = append(out, newGuard(g, hourly-least, objects))
		out[len(out)-1].Cut = with.cut || unguarded.cut
	}
	free := held.Wait()
	now, _ := cost(guarded.Snapshot, a.prices)
	then, _ := cost(free.Snapshot, a.prices)
	if closed := closedPools(guarded.future, a.prices); closed.nodes > 0 || now-then >= leastCost {
		out = append(out, newGuard(guardBudgets, now-then, closed))
		out[len(out)-1].Cut = guarded.cut || free.cut
	}
	slices.SortStableFunc(out, func(x, y Guard) int { return cmp.Compare(y.HourlyCost, x.HourlyCost) })
	return out
}

// withoutBudgets returns where consolidation finishes without disruption budgets: where it finishes without any protection if no node has
// another.
func (a *assessment) withoutBudgets(guarded *endState, blocked map[guard]*blockers, unguarded *endState) *endState {
	if !slices.ContainsFunc(objectGuards, func(g guard) bool { return blocked[g].nodes > 0 }) {
		return unguarded
	}
	out := a.consolidateFully(guarded.without(guardBudgets), a.settings.FreeSteps)
	return &out
}

func newGuard(g guard, hourly float64, o *blockers) Guard {
	hourly = max(0, hourly)
	return Guard{Name: guardNames[g], HourlyCost: hourly, MonthlyCost: monthly(hourly), Nodes: o.nodes, Objects: o.sorted()}
}

// blockers are objects that block nodes.
type blockers struct {
	nodes   int
	objects map[string]*GuardObject
}

func (b *blockers) add(price float64, objects []string) {
	b.nodes++
	for _, name := range objects {
		o := b.objects[name]
		if o == nil {
			o = &GuardObject{Object: name}
			b.objects[name] = o
		}
		o.Nodes++
		o.HourlyCost += price
	}
}

// sorted returns the objects that block the most expensive nodes.
func (b *blockers) sorted() []GuardObject {
	out := make([]GuardObject, 0, len(b.objects))
	for _, o := range b.objects {
		out = append(out, *o)
	}
	slices.SortFunc(out, func(x, y GuardObject) int {
		return cmp.Or(cmp.Compare(y.HourlyCost, x.HourlyCost), cmp.Compare(x.Object, y.Object))
	})
	return out[:min(len(out), maxObjects)]
}

// blocked returns, by guard, the objects that block nodes from disruption.
func (a *assessment) blocked(f *future) map[guard]*blockers {
	out := map[guard]*blockers{}
	for _, g := range objectGuards {
		out[g] = &blockers{objects: map[string]*GuardObject{}}
	}
	budgets := map[string][]snapshot.Budget{}
	for _, b := range snapshot.Budgets(f.PDBs) {
		budgets[b.Namespace] = append(budgets[b.Namespace], b)
	}
	settings := map[string]string{}
	for i := range f.Pools {
		settings[f.Pools[i].NodePool.Name] = heldBack(&f.Pools[i].NodePool.Spec.Disruption)
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if n.Claim == "" {
			continue
		}
		price, _ := a.prices.of(n)
		if setting := settings[n.Pool]; setting != "" {
			out[guardPolicies].add(price, []string{"NodePool " + n.Pool + ": " + setting})
		}
		if objects := protectors(n, f.Snapshot); len(objects) > 0 {
			out[guardDoNotDisrupt].add(price, objects)
		}
		if objects := blockingPDBs(n, budgets, f.Snapshot); len(objects) > 0 {
			out[guardPDBs].add(price, objects)
		}
	}
	return out
}

// protectors are the node or the workloads with do-not-disrupt.
func protectors(n *snapshot.Node, s *snapshot.Snapshot) []string {
	if n.Annotations[karpv1.AnnotationDoNotDisrupt] == "true" {
		return []string{"Node " + n.Name}
	}
	var out []string
	for _, p := range n.Pods {
		if !snapshot.Disruptable(p, s.Now) {
			out = append(out, workload(p))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// blockingPDBs are the PodDisruptionBudgets that keep pods of a node from being evicted.
func blockingPDBs(n *snapshot.Node, budgets map[string][]snapshot.Budget, s *snapshot.Snapshot) []string {
	var out []string
	for _, p := range n.Pods {
		if !snapshot.Evictable(p, s.Now) {
			continue
		}
		selecting := selectingPDBs(p, budgets[p.Namespace])
		if len(selecting) == 1 && !selecting[0].Blocks(p) {
			continue
		}
		for _, b := range selecting { // the eviction API refuses a pod with several
			out = append(out, "PodDisruptionBudget "+b.Namespace+"/"+b.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func selectingPDBs(p *corev1.Pod, budgets []snapshot.Budget) (out []snapshot.Budget) {
	for _, b := range budgets {
		if b.Selects(p) {
			out = append(out, b)
		}
	}
	return out
}

// closedPools are the NodePools of which a budget allows nothing in the end, with their nodes.
func closedPools(f *future, prices *priceList) *blockers {
	out := &blockers{objects: map[string]*GuardObject{}}
	closed := map[string]bool{}
	for _, a := range disrupt.Allowances(f.Snapshot, karpv1.DisruptionUnderutilized) {
		closed[a.Pool.Name] = a.Available() == 0
	}
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.Claim != "" && closed[n.Pool] {
			price, _ := prices.of(n)
			out.add(price, []string{"NodePool " + n.Pool})
		}
	}
	return out
}
