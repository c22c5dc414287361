// Package poolreport explains one NodePool: what its budgets allow now and over the day, what is disrupted, why its nodes
// stay, which of them drifted by which field, and what its requirements leave of the catalog.
package poolreport

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/budgets"
	"github.com/dovetail-k8s/dovetail/internal/inspect/drifted"
	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
)

// Report explains a NodePool. Prices are in $/h.
type Report struct {
	Name string `json:"name"`
	// Verdict is the most important of it in one sentence.
	Verdict string `json:"verdict"`
	// Nodes counts what budgets count: managed, initialized nodes. Starting are those that are not up yet.
	Nodes    int `json:"nodes"`
	Starting int `json:"starting"`
	// Replicas is nil for a pool that follows the needs of pods.
	Replicas   *int64  `json:"replicas,omitempty"`
	Weight     int32   `json:"weight"`
	HourlyCost float64 `json:"hourlyCost"`
	// Conditions are the conditions that are not as they should be; all of them with -o json.
	Conditions []Condition `json:"conditions"`
	Limits     []Limit     `json:"limits"`
	// BudgetError states why the budgets are invalid; Budgets is empty then.
	BudgetError string             `json:"budgetError"`
	Budgets     []budgets.Schedule `json:"budgets"`
	// Disrupted are the nodes that budgets count as disrupted now.
	Disrupted []Disrupted `json:"disrupted"`
	// Going are the nodes that the next passes would remove, Stays why the others stay, most frequent first.
	Going []Going `json:"going"`
	Stays []Stays `json:"stays"`
	// Stopped is true if the search stopped at its limit before it came to some nodes of the pool: more may be Going.
	Stopped bool `json:"stopped"`
	// Computing is true for a report of what is known without a plan: Going and Stays are empty then.
	Computing bool `json:"computing,omitempty"`
	// Drift has the nodes that drifted, by what they drifted by.
	Drift []Drift `json:"drift"`
	// Types counts how many instance types the node class offers, Admitted how many the requirements leave, Excluded how many
	// each requirement alone excludes, most first.
	Types    int        `json:"types"`
	Admitted int        `json:"admitted"`
	Excluded []Excluded `json:"excluded"`
	Prices   string     `json:"prices"`
	// PricesProblem states why they are not those that were requested, or not all of them.
	PricesProblem string    `json:"pricesProblem,omitempty"`
	Now           time.Time `json:"now"`
}

// Condition is a status condition.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Bad is true if it is not as it should be.
	Bad bool `json:"bad"`
}

// Limit is a limit of the pool.
type Limit struct {
	Resource string `json:"resource"`
	Used     string `json:"used"`
	Limit    string `json:"limit"`
	// Share of the limit, from 0 to 1, and above where more is used.
	Share float64 `json:"share"`
}

// DisruptedState states why a node counts against budgets.
type DisruptedState string

// The states of nodes that count against budgets.
const (
	NotReady  DisruptedState = "NotReady"
	Rebooting DisruptedState = "Rebooting"
	Leaving   DisruptedState = "Leaving"
)

// Disrupted is a node that counts against budgets.
type Disrupted struct {
	Node string `json:"node"`
	// State is NotReady, Rebooting or Leaving; Why is it in words.
	State DisruptedState `json:"state"`
	Why   string         `json:"why"`
	// Command is the ID of the disruption command; empty if there is none, or another controller's.
	Command string `json:"command"`
}

// Going is a node that one of the next passes would remove: of drifted nodes each takes some.
type Going struct {
	Node          string  `json:"node"`
	Reason        string  `json:"reason"`
	HourlySavings float64 `json:"hourlySavings"`
	// Together counts how many nodes its command removes.
	Together int `json:"together"`
}

// Stays is a reason for which nodes stay.
type Stays struct {
	// Code is the rule, Message it in words.
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Nodes   int      `json:"nodes"`
	Names   []string `json:"names"`
}

// Drift is a difference by which nodes drifted.
type Drift struct {
	Reason string          `json:"reason"`
	Fields []drifted.Field `json:"fields"`
	Nodes  int             `json:"nodes"`
	Names  []string        `json:"names"`
}

// Excluded counts how many instance types a requirement excludes.
type Excluded struct {
	Requirement string `json:"requirement"`
	Types       int    `json:"types"`
}

// examples sets how many nodes are named for each reason.
const examples = 3

// Of explains the NodePool of a name.
func Of(v *inspect.View, name string) (*Report, error) {
	return OfDecisions(nodereport.Decide(v), name)
}

// OfDecisions explains the NodePool of a name by decisions that others share.
func OfDecisions(d *nodereport.Decisions, name string) (*Report, error) {
	return of(d.View, name, d)
}

// Known returns what is known of the NodePool of a name without a plan.
func Known(v *inspect.View, name string) (*Report, error) { return of(v, name, nil) }

// of explains a NodePool, without decisions as far as it takes none.
func of(v *inspect.View, name string, d *nodereport.Decisions) (*Report, error) {
	at := slices.IndexFunc(v.NodePools, func(p *karpv1.NodePool) bool { return p.Name == name })
	if at < 0 {
		return nil, inspect.NotFound("NodePool", name, v.NodePools)
	}
	b := &builder{View: v, known: nodereport.KnownOf(v), decisions: d, pool: v.NodePools[at]}
	r := &Report{
		Name: name, Replicas: b.pool.Spec.Replicas, Conditions: conditions(b.pool), Limits: b.limits(), Budgets: []budgets.Schedule{},
		Disrupted: []Disrupted{}, Going: []Going{}, Stays: []Stays{}, Drift: []Drift{}, Excluded: []Excluded{},
		Prices: v.Prices, PricesProblem: v.PricesProblem, Now: v.Snapshot.Now.UTC(),
	}
	if w := b.pool.Spec.Weight; w != nil {
		r.Weight = *w
	}
	b.budgets(r)
	b.nodes(r)
	b.drift(r)
	b.types(r)
	r.Verdict = r.verdict()
	return r, nil
}

// builder makes the report of one pool.
type builder struct {
	*inspect.View
	known     *nodereport.Known
	decisions *nodereport.Decisions // nil if there are none yet
	pool      *karpv1.NodePool
}

// conditions returns those of the pool. Most should be true; those that exist only while something is wrong should not.
func conditions(pool *karpv1.NodePool) []Condition {
	out := []Condition{}
	for _, c := range pool.Status.Conditions {
		alarm := slices.Contains([]string{
			karpv1.ConditionClusterNameShared, karpv1.ConditionDisruptionPaused, karpv1.ConditionInterruptionQueueUnavailable,
			karpv1.ConditionPodsRefused,
		}, c.Type)
		bad := c.Status != metav1.ConditionTrue
		if alarm || c.Type == karpv1.ConditionNodeRegistrationHealthy && c.Status == metav1.ConditionUnknown {
			bad = alarm && c.Status == metav1.ConditionTrue
		}
		out = append(out, Condition{c.Type, string(c.Status), c.Reason, c.Message, bad})
	}
	return out
}

// limits are the limits with what counts against them.
func (b *builder) limits() []Limit {
	out := []Limit{}
	used := corev1.ResourceList{}
	for i := range b.Snapshot.Pools {
		if b.Snapshot.Pools[i].NodePool == b.pool {
			used = b.Snapshot.Pools[i].Used
		}
	}
	for name, limit := range b.pool.Spec.Limits {
		have := used[name]
		if name == cluster.ResourceNodes && b.pool.Spec.Replicas != nil {
			have = *resource.NewQuantity(int64(b.members()), resource.DecimalSI)
		}
		share := 0.0
		if most := limit.AsApproximateFloat64(); most > 0 {
			share = have.AsApproximateFloat64() / most
		}
		out = append(out, Limit{string(name), have.String(), limit.String(), share})
	}
	slices.SortFunc(out, func(x, y Limit) int { return cmp.Compare(x.Resource, y.Resource) })
	return out
}

// members returns how many nodes and claims the pool has.
func (b *builder) members() int {
	n := 0
	for i := range b.Snapshot.Nodes {
		if b.Snapshot.Nodes[i].Claim != "" && b.Snapshot.Nodes[i].Pool == b.pool.Name {
			n++
		}
	}
	return n
}

// budgets evaluates the budgets, and lists the nodes that count against them.
func (b *builder) budgets(r *Report) {
	a := b.known.Allowance(b.pool.Name, karpv1.DisruptionUnderutilized)
	r.Nodes = a.Nodes
	schedules, err := budgets.Schedules(b.pool, a.Nodes, b.Snapshot.Now)
	if err != nil {
		r.BudgetError = err.Error()
		return
	}
	r.Budgets = append(r.Budgets, schedules...)
}

// nodes sorts the nodes of the pool into those that are disrupted, going, starting and staying.
func (b *builder) nodes(r *Report) {
	stays := map[string]*Stays{}
	var order []string
	for i := range b.Snapshot.Nodes {
		n := &b.Snapshot.Nodes[i]
		if n.Claim == "" || n.Pool != b.pool.Name {
			continue
		}
		d, known := b.known.Outcome(i)
		r.HourlyCost += d.Price
		switch {
		case known:
		case b.decisions == nil:
			d.State, r.Computing = undecided, true
		default:
			d = b.decisions.Outcome(i)
		}
		r.Stopped = r.Stopped || d.Unexamined
		switch {
		case d.State == nodereport.Leaving || n.Initialized && !n.Ready || n.Rebooting:
			state, why := disrupted(d, n)
			r.Disrupted = append(r.Disrupted, Disrupted{n.Name, state, why, d.Command})
		case d.State == nodereport.Starting:
			r.Starting++
		case d.State == nodereport.Goes:
			r.Going = append(r.Going, Going{n.Name, d.Reason, d.Saves, d.Together})
		case d.State == undecided:
		default:
			why := cmp.Or(d.Why, "nothing says that it should go")
			if stays[d.Class] == nil {
				stays[d.Class] = &Stays{Code: d.Reason, Message: why, Names: []string{}}
				order = append(order, d.Class)
			}
			s := stays[d.Class]
			if s.Nodes++; len(s.Names) < examples {
				s.Names = append(s.Names, n.Name)
			}
		}
	}
	for _, class := range order {
		r.Stays = append(r.Stays, *stays[class])
	}
	slices.SortStableFunc(r.Stays, func(x, y Stays) int { return cmp.Compare(y.Nodes, x.Nodes) })
}

// undecided is the state of a node that stays or goes, as long as nobody has decided which.
const undecided nodereport.State = ""

// disrupted is in which state a node counts against budgets, and why.
func disrupted(d nodereport.Outcome, n *snapshot.Node) (DisruptedState, string) {
	switch {
	case d.State == nodereport.Leaving:
		return Leaving, d.Why
	case n.Rebooting:
		return Rebooting, "it reboots"
	}
	return NotReady, "it is not Ready"
}

// drift groups the drifted nodes by what they drifted by.
func (b *builder) drift(r *Report) {
	at := map[string]int{}
	for _, claim := range b.NodeClaims {
		if claim.Labels[karpv1.LabelNodePool] != b.pool.Name || claim.DeletionTimestamp != nil {
			continue
		}
		d := drifted.Of(b.View, claim)
		if d == nil {
			continue
		}
		key := d.Text()
		if d.Since == nil {
			key += " (not marked yet)"
		}
		if _, known := at[key]; !known {
			at[key] = len(r.Drift)
			r.Drift = append(r.Drift, Drift{Reason: d.Reason, Fields: d.Fields, Names: []string{}})
		}
		g := &r.Drift[at[key]]
		if g.Nodes++; len(g.Names) < examples {
			g.Names = append(g.Names, cmp.Or(claim.Status.NodeName, claim.Name))
		}
	}
	slices.SortStableFunc(r.Drift, func(x, y Drift) int {
		return cmp.Or(cmp.Compare(y.Nodes, x.Nodes), strings.Compare(x.Reason, y.Reason))
	})
}

// types counts what the requirements leave of the catalog.
func (b *builder) types(r *Report) {
	at := slices.IndexFunc(b.Snapshot.Pools, func(p snapshot.Pool) bool { return p.NodePool == b.pool })
	if at < 0 {
		return
	}
	pool := &b.Snapshot.Pools[at]
	reqs, err := b.Snapshot.Labels.FromPool(pool.NodePool, pool.NodeClassLabel)
	if err != nil {
		return
	}
	counts := map[string]int{}
	r.Types = len(pool.InstanceTypes)
	for _, it := range pool.InstanceTypes {
		admitted := true
		for _, q := range reqs.All() {
			if it.Requirements.Defines(q.Key()) && !it.Requirements.Get(q.Key()).Overlaps(q) {
				admitted = false
				counts[wording.Requirement(q)]++
			}
		}
		if !admitted {
			continue
		}
		if o, ok := it.Cheapest(reqs); ok && !math.IsNaN(o.Price) {
			r.Admitted++
		} else {
			counts[noOffering]++
		}
	}
	for text, n := range counts {
		r.Excluded = append(r.Excluded, Excluded{text, n})
	}
	slices.SortFunc(r.Excluded, func(x, y Excluded) int {
		return cmp.Or(cmp.Compare(y.Types, x.Types), strings.Compare(x.Requirement, y.Requirement))
	})
}

// noOffering stands for types that the requirements admit, and that nobody sells now where they may run.
const noOffering = "no offering is available now in the zones and capacity types that are left"
