package shadow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// state describes what outlives the process.
type state struct {
	Report   Report        `json:"report"`
	Pending  []pendingNode `json:"pending"`
	Removals []removal     `json:"removals"`
	// Launched counts the nodes that Dovetail would have launched; it names the next.
	Launched int `json:"launched"`
	// Known are the nodes of the acting controller at the last pass, by the UID of their NodeClaim.
	Known map[types.UID]known `json:"known"`
}

// known describes what was last seen of a node of the acting controller.
type known struct {
	Name string `json:"name"`
	// HourlyCost is its price in $/h; 0 while it is not known.
	HourlyCost float64 `json:"hourlyCost"`
	// Pods are the pods that would have to move.
	Pods int `json:"pods,omitempty"`
	// Priced is true once it counts as launched, with its price as far as that is known, or if it existed before. Leaving is true while it
	// is removed, Counted once that counts.
	Priced  bool `json:"priced,omitempty"`
	Leaving bool `json:"leaving,omitempty"`
	Counted bool `json:"counted,omitempty"`
}

// Ledger counts what Dovetail would have done, and what the acting controller did. Its methods are not safe for concurrent use.
type Ledger struct {
	state state
	// memory is what passes remember. It does not outlive the process, as that of the controller does not.
	memory pass.Memory
	// proposed are the commands that must stay valid for a while, by their nodes.
	proposed map[string]decision
	how      consolidate.Settings
	changed  bool
}

// decision is a command without its Snapshot.
type decision struct {
	action Action
	claims []types.UID
	// perHour holds what the removed nodes cost, in $/h.
	perHour float64
	nodes   []pendingNode
}

// NewLedger returns a Ledger that begins now, with the settings of the search for nodes to consolidate.
func NewLedger(how consolidate.Settings, version string) *Ledger {
	return &Ledger{how: how, proposed: map[string]decision{}, state: state{Report: Report{Format: reportFormat, Version: version}}}
}

// Report returns the comparison so far.
func (l *Ledger) Report() Report { return l.state.Report }

// Pass looks at the cluster once. reasons are why the acting controller disrupts nodes, by the UID of the NodeClaim.
func (l *Ledger) Pass(s *snapshot.Snapshot, reasons map[types.UID]string) {
	r := &l.state.Report
	s = priced(s)
	if l.state.Known == nil {
		l.begin(s)
	}
	if hours := s.Now.Sub(r.At).Hours(); r.Passes > 0 && hours > 0 {
		r.Shadow.TotalCost += r.Shadow.HourlyCost * hours
		r.Acting.TotalCost += r.Acting.HourlyCost * hours
	}
	l.observe(s, reasons)
	w := l.world(s)
	plan := schedule.Solve(w, schedule.DefaultBudget())
	l.launch(w, &plan)
	l.disrupt(w, &plan)
	l.count(s)
	r.At, r.Unschedulable = s.Now, unschedulable(&plan)
	r.Passes++
}

// begin takes the nodes that exist as given.
func (l *Ledger) begin(s *snapshot.Snapshot) {
	if r := &l.state.Report; r.Since.IsZero() {
		r.Since, r.At = s.Now, s.Now
	}
	l.state.Known = map[types.UID]known{}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Claim != "" {
			l.state.Known[n.ClaimUID] = known{Name: n.Name, HourlyCost: n.Price, Priced: true, Leaving: leaves(n)}
		}
	}
}

func unschedulable(plan *schedule.Plan) int {
	n := 0
	for i := range plan.Rejected {
		if r := &plan.Rejected[i]; !r.Deferred() && !r.Ignored() {
			n++
		}
	}
	return n
}

// observe counts what the acting controller has done since the last pass.
func (l *Ledger) observe(s *snapshot.Snapshot, reasons map[types.UID]string) {
	present := make(map[types.UID]*snapshot.Node, len(s.Nodes))
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Claim != "" {
			present[n.ClaimUID] = n
		}
	}
	l.overtaken(present)
	for _, n := range sortedNodes(present) {
		l.observeNode(n, s.Now, reasons[n.ClaimUID])
	}
	for uid, k := range l.state.Known {
		if present[uid] != nil {
			continue
		}
		if k.Priced && !k.Leaving {
			l.removedByActing(k, s.Now, "")
		}
		delete(l.state.Known, uid)
	}
	l.observeRemovals(present)
}

// observeRemovals counts the nodes that both remove. A node that the acting controller keeps after all is one that only Dovetail removes.
func (l *Ledger) observeRemovals(present map[types.UID]*snapshot.Node) {
	kept := l.state.Removals[:0]
	for _, r := range l.state.Removals {
		n := present[r.Claim]
		both := n == nil || leaves(n)
		if both != r.Both {
			r.Both, l.changed = both, true
			if both {
				l.state.Report.RemovedByBoth++
			} else {
				l.state.Report.RemovedByBoth--
			}
		}
		if n != nil {
			kept = append(kept, r)
		}
	}
	l.state.Removals = kept
}

func sortedNodes(nodes map[types.UID]*snapshot.Node) []*snapshot.Node {
	out := make([]*snapshot.Node, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *snapshot.Node) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Claim, b.Claim))
	})
	return out
}

// observeNode counts the launch of a node once its price is known, and its removal once it begins.
func (l *Ledger) observeNode(n *snapshot.Node, now time.Time, reason string) {
	k := l.state.Known[n.ClaimUID]
	if k.Counted && !leaves(n) {
		l.keptByActing(k)
		k.Counted = false
	}
	k.Name = n.Name
	if n.Price > 0 {
		k.HourlyCost = n.Price
	}
	// The price of a type that no NodePool has any more is never known.
	if !k.Priced && n.Launched && (n.Price > 0 || n.Initialized) {
		k.Priced = true
		r := &l.state.Report
		r.Acting.Launches++
		r.Acting.LaunchedHourlyCost += n.Price
		r.Actions = keep(r.Actions, Action{
			At: now, What: ActionLaunch, Nodes: []string{}, HourlySavings: 0 - n.Price,
			Launches: []Launch{{
				NodePool: n.Pool, InstanceType: n.Labels[corev1.LabelInstanceTypeStable], Zone: n.Labels[corev1.LabelTopologyZone],
				CapacityType: n.Labels[karpv1.LabelCapacityType], HourlyCost: n.Price,
			}},
		})
		l.changed = true
	}
	switch {
	case !leaves(n):
		k.Leaving, k.Pods = false, len(reschedulable(n))
	case !k.Leaving && k.Priced:
		k.Leaving, k.Counted = true, true
		l.removedByActing(k, now, reason)
	}
	l.state.Known[n.ClaimUID] = k
}

func reschedulable(n *snapshot.Node) (out []*corev1.Pod) {
	for _, p := range n.Pods {
		if snapshot.Reschedulable(p) {
			out = append(out, p)
		}
	}
	return out
}

func (l *Ledger) removedByActing(k known, now time.Time, reason string) {
	r := &l.state.Report
	r.Acting.Removed++
	r.Acting.RemovedHourlyCost += k.HourlyCost
	r.Acting.Evictions += k.Pods
	r.Actions = keep(r.Actions, Action{
		At: now, What: ActionRemove, Reason: reason, Nodes: []string{k.Name}, Launches: []Launch{}, Pods: k.Pods,
		HourlySavings: k.HourlyCost,
	})
	l.changed = true
}

// keptByActing takes back the removal of a node that the acting controller has begun and does not carry out.
func (l *Ledger) keptByActing(k known) {
	r := &l.state.Report
	r.Acting.Removed--
	r.Acting.RemovedHourlyCost -= k.HourlyCost
	r.Acting.Evictions -= k.Pods
	for i, a := range slices.Backward(r.Actions) {
		if a.What == ActionRemove && slices.Equal(a.Nodes, []string{k.Name}) {
			r.Actions = slices.Delete(r.Actions, i, i+1)
			break
		}
	}
	l.changed = true
}

// overtaken decides the proposals with nodes that the acting controller has begun to remove: it was as quick.
func (l *Ledger) overtaken(present map[types.UID]*snapshot.Node) {
	for key, d := range l.proposed {
		for _, uid := range d.claims {
			if n := present[uid]; n == nil || leaves(n) {
				l.decide(d)
				delete(l.proposed, key)
				l.memory.Proposals = slices.DeleteFunc(slices.Clone(l.memory.Proposals), func(p pass.Proposal) bool { return proposalKey(&p) == key })
				break
			}
		}
	}
}

// launch counts the launches of a plan.
func (l *Ledger) launch(w *snapshot.Snapshot, plan *schedule.Plan) {
	if plan.Abandoned {
		return
	}
	for _, n := range l.pendingNodes(w, plan.Launches) {
		r := &l.state.Report
		r.Decisions = keep(r.Decisions, Action{
			At: w.Now, What: ActionLaunch, Reason: reasonPending, Nodes: []string{}, Launches: []Launch{n.Launch}, Pods: len(n.Pods),
			HourlySavings: 0 - n.Launch.HourlyCost,
		})
		l.add(n)
	}
}

// add adds a node that Dovetail would have launched.
func (l *Ledger) add(n pendingNode) {
	l.state.Report.Shadow.Launches++
	l.state.Report.Shadow.LaunchedHourlyCost += n.Launch.HourlyCost
	l.state.Pending = append(l.state.Pending, n)
	l.changed = true
}

// pendingNodes are the nodes that launches become.
func (l *Ledger) pendingNodes(w *snapshot.Snapshot, launches []schedule.Launch) []pendingNode {
	var out []pendingNode
	for i := range launches {
		launch := &launches[i]
		l.state.Launched++
		n := launch.Node(fmt.Sprintf("shadow-%d", l.state.Launched), w)
		p := pendingNode{
			Name: n.Name, Labels: n.Labels, Taints: n.Taints, Capacity: n.Capacity, Allocatable: n.Allocatable, VolumeLimits: n.VolumeLimits,
			CreatedAt: w.Now,
			Launch: Launch{
				NodePool: n.Pool, InstanceType: launch.InstanceTypes[0].Name, CapacityType: launch.Offering.CapacityType,
				Zone: launch.Offering.Zone, HourlyCost: launch.Offering.Price,
			},
		}
		for _, pod := range launch.Pods {
			p.Pods = append(p.Pods, pod.UID)
		}
		out = append(out, p)
	}
	return out
}

// disrupt decides a pass over the nodes, and counts what would start. Nodes that get pods by the plan stay.
func (l *Ledger) disrupt(w *snapshot.Snapshot, plan *schedule.Plan) {
	decided, remembers := pass.Decide(pass.Input{
		Snapshot: w, Plan: plan, Work: pass.Due | pass.Ahead(w), Memory: l.memory,
		Settings: pass.Settings{
			Consolidation: l.how, Validate: true, ValidationDelay: pass.ValidationDelay, MaxDrift: 1, MaxDriftRejections: pass.MaxSimulations,
		},
	})
	l.memory = remembers
	for i := range decided.Start {
		cmd := &decided.Start[i].Command
		key := keyOf(cmd)
		if d, proposed := l.proposed[key]; proposed && len(d.claims) == len(cmd.Candidates) {
			d.action.At = w.Now
			l.decide(d)
		} else {
			l.decide(l.decisionOf(w, cmd))
		}
		delete(l.proposed, key)
	}
	for i := range decided.Dropped {
		delete(l.proposed, proposalKey(&decided.Dropped[i].Proposal))
	}
	for i := range decided.Propose {
		cmd := &decided.Propose[i].Command
		l.proposed[keyOf(cmd)] = l.decisionOf(w, cmd)
	}
}

// keyOf identifies a command by its reason and its nodes.
func keyOf(cmd *disrupt.Command) string {
	claims := make([]string, 0, len(cmd.Candidates))
	for _, c := range cmd.Candidates {
		claims = append(claims, string(c.Node.ClaimUID))
	}
	return keyOfClaims(string(cmd.Reason), claims)
}

// proposalKey is the key of the command of a proposal.
func proposalKey(p *pass.Proposal) string {
	claims := make([]string, 0, len(p.Nodes))
	for _, n := range p.Nodes {
		claims = append(claims, string(n.UID))
	}
	return keyOfClaims(string(p.Reason), claims)
}

func keyOfClaims(reason string, claims []string) string {
	slices.Sort(claims)
	return reason + " " + strings.Join(claims, " ")
}

// decisionOf is a command without its Snapshot.
func (l *Ledger) decisionOf(w *snapshot.Snapshot, cmd *disrupt.Command) decision {
	d := decision{
		action: Action{At: w.Now, What: ActionRemove, Reason: string(cmd.Reason), Nodes: []string{}, Launches: []Launch{}},
		nodes:  l.pendingNodes(w, cmd.Plan.Launches),
	}
	for _, c := range cmd.Candidates {
		d.claims = append(d.claims, c.Node.ClaimUID)
		d.action.Nodes = append(d.action.Nodes, c.Node.Name)
		d.action.Pods += len(c.Pods)
		d.perHour += c.Price
	}
	d.action.HourlySavings = d.perHour
	for i := range d.nodes {
		d.action.What = ActionReplace
		d.action.Launches = append(d.action.Launches, d.nodes[i].Launch)
		d.action.HourlySavings -= d.nodes[i].Launch.HourlyCost
	}
	return d
}

// decide counts a decision.
func (l *Ledger) decide(d decision) {
	r := &l.state.Report
	r.Decisions = keep(r.Decisions, d.action)
	r.Shadow.Removed += len(d.claims)
	r.Shadow.RemovedHourlyCost += d.perHour
	r.Shadow.Evictions += d.action.Pods
	for _, uid := range d.claims {
		l.state.Removals = append(l.state.Removals, removal{Claim: uid, At: d.action.At})
	}
	for _, n := range d.nodes {
		l.add(n)
	}
	l.changed = true
}

// count prices both fleets.
func (l *Ledger) count(s *snapshot.Snapshot) {
	r := &l.state.Report
	r.Acting.Nodes, r.Acting.HourlyCost = 0, 0
	r.Shadow.Nodes, r.Shadow.HourlyCost = len(l.state.Pending), 0
	removed := l.removed()
	for i := range l.state.Pending {
		r.Shadow.HourlyCost += l.state.Pending[i].Launch.HourlyCost
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Claim == "" || !n.Launched || n.InstanceTerminating {
			continue
		}
		r.Acting.Nodes++
		r.Acting.HourlyCost += n.Price
		if _, gone := removed[n.ClaimUID]; gone || inFlight(n) && n.CreatedAt.After(r.Since) {
			continue
		}
		r.Shadow.Nodes++
		r.Shadow.HourlyCost += n.Price
	}
}
