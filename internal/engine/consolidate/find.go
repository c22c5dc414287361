package consolidate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// node is a candidate as the search sees it.
type node struct {
	*disrupt.Candidate
	// worth is what its pods are worth, room what its free room could hold besides, in $/h.
	worth, room float64
	// ends is set once a move ends it, host once another's pods move here.
	ends, host bool
	// why it stays, by the question that was asked last.
	why string
	// quiet reasons are not told in events.
	quiet    bool
	examined bool
}

// ratio is by what candidates are ordered: what the node costs for each pod that would have to move.
func (n *node) ratio() float64 { return n.Price / n.Cost }

// merit is what could be saved for each pod that moves, if new room had to be bought for all of them.
func (n *node) merit() float64 { return (n.Price - n.worth) / n.Cost }

// search is the state of one Find.
type search struct {
	p      *schedule.Problem
	s      *snapshot.Snapshot
	st     Settings
	totals Totals
	// budget is how many nodes of each pool may still go.
	budget map[string]int
	// nodes are the eligible candidates, best first, byIndex finds them.
	nodes   []*node
	byIndex []*node
	// open are the nodes of the snapshot that may take pods, those first that are to be filled first.
	open  []int
	asked []int // memory of into
	// waiting are pending pods that are to be on nodes, by the index of the node.
	waiting map[int][]*corev1.Pod
	// devices tells that a move gives out devices: which are left is only known when it is done.
	devices bool
	moves   []*move
	// rejected are moves that a pool has not approved of, by the node where it is one; of several nodes the last.
	rejected map[*node]*move
	several  *move
	// spare is what the free room of nodes could hold, in $/h.
	spare []float64
	names map[[2]string]int
	// base is how many plans hold before any move does.
	base     int
	result   Result
	exhausts bool
}

// Find looks for the commands that save most per disruption; best first, all of them can be started at once under the
// budgets. The Problem is that of the snapshot (see Compile), and is as before when Find returns. Candidates are those
// that nothing forbids to disrupt; budgets are for reason Underutilized.
func Find(p *schedule.Problem, s *snapshot.Snapshot, candidates []*disrupt.Candidate, budgets []disrupt.Allowance, totals Totals, st Settings) Result {
	x := newSearch(p, s, totals, st)
	for i := range budgets {
		x.budget[budgets[i].Pool.Name] = budgets[i].Available()
	}
	left := x.filter(candidates)
	if len(x.nodes) > 0 && st.Questions >= 0 && x.canBuy() {
		defer p.Release()
		x.seat()
		x.appraise()
		x.order()
		x.attempts()
	}
	x.result.Commands = x.commands()
	x.result.Rejected = x.rejections()
	x.result.Left = append(left, x.stays()...)
	slices.SortStableFunc(x.result.Left, func(a, b disrupt.Left) int { return cmp.Compare(a.Candidate.Index, b.Candidate.Index) })
	x.timeout()
	return x.result
}

func newSearch(p *schedule.Problem, s *snapshot.Snapshot, totals Totals, st Settings) *search {
	return &search{p: p, s: s, st: st, totals: totals, budget: map[string]int{}, byIndex: make([]*node, len(s.Nodes)), waiting: map[int][]*corev1.Pod{}}
}

// canBuy tells whether some pool could launch nodes; without one, nothing is moved.
func (x *search) canBuy() bool {
	return slices.ContainsFunc(x.s.Pools, func(p snapshot.Pool) bool { return p.NodePool.Spec.Replicas == nil })
}

// filter keeps the candidates that consolidation may end, and says why not the others.
func (x *search) filter(candidates []*disrupt.Candidate) []disrupt.Left {
	var left []disrupt.Left
	for _, c := range candidates {
		if why, quiet := ineligible(c); why != "" {
			left = append(left, disrupt.Left{Candidate: c, Why: why, Quiet: quiet})
			continue
		}
		n := &node{Candidate: c}
		if math.IsNaN(c.Price) {
			own := *c
			own.Price, n.Candidate = 0, &own
		}
		x.nodes = append(x.nodes, n)
		x.byIndex[c.Index] = n
	}
	return left
}

// ineligible says why consolidation does not look at the candidate; empty if it does. Quiet reasons are not told in events.
func ineligible(c *disrupt.Candidate) (why string, quiet bool) {
	d := &c.Pool.Spec.Disruption
	switch {
	case c.Pool.Spec.Replicas != nil:
		return fmt.Sprintf("NodePool %q keeps a fixed number of nodes", c.Pool.Name), true
	case c.Type == nil:
		return fmt.Sprintf("Instance Type %q not found", c.Node.Labels[corev1.LabelInstanceTypeStable]), false
	case c.CapacityType == "":
		return fmt.Sprintf("Node does not have label %q", karpv1.LabelCapacityType), false
	case c.Zone == "":
		return fmt.Sprintf("Node does not have label %q", corev1.LabelTopologyZone), false
	case d.ConsolidateAfter.IsNever():
		return fmt.Sprintf("NodePool %q has consolidation disabled", c.Pool.Name), false
	case c.Cost <= 1:
		return vacated, true
	case d.ConsolidationPolicy == karpv1.ConsolidationWhenEmpty:
		return fmt.Sprintf("NodePool %q has consolidation policy WhenEmpty, but node is not empty", c.Pool.Name), false
	case !c.Node.Consolidatable:
		return disturbed, true
	}
	return "", false
}

// Wanted tells whether a candidate of a command that was found earlier may still be ended. If not, why is for people, and lately is
// true where it is only that pods have come or gone.
func Wanted(c *disrupt.Candidate) (why string, lately bool) {
	switch why, _ := ineligible(c); why {
	case vacated: // there is less to move than there was
		return "", false
	default:
		return why, why == disturbed
	}
}

// settling tells whether the node is inside its pool's consolidateAfter: it takes no pods that run elsewhere.
func (x *search) settling(n *snapshot.Node, pools map[string]*karpv1.NodePool) bool {
	pool := pools[n.Pool]
	if pool == nil || pool.Spec.Replicas != nil || n.Claim == "" || n.Consolidatable {
		return false
	}
	after := pool.Spec.Disruption.ConsolidateAfter
	return after.Duration != nil && *after.Duration > 0 && !after.IsNever()
}

// vacant tells whether the node is about to be ended for having nothing to do: to move pods there would be to keep it. That pods
// were promised to it, which have come and gone or go elsewhere, only puts that off; those that are pending are seated by now.
func (x *search) vacant(i int) bool {
	n := &x.s.Nodes[i]
	return n.Claim != "" && n.Initialized && n.Consolidatable && n.Virtual == 0 && len(x.waiting[i]) == 0 &&
		n.Annotations[karpv1.AnnotationDoNotDisrupt] != "true" &&
		!slices.ContainsFunc(n.Pods, func(p *corev1.Pod) bool { return disrupt.Load(p) || !snapshot.Disruptable(p, x.s.Now) })
}

// seat gives pending pods their places first: what they will take is taken.
func (x *search) seat() {
	q := schedule.Question{Budget: schedule.Bounded()}
	q.Budget.Plain = true
	plan := x.ask(q)
	x.p.Hold(q, &plan)
	x.base = x.p.Held()
	x.devices = len(plan.Launches) > 0 && slices.ContainsFunc(plan.Launches, func(l schedule.Launch) bool { return len(l.Devices) > 0 })
	for _, pl := range plan.Placements {
		i := x.find(pl)
		x.waiting[i] = append(x.waiting[i], pl.Pods...)
		x.devices = x.devices || len(pl.Devices) > 0
	}
}

// ask asks the Problem, and counts.
func (x *search) ask(q schedule.Question) schedule.Plan {
	x.result.Questions++
	return x.p.Ask(q)
}

// spent tells whether the bound of work or of time is reached.
func (x *search) spent() bool {
	if x.st.Questions > 0 && x.result.Questions >= x.st.Questions || !x.exhausts && x.st.Over != nil && x.st.Over() {
		x.exhausts = true
	}
	return x.exhausts
}

// appraise finds what pods and room are worth.
func (x *search) appraise() {
	var pods []*corev1.Pod
	for _, n := range x.nodes {
		pods = append(pods, n.Pods...)
	}
	w := x.p.Appraise(pods)
	for _, n := range x.nodes {
		for _, p := range n.Pods {
			n.worth += w.Pod(p)
		}
	}
	x.spare = make([]float64, len(x.s.Nodes))
	for i := range x.s.Nodes {
		x.spare[i] = w.Room(i)
	}
	for _, n := range x.nodes {
		n.room = x.spare[n.Index]
	}
}

// order sorts candidates by what they cost for each pod. Of destinations, those come first that are there to stay.
func (x *search) order() {
	slices.SortStableFunc(x.nodes, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.ratio(), a.ratio()), cmp.Compare(a.Node.Name, b.Node.Name))
	})
	pools := map[string]*karpv1.NodePool{}
	for i := range x.s.Pools {
		pools[x.s.Pools[i].NodePool.Name] = x.s.Pools[i].NodePool
	}
	for _, np := range x.s.Closed {
		pools[np.Name] = np
	}
	for i := range x.s.Nodes {
		if n := &x.s.Nodes[i]; !x.settling(n, pools) && !x.vacant(i) {
			x.open = append(x.open, i)
		}
	}
	merit := func(i int) float64 {
		if n := x.byIndex[i]; n != nil {
			return n.merit()
		}
		return math.Inf(-1)
	}
	slices.SortStableFunc(x.open, func(a, b int) int {
		na, nb := &x.s.Nodes[a], &x.s.Nodes[b]
		if na.Initialized != nb.Initialized {
			if na.Initialized {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(merit(a), merit(b)), cmp.Compare(na.Name, nb.Name))
	})
}

// into are the open nodes that neither have ended nor are closed. The list holds until it is asked for again.
func (x *search) into(closed map[int]bool) []int {
	x.asked = x.asked[:0]
	for _, i := range x.open {
		if n := x.byIndex[i]; (n == nil || !n.ends) && (len(closed) == 0 || !closed[i]) {
			x.asked = append(x.asked, i)
		}
	}
	return x.asked
}

// stays lists the candidates that no move ends.
func (x *search) stays() []disrupt.Left {
	var out []disrupt.Left
	for _, n := range x.nodes {
		if n.ends {
			continue
		}
		out = append(out, disrupt.Left{Candidate: n.Candidate, Why: n.why, Quiet: n.quiet})
	}
	return out
}

// timeout notes what was not come to.
func (x *search) timeout() {
	seen, all := map[string]bool{}, map[string]bool{}
	for _, n := range x.nodes {
		all[n.Pool.Name] = true
		if n.examined {
			x.result.Examined++
			seen[n.Pool.Name] = true
		}
	}
	if x.result.TimedOut = x.exhausts || x.st.Questions < 0 && len(x.nodes) > 0; !x.result.TimedOut {
		return
	}
	for name := range all {
		if !seen[name] {
			x.result.Unseen = append(x.result.Unseen, name)
		}
	}
	slices.Sort(x.result.Unseen)
}
