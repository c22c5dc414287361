package nodereport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/inspect/budgets"
	"github.com/dovetail-k8s/dovetail/internal/report"
)

// Blocker is one thing that keeps a node.
type Blocker struct {
	// Code is one of the engine's (see disrupt.Reason), or Budget, Policy, Consolidation.
	Code string `json:"code"`
	// Object is like PodDisruptionBudget/shop/web, Field a path in it; empty where nothing of one object keeps the node.
	Object string `json:"object"`
	Field  string `json:"field"`
	// Message states why.
	Message string `json:"message"`
	// Change holds what would lift it; empty where only time or prices do.
	Change string `json:"change"`
	// Until is the time when it finishes by itself; nil if that is not known.
	Until *time.Time `json:"until,omitempty"`
	// Saving is true if Message already states what is saved or not.
	Saving bool `json:"-"`
}

// The Reasons that are not the engine's names.
const (
	reasonBudget        = "Budget"
	reasonPolicy        = "Policy"
	reasonConsolidation = "Consolidation"
	reasonLater         = "Later"
)

// doNotDisrupt is the path of the annotation.
const doNotDisrupt = `metadata.annotations["` + karpv1.AnnotationDoNotDisrupt + `"]`

// blockers are all that keep the node, in the order in which the engine meets them.
func (b *builder) blockers() []Blocker {
	out := b.nodeBlocks()
	if out = append(out, b.podBlocks()...); len(out) == 0 {
		out = append(out, b.unnamed()...)
	}
	hard := len(out) > 0
	if b.Command(b.n) != nil {
		return []Blocker{}
	}
	if out = append(out, b.poolBlocks()...); !hard && len(out) == 0 {
		out = append(out, b.consolidation(b.Kept(b.n)))
	}
	return out
}

// unnamed is a reason of the engine that nothing else here names.
func (b *builder) unnamed() []Blocker {
	for _, k := range b.Classified.BlockedNodes {
		if k.Node == b.n {
			return []Blocker{{Code: string(k.Reason), Object: "Node/" + b.n.Name, Message: k.Message}}
		}
	}
	return nil
}

// nodeBlocks returns those of the node itself.
func (b *builder) nodeBlocks() []Blocker {
	n, object := b.n, "Node/"+b.n.Name
	out := []Blocker{}
	if n.Unplannable != "" {
		out = append(out, Blocker{Code: string(disrupt.Unplannable), Object: object, Message: n.Unplannable})
	}
	out = append(out, b.nominations()...)
	if n.Annotations[karpv1.AnnotationDoNotDisrupt] == "true" {
		out = append(out, Blocker{
			Code: string(disrupt.NodeDoNotDisrupt), Object: object, Field: doNotDisrupt,
			Message: fmt.Sprintf("the node has the annotation %s=true", karpv1.AnnotationDoNotDisrupt),
			Change:  fmt.Sprintf("kubectl annotate node %s %s-", n.Name, karpv1.AnnotationDoNotDisrupt),
		})
	}
	switch {
	case n.Pool == "":
		out = append(out, Blocker{
			Code: string(disrupt.NoLabel), Object: object, Field: "metadata.labels[\"" + karpv1.LabelNodePool + "\"]",
			Message: "the node has lost the label " + karpv1.LabelNodePool, Change: "set the label to the name of its NodePool",
		})
	case b.pool == nil:
		out = append(out, Blocker{
			Code: string(disrupt.NoNodePool), Object: "NodePool/" + n.Pool,
			Message: fmt.Sprintf("its NodePool %s does not exist", n.Pool), Change: "create the NodePool, or delete the NodeClaim " + n.Claim,
		})
	}
	return out
}

// planned are the pending pods that the plan puts on the node, without those that it was launched for.
func (b *builder) planned() []*corev1.Pod {
	pl := b.incoming[b.n.Name]
	if pl == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(pl.Pods), func(p *corev1.Pod) bool { return slices.Contains(b.n.Nominated, p.UID) })
}

// nominations are pods that will come to the node, and nodes that it replaces.
func (b *builder) nominations() []Blocker {
	var out []Blocker
	add := func(object, text string) {
		out = append(out, Blocker{Code: string(disrupt.Nominated), Object: object, Message: text})
	}
	for _, p := range b.Snapshot.Pods {
		if slices.Contains(b.n.Nominated, p.UID) {
			add("Pod/"+podName(p), fmt.Sprintf("it was launched for pod %s, which is still pending", podName(p)))
			break
		}
	}
	if planned := b.planned(); len(planned) > 0 {
		text := fmt.Sprintf("pending pod %s is planned for it", podName(planned[0]))
		if n := len(planned) - 1; n > 0 {
			text = fmt.Sprintf("pending pod %s and %d more are planned for it", podName(planned[0]), n)
		}
		add("Pod/"+podName(planned[0]), text)
	}
	for i := range b.Snapshot.Nodes {
		if o := &b.Snapshot.Nodes[i]; o.Claim != "" && (o.Deleting || o.Disrupting) && slices.Contains(b.n.Replaces, o.Claim) {
			add("NodeClaim/"+o.Claim, fmt.Sprintf("it replaces node %s, which has not gone yet", o.Name))
			break
		}
	}
	return out
}

// podBlocks are pods that must not be disrupted, and PodDisruptionBudgets that let none go.
func (b *builder) podBlocks() []Blocker {
	out := []Blocker{}
	for _, p := range b.n.Pods {
		if !snapshot.Disruptable(p, b.now()) {
			out = append(out, b.protected(p))
		}
	}
	var order []*policyv1.PodDisruptionBudget
	held := map[*policyv1.PodDisruptionBudget][]*corev1.Pod{}
	for _, p := range b.n.Pods {
		if !snapshot.Evictable(p, b.now()) {
			continue
		}
		var selecting []snapshot.Budget
		for _, pdb := range b.pdbs {
			if pdb.Selects(p) {
				selecting = append(selecting, pdb)
			}
		}
		switch {
		case len(selecting) > 1:
			out = append(out, multiple(p, selecting))
		case len(selecting) == 1 && selecting[0].Blocks(p):
			pdb := selecting[0].PodDisruptionBudget
			if held[pdb] == nil {
				order = append(order, pdb)
			}
			held[pdb] = append(held[pdb], p)
		}
	}
	for _, pdb := range order {
		out = append(out, exhausted(pdb, held[pdb]))
	}
	if p, group := snapshot.ReadGroups(b.Snapshot).Tied(b.n.Pods); group != nil {
		out = append(out, tied(p, group))
	}
	return out
}

func tied(p *corev1.Pod, g *snapshot.Group) Blocker {
	return Blocker{
		Code: string(disrupt.PodGroupTogether), Object: "PodGroup/" + g.Namespace + "/" + g.Name, Field: "spec.disruptionMode",
		Message: fmt.Sprintf("PodGroup %s/%s of pod %s is disrupted as a whole, and has pods on %d nodes", g.Namespace, g.Name, podName(p),
			len(g.Nodes())),
		Change: "delete all pods of the group, or wait until they have finished",
	}
}

func (b *builder) protected(p *corev1.Pod) Blocker {
	value := p.Annotations[karpv1.AnnotationDoNotDisrupt]
	out := Blocker{
		Code: string(disrupt.PodDoNotDisrupt), Object: "Pod/" + podName(p), Field: doNotDisrupt,
		Message: fmt.Sprintf("pod %s has the annotation %s=%s", podName(p), karpv1.AnnotationDoNotDisrupt, value),
		Change:  fmt.Sprintf("kubectl annotate pod -n %s %s %s-", p.Namespace, p.Name, karpv1.AnnotationDoNotDisrupt),
	}
	if _, until := snapshot.DoNotDisrupt(p, b.now()); !until.IsZero() {
		at := until.UTC()
		out.Until, out.Message = &at, out.Message+fmt.Sprintf(" until %s", report.Time(at, b.now()))
	}
	return out
}

func multiple(p *corev1.Pod, budgets []snapshot.Budget) Blocker {
	names := make([]string, 0, len(budgets))
	for _, b := range budgets {
		names = append(names, b.Namespace+"/"+b.Name)
	}
	slices.Sort(names)
	return Blocker{
		Code: string(disrupt.PDB), Object: "PodDisruptionBudget/" + names[1], Field: "spec.selector",
		Message: fmt.Sprintf("the PodDisruptionBudgets %s both select pod %s, and the eviction API refuses such pods",
			strings.Join(names, " and "), podName(p)),
		Change: "delete or narrow all of them but one",
	}
}

// exhausted is a PodDisruptionBudget that allows no disruption, with the numbers of its status.
func exhausted(pdb *policyv1.PodDisruptionBudget, pods []*corev1.Pod) Blocker {
	out := Blocker{Code: string(disrupt.PDB), Object: "PodDisruptionBudget/" + pdb.Namespace + "/" + pdb.Name, Field: "spec.minAvailable"}
	bound := ""
	switch {
	case pdb.Spec.MaxUnavailable != nil:
		out.Field, bound = "spec.maxUnavailable", "maxUnavailable "+pdb.Spec.MaxUnavailable.String()
	case pdb.Spec.MinAvailable != nil:
		bound = "minAvailable " + pdb.Spec.MinAvailable.String()
	}
	s := pdb.Status
	out.Message = fmt.Sprintf("the PodDisruptionBudget %s/%s allows no disruption now", pdb.Namespace, pdb.Name)
	if bound != "" && s.ExpectedPods > 0 {
		out.Message += fmt.Sprintf(" (%s, %d of %d pods healthy)", bound, s.CurrentHealthy, s.ExpectedPods)
	} else if bound != "" {
		out.Message += fmt.Sprintf(" (%s)", bound)
	}
	if s.CurrentHealthy < s.DesiredHealthy {
		out.Change = fmt.Sprintf("make its pods healthy: it wants %d, %d are", s.DesiredHealthy, s.CurrentHealthy)
	} else {
		out.Change = allowOne(pdb, out.Field)
	}
	out.Change += fmt.Sprintf(" (here: %s)", podNames(pods))
	return out
}

// allowOne returns what makes a budget that its healthy pods just meet allow one of them to go.
func allowOne(pdb *policyv1.PodDisruptionBudget, field string) string {
	s, loosen := pdb.Status, "let "+field+" allow one to go"
	missing := missingReplicas(pdb)
	switch {
	case missing == 0:
		return "set " + field + " so that one may go: as it is, it never allows an eviction, however many replicas run"
	case s.CurrentHealthy < s.ExpectedPods:
		return fmt.Sprintf("make all of its pods healthy (%d of %d are), or %s", s.CurrentHealthy, s.ExpectedPods, loosen)
	case missing == 1:
		return "run one more replica, or " + loosen
	}
	return fmt.Sprintf("run %d more replicas, or %s", missing, loosen)
}

// missingReplicas returns how many more replicas a budget needs to allow one eviction while all are healthy, as the disruption controller
// rounds; 0 if no number of them helps.
func missingReplicas(pdb *policyv1.PodDisruptionBudget) int {
	const most = 100 // a share below 100 % allows one of so many
	now := max(1, int(pdb.Status.ExpectedPods))
	for more := 1; more <= most; more++ {
		n := now + more
		desired := 1
		if bound := pdb.Spec.MaxUnavailable; bound != nil {
			allowed, err := intstr.GetScaledValueFromIntOrPercent(bound, n, true)
			if err != nil {
				return 0
			}
			desired = n - allowed
		} else if bound := pdb.Spec.MinAvailable; bound != nil {
			var err error
			if desired, err = intstr.GetScaledValueFromIntOrPercent(bound, n, true); err != nil {
				return 0
			}
			if bound.Type == intstr.Int { // however many run
				return max(1, desired+1-now)
			}
		}
		if desired < n {
			return more
		}
	}
	return 0
}

func podNames(pods []*corev1.Pod) string {
	const most = 3
	names := make([]string, 0, most)
	for _, p := range pods[:min(most, len(pods))] {
		names = append(names, podName(p))
	}
	text := strings.Join(names, ", ")
	if more := len(pods) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// poolBlocks are the rules of the pool that keep a node from consolidation.
func (b *builder) poolBlocks() []Blocker {
	if b.pool == nil {
		return nil
	}
	var out []Blocker
	d, object := &b.pool.Spec.Disruption, "NodePool/"+b.pool.Name
	add := func(reason, field, text, change string) {
		out = append(out, Blocker{Code: reason, Object: object, Field: field, Message: text, Change: change})
	}
	empty := !slices.ContainsFunc(b.n.Pods, disrupt.PreventsEmptiness)
	if b.pool.Spec.Replicas != nil {
		add(reasonPolicy, "spec.replicas", fmt.Sprintf("the NodePool %s is static: it keeps %s whatever their pods need, and launches another if this one goes",
			b.pool.Name, report.Plural(int(*b.pool.Spec.Replicas), "node")), "lower spec.replicas")
		return out
	}
	switch {
	case d.ConsolidateAfter.IsNever():
		add(string(disrupt.ConsolidationDisabled), "spec.disruption.consolidateAfter",
			fmt.Sprintf("the NodePool %s has consolidateAfter Never", b.pool.Name), "set a duration, such as 1m")
	case !b.n.Consolidatable:
		out = append(out, b.notConsolidatable(empty))
	}
	if d.ConsolidationPolicy == karpv1.ConsolidationWhenEmpty && !empty {
		add(reasonPolicy, "spec.disruption.consolidationPolicy",
			fmt.Sprintf("the NodePool %s consolidates only empty nodes (WhenEmpty), and %s", b.pool.Name, b.busy()),
			"set WhenEmptyOrUnderutilized")
	}
	if empty && b.n.Virtual > 0 {
		out = append(out, Blocker{Code: string(disrupt.BufferPods), Message: fmt.Sprintf("CapacityBuffers reserve room here for %s",
			report.Plural(b.n.Virtual, "pod"))})
	}
	reason := karpv1.DisruptionUnderutilized
	if empty {
		reason = karpv1.DisruptionEmpty
	}
	if a := b.Allowance(b.pool.Name, reason); a.Available() == 0 {
		out = append(out, b.budget(reason, a))
	}
	return out
}

// busy names a pod that keeps the node from being empty.
func (b *builder) busy() string {
	i := slices.IndexFunc(b.n.Pods, disrupt.PreventsEmptiness)
	return "pod " + podName(b.n.Pods[i]) + " runs here"
}

// notConsolidatable is a node inside its pool's consolidateAfter.
func (b *builder) notConsolidatable(empty bool) Blocker {
	after := b.pool.Spec.Disruption.ConsolidateAfter
	out := Blocker{
		Code: string(disrupt.NotConsolidatable), Object: "NodePool/" + b.pool.Name, Field: "spec.disruption.consolidateAfter",
		Message: "pods came or went lately, and the NodeClaim's condition Consolidatable is not true yet",
	}
	if after.Duration == nil || *after.Duration <= 0 {
		return out
	}
	last := b.claim.Status.LastPodEventTime.Time
	if last.IsZero() {
		last = b.n.CreatedAt
	}
	at := last.Add(*after.Duration).UTC()
	what := "a pod came or went"
	if empty {
		what = "it became empty"
	}
	out.Message = fmt.Sprintf("%s %s ago, and consolidateAfter of NodePool %s is %s",
		what, report.Age(b.now().Sub(last)), b.pool.Name, report.Duration(*after.Duration))
	if at.After(b.now()) {
		out.Until, out.Message = &at, out.Message+": it can go from "+report.Time(at, b.now())
	}
	return out
}

// budget is a pool's budgets that allow no further node for a reason.
func (b *builder) budget(reason karpv1.DisruptionReason, a disrupt.Allowance) Blocker {
	out := Blocker{Code: reasonBudget, Object: "NodePool/" + b.n.Pool, Field: "spec.disruption.budgets"}
	if a.Err != nil {
		out.Message = fmt.Sprintf("a budget of NodePool %s is invalid, so none of its nodes goes: %v", b.n.Pool, a.Err)
		out.Change = "correct the budget"
		return out
	}
	schedule := budgets.For(b.pool, a.Nodes, reason, b.now())
	switch {
	case a.Allowed == 0:
		out.Message = fmt.Sprintf("the budgets of NodePool %s allow no node to go now", b.n.Pool)
	default:
		out.Message = fmt.Sprintf("the budgets of NodePool %s allow %s at a time to go, and %d are on their way or not ready",
			b.n.Pool, report.Plural(a.Allowed, "node"), a.Disrupting)
	}
	if schedule == nil {
		return out
	}
	if schedule.Now.Budget >= 0 {
		out.Field = fmt.Sprintf("spec.disruption.budgets[%d]", schedule.Now.Budget)
	}
	if at, ok := schedule.Opens(a.Disrupting, b.now()); ok {
		at = at.UTC()
		out.Until, out.Message = &at, out.Message+fmt.Sprintf(" (%s); more may go from %s", out.Field, report.Time(at, b.now()))
	} else {
		out.Message += fmt.Sprintf(" (%s: %s)", out.Field, schedule.Text)
		out.Change = "raise nodes of that budget"
	}
	return out
}

// consolidation returns why a node stays that nothing protects: what the engine found, with the numbers of the simulation.
func (b *builder) consolidation(why string) Blocker {
	out := Blocker{Code: reasonConsolidation, Saving: true}
	m := b.alone
	price := report.Money(b.price())
	if why == "" {
		why = b.unexamined()
	}
	out.Message = why
	switch {
	case b.price() == 0:
		out.Message = "its price is not known, so nothing can be saved (" + why + ")"
	case m == nil:
	case m.Blocks != "":
		out.Message = "its pods fit nowhere else: " + cmp.Or(m.WithoutNode, m.Blocks)
	case len(m.Launches) > 0:
		cost, names := m.cost()
		switch {
		case m.Accepted && b.notReached():
			out.Message = fmt.Sprintf("nothing protects it, and %s at %s/h could take its place, which saves %s/h. The search for cheaper nodes "+
				"stopped before it came to this one: --full searches on", names, report.Money(cost), report.Money(m.HourlySavings))
		case m.Accepted:
			out.Message = fmt.Sprintf("%s at %s/h would save %s/h of its %s/h, but: %s", names, report.Money(cost),
				report.Money(m.HourlySavings), price, why)
		case cost >= b.price():
			out.Message = fmt.Sprintf("nothing cheaper holds its pods: they would need %s at %s/h, and it costs %s/h", names, report.Money(cost), price)
		default:
			out.Message = fmt.Sprintf("%s at %s/h could hold its pods, %s/h less than now, but: %s", names, report.Money(cost), report.Money(b.price()-cost), why)
		}
	default:
		out.Message = why
		out.Saving = false
	}
	return out
}

// notReached reports whether the search stopped before it came to the node.
func (b *builder) notReached() bool { return b.Stopped() && b.Kept(b.n) == "" }

// unexamined returns why the search did not come to a node that nothing protects, or why the removal of the node alone is refused.
func (b *builder) unexamined() string {
	if b.Stopped() {
		if m := b.alone; m != nil && !m.Accepted && m.Why != "" {
			return m.Why + " (it may still go together with others: --full searches for that)"
		}
		return "the search for cheaper nodes stopped before it came to this one; --full searches on"
	}
	return "the search for cheaper nodes has not come to it, or no NodePool can launch nodes"
}

// nominatedNames are the pods of the cluster with these UIDs, and how many of them are gone.
func nominatedNames(pods []*corev1.Pod, uids []types.UID) (names []string, gone int) {
	byUID := make(map[types.UID]bool, len(uids))
	for _, uid := range uids {
		byUID[uid] = true
	}
	names = []string{}
	for _, p := range pods {
		if byUID[p.UID] {
			names = append(names, podName(p))
		}
	}
	slices.Sort(names)
	return names, len(byUID) - len(names)
}
