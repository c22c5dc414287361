package assess

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/parallel"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/drifted"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// Comparison states where a cluster goes, and where it would go with an edit: of a NodePool, a node class, the replicas of a Deployment or
// feature gates. Costs are in $/h.
type Comparison struct {
	Now Size `json:"now"`
	// Before is without the edit, After with it.
	Before Prospect `json:"before"`
	After  Prospect `json:"after"`
	// Drift holds what drifts because of the edit, by what it drifts by; most nodes first.
	Drift []EditDrift `json:"drift"`
	// Fixed counts nodes that have drifted, and no longer do with the edit.
	Fixed int `json:"fixed"`
	// Budget counts how many drifted nodes the budgets of the edited NodePool let go at once, now, or those of all NodePools of an edited node
	// class; null without a bound. BudgetError is why budgets are invalid.
	Budget      *int   `json:"budget"`
	BudgetError string `json:"budgetError"`
	// Next is what the next pass starts without and with other feature gates; null for other edits.
	Next *NextPass `json:"next"`
	// Notes state what is ignored.
	Notes []string `json:"notes"`
}

// Size is a fleet in numbers.
type Size struct {
	Nodes      int     `json:"nodes"`
	HourlyCost float64 `json:"hourlyCost"`
}

// Prospect is a cluster in which pending pods have nodes, drifted nodes are replaced, and consolidation has run without disruption
// budgets: the budgets decide how long that takes.
type Prospect struct {
	Size
	// NewNodes holds what the same pods would take if all nodes of NodePools were launched anew; LowerBound is what no plan can beat.
	NewNodes   float64 `json:"newNodesHourlyCost"`
	LowerBound float64 `json:"lowerBound"`
	// Moves are the first steps towards it, Steps how many there are.
	Moves []Step `json:"moves"`
	Steps int    `json:"steps"`
	// Launched, Removed and Evictions count nodes and pods.
	Launched  int `json:"launched"`
	Removed   int `json:"removed"`
	Evictions int `json:"evictions"`
	// Kept are drifted nodes that cannot be replaced.
	Kept []KeptNode `json:"kept"`
	// Stuck are pods that get no node, by workload and reason.
	Stuck []StuckPods `json:"stuck"`
	// Cut is true if the search stopped at its bound: consolidation may save more.
	Cut bool `json:"cut"`
}

// Step is nodes that go together, and what comes for them.
type Step struct {
	// Reason is pending pods, drifted, empty or underutilized.
	Reason   string   `json:"reason"`
	Removed  []string `json:"removed"`
	Launched []Node   `json:"launched"`
	// Evictions counts how many pods move, Cost what the fleet costs more by it; negative for a saving.
	Evictions int     `json:"evictions"`
	Cost      float64 `json:"hourlyCost"`
	// How is Reboot or TerminateFirst; empty for nodes that go once their replacements are up.
	How string `json:"how"`
}

// What a Step does in another way.
const (
	Reboot         = "reboot"
	TerminateFirst = "terminate first"
)

// KeptNode is a node that stays, and why.
type KeptNode struct {
	Node string `json:"node"`
	Why  string `json:"why"`
	// New is true if it does not drift without the edit.
	New bool `json:"new"`
}

// StuckPods are pods of one workload that get no node.
type StuckPods struct {
	Namespace string `json:"namespace"`
	// Workload is like ReplicaSet/web, or Pod/web.
	Workload string `json:"workload"`
	Pods     int    `json:"pods"`
	Why      string `json:"why"`
	// More counts how many of them get a node without the edit.
	More int `json:"more"`
}

// EditDrift is a difference by which nodes drift.
type EditDrift struct {
	Reason string        `json:"reason"`
	Fields []EditedField `json:"fields"`
	Nodes  int           `json:"nodes"`
	// Names are the first of them.
	Names []string `json:"names"`
}

// EditedField is a field with what nodes have and what the NodePool would have; both are empty where no node keeps it.
type EditedField struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

const (
	// editSteps bounds the consolidation of each side of a Comparison, in steps of consolidate.Result: one pass over 1,000 nodes, of which
	// compiling takes more than the search. What later passes would save is not counted on either side.
	editSteps = 1_000_000
	// editMoves and editNames bound what is listed.
	editMoves, editNames = 50, 5
)

// prospect carries out what the engine would do.
func (a *assessment) prospect() Prospect {
	out := Prospect{Moves: []Step{}, Kept: []KeptNode{}, Stuck: []StuckPods{}}
	f := newFuture(a.view.Snapshot)
	a.scheduleAndReplace(f, &out)
	fresh := parallel.Begin(func() repack { return a.repack(f) })
	end := a.consolidateFully(f.without(guardBudgets), a.settings.Steps)
	for _, p := range end.passes {
		for i := range p.commands {
			out.add(a.stepOf(&p.commands[i]))
		}
	}
	out.HourlyCost, out.Nodes = cost(end.Snapshot, a.prices)
	out.Cut = end.cut
	repacked := fresh.Wait()
	out.NewNodes, out.LowerBound = repacked.hourly, repacked.bound
	return out
}

// scheduleAndReplace gives pending pods their nodes, and replaces the drifted nodes, all together as far as their pods fit elsewhere.
func (a *assessment) scheduleAndReplace(f *future, out *Prospect) {
	marked := map[string]manifest.Drift{}
	for _, claim := range a.view.NodeClaims {
		if c, _ := condition.Get(claim, karpv1.ConditionDrifted); c.Status == metav1.ConditionTrue {
			marked[claim.Name] = manifest.Drift{Reason: c.Reason}
		}
	}
	found := planner.FindDrift(f.Snapshot, marked)
	if found == nil {
		found = &planner.Drift{}
		if len(f.Pods) > 0 {
			found.Pending = schedule.Solve(f.Snapshot, a.settings.Budget)
		}
	}
	f.schedule(&found.Pending)
	out.Stuck = append(out.Stuck, stuckPods(found.Pending.Rejected)...)
	if len(found.Pending.Launches) > 0 {
		out.add(a.step("pending pods", nil, &found.Pending))
	}
	gone, going := map[string]bool{}, []*disrupt.Candidate{}
	for i := range found.Nodes {
		n := &found.Nodes[i]
		if n.Stays != "" {
			out.Kept = append(out.Kept, KeptNode{Node: n.Node.Name, Why: n.Stays})
			continue
		}
		gone[n.Node.Name] = true
		going = append(going, &disrupt.Candidate{Node: n.Node, Pods: podsOf([]snapshot.Node{*n.Node})})
	}
	if len(going) > 0 {
		out.add(a.step("drifted", going, &found.Plan))
		f.carryOut(gone, &found.Plan)
	}
}

// step returns what removing candidates and carrying out a plan does.
func (a *assessment) step(reason string, removed []*disrupt.Candidate, plan *schedule.Plan) Step {
	out := Step{Reason: reason, Removed: []string{}, Launched: []Node{}}
	for _, c := range removed {
		price, _ := a.prices.of(c.Node)
		out.Removed = append(out.Removed, c.Node.Name)
		out.Evictions += len(c.Pods)
		out.Cost -= price
	}
	for i := range plan.Launches {
		n := a.launched(&plan.Launches[i])
		out.Launched = append(out.Launched, n)
		out.Cost += n.HourlyCost
	}
	return out
}

func (p *Prospect) add(s Step) {
	p.Steps, p.Launched, p.Removed = p.Steps+1, p.Launched+len(s.Launched), p.Removed+len(s.Removed)
	p.Evictions += s.Evictions
	if len(p.Moves) < editMoves {
		p.Moves = append(p.Moves, s)
	}
}

// markNew marks what the edit leaves without a node, and the nodes that it leaves where they are.
func (p *Prospect) markNew(before *Prospect) {
	for i := range p.Stuck {
		s := &p.Stuck[i]
		s.More = s.Pods
		for _, was := range before.Stuck {
			if was.Namespace == s.Namespace && was.Workload == s.Workload {
				s.More = max(0, s.More-was.Pods)
			}
		}
	}
	for i := range p.Kept {
		k := &p.Kept[i]
		k.New = !slices.ContainsFunc(before.Kept, func(was KeptNode) bool { return was.Node == k.Node })
	}
}

// stuckPods groups pods that get no node, most first.
func stuckPods(rejected []schedule.Rejection) []StuckPods {
	var out []StuckPods
	at := map[StuckPods]int{}
	for i := range rejected {
		r := &rejected[i]
		key := StuckPods{Namespace: r.Pod.Namespace, Workload: workloadOf(r.Pod), Why: why(r.Reasons)}
		k, known := at[key]
		if !known {
			k = len(out)
			at[key] = k
			out = append(out, key)
		}
		out[k].Pods++
	}
	slices.SortStableFunc(out, func(x, y StuckPods) int { return cmp.Compare(y.Pods, x.Pods) })
	return out
}

func workloadOf(p *corev1.Pod) string {
	if owner := metav1.GetControllerOf(p); owner != nil {
		return owner.Kind + "/" + owner.Name
	}
	return "Pod/" + p.Name
}

// why are reasons in words, each once: NodePools that exclude a pod by the same rule share a sentence.
func why(reasons []rejection.Reason) string {
	var out []string
	for _, r := range reasons {
		if text := wording.Reason(r); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// drift groups the nodes of NodePools that drift by the edit.
func (c *Comparison) drift(before, edited *inspect.View, pools map[string]*karpv1.NodePool) {
	at := map[string]int{}
	for i, claim := range edited.NodeClaims {
		pool := pools[claim.Labels[karpv1.LabelNodePool]]
		if pool == nil || claim.DeletionTimestamp != nil {
			continue
		}
		was, is := condition.IsTrue(before.NodeClaims[i], karpv1.ConditionDrifted), condition.IsTrue(claim, karpv1.ConditionDrifted)
		known := edited.Drifted[claim.Name]
		if !is || was && len(known.Fields) == 0 {
			if was && !is {
				c.Fixed++
			}
			continue
		}
		fields := editedFields(edited, claim, pool, known)
		key := fmt.Sprint(known.Reason, fields)
		k, seen := at[key]
		if !seen {
			k = len(c.Drift)
			at[key] = k
			c.Drift = append(c.Drift, EditDrift{Reason: known.Reason, Fields: fields, Names: []string{}})
		}
		if c.Drift[k].Nodes++; c.Drift[k].Nodes <= editNames {
			c.Drift[k].Names = append(c.Drift[k].Names, cmp.Or(claim.Status.NodeName, claim.Name))
		}
	}
	slices.SortStableFunc(c.Drift, func(x, y EditDrift) int { return cmp.Compare(y.Nodes, x.Nodes) })
}

// editedFields are the fields of the NodePool by which a claim drifts, with the values where the claim keeps them.
func editedFields(v *inspect.View, claim *karpv1.NodeClaim, pool *karpv1.NodePool, known manifest.Drift) []EditedField {
	out := []EditedField{}
	compared := drifted.Comparison{Claim: claim, Pool: pool, Labels: v.Snapshot.Labels}
	for _, f := range compared.Fields(known.Reason) {
		if f.Old != f.New && !strings.HasPrefix(f.Field, "(") {
			out = append(out, EditedField{f.Field, f.Old, f.New})
		}
	}
	if len(out) > 0 {
		return out
	}
	class := pool.Spec.Template.Spec.NodeClassRef.Name
	for _, f := range known.Fields {
		f = strings.TrimPrefix(strings.TrimPrefix(f, "NodePool "+pool.Name+" "), "EC2NodeClass "+class+" ")
		out = append(out, EditedField{Field: f})
	}
	return out
}

// budget is what the NodePools of the edit allow together.
func (c *Comparison) budget(edited *inspect.View, pools map[string]*karpv1.NodePool) {
	sum, bounded := 0, len(pools) > 0
	for _, a := range disrupt.Allowances(edited.Snapshot, karpv1.DisruptionDrifted) {
		switch {
		case pools[a.Pool.Name] == nil:
		case a.Err != nil:
			c.BudgetError = a.Err.Error()
		case a.Allowed == disrupt.Unlimited:
			bounded = false
		default:
			sum += a.Available()
		}
	}
	if bounded && c.BudgetError == "" {
		c.Budget = &sum
	}
}
