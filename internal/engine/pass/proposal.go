package pass

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/consolidate"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Proposal is a command that must stay valid until it is due. It names what the command is about, so that no pass holds objects of an
// earlier Snapshot: resolve finds them in a later one.
type Proposal struct {
	// ID identifies the decision. The caller sets it.
	ID     string                  `json:"id,omitempty"`
	Due    time.Time               `json:"due"`
	Reason karpv1.DisruptionReason `json:"reason"`
	// Kind is the label consolidation_type of metrics.
	Kind       string              `json:"kind"`
	Nodes      []ProposedNode      `json:"nodes"`
	Launches   []ProposedLaunch    `json:"launches,omitempty"`
	Placements []ProposedPlacement `json:"placements,omitempty"`
	Savings    quantity.Number     `json:"hourlySavings"`
	Verdicts   []ProposedVerdict   `json:"verdicts,omitempty"`
}

// ProposedNode is a node that the command removes.
type ProposedNode struct {
	Name  string    `json:"name"`
	Claim string    `json:"claim"`
	UID   types.UID `json:"uid"` // of the claim
}

// ProposedLaunch is a replacement.
type ProposedLaunch struct {
	NodePool string    `json:"nodePool"`
	PoolUID  types.UID `json:"poolUID"`
	// Template is a hash of the template of the pool.
	Template      string               `json:"template"`
	Requirements  []requirement.Record `json:"requirements"`
	InstanceTypes []string             `json:"instanceTypes"`
	Offering      ProposedOffering     `json:"offering"`
	Requests      corev1.ResourceList  `json:"requests"`
	Pods          []ProposedPod        `json:"pods"`
	Drivers       []string             `json:"drivers,omitempty"`
	Relaxed       bool                 `json:"minValuesRelaxed,omitempty"`
	// Devices is true if pods have resource claims. The devices themselves have no plain form: a Memory that was read has none.
	Devices bool `json:"devices,omitempty"`

	devices []plan.DeviceUse
}

// ProposedOffering is the cheapest offering of a launch.
type ProposedOffering struct {
	Zone          string          `json:"zone"`
	CapacityType  string          `json:"capacityType"`
	ReservationID string          `json:"reservationID,omitempty"`
	Price         quantity.Number `json:"price"` // $/h
}

// ProposedPod is a pod that moves to a replacement, and what it requested when the command was found.
type ProposedPod struct {
	UID      types.UID           `json:"uid"`
	Requests corev1.ResourceList `json:"requests"`
}

// ProposedPlacement is a node that takes pods.
type ProposedPlacement struct {
	Node    string      `json:"node"`
	Claim   string      `json:"claim,omitempty"`
	Pods    []types.UID `json:"pods"`
	Devices bool        `json:"devices,omitempty"`

	devices []plan.DeviceUse
}

// ProposedVerdict is that of a pool of policy Balanced.
type ProposedVerdict struct {
	NodePool       string          `json:"nodePool"`
	Approved       bool            `json:"approved"`
	Score          quantity.Number `json:"score"`
	Savings        quantity.Number `json:"share"`
	Disruption     quantity.Number `json:"disruptionShare"`
	Saved          quantity.Number `json:"hourlySavings"`
	Disturbed      quantity.Number `json:"disturbed"`
	PoolCost       quantity.Number `json:"poolHourlyCost"`
	PoolDisruption quantity.Number `json:"poolDisruption"`
}

// Claims are the names of the NodeClaims of the command.
func (p *Proposal) Claims() []string {
	out := make([]string, len(p.Nodes))
	for i := range p.Nodes {
		out[i] = p.Nodes[i].Claim
	}
	return out
}

// Propose returns a command as a proposal. A command with a bound, a reboot or a node that is terminated first is never proposed.
func Propose(c *disrupt.Command, due time.Time) Proposal {
	p := Proposal{ID: c.ID, Due: due, Reason: c.Reason, Kind: c.ConsolidationType, Savings: quantity.Number(c.Savings)}
	for _, n := range c.Candidates {
		p.Nodes = append(p.Nodes, ProposedNode{n.Node.Name, n.Node.Claim, n.Node.ClaimUID})
	}
	for i := range c.Plan.Launches {
		p.Launches = append(p.Launches, proposeLaunch(&c.Plan.Launches[i]))
	}
	for i := range c.Plan.Placements {
		pl := &c.Plan.Placements[i]
		p.Placements = append(p.Placements, ProposedPlacement{
			Node: pl.Node, Claim: pl.Claim, Pods: uidsOf(pl.Pods), Devices: len(pl.Devices) > 0, devices: pl.Devices,
		})
	}
	for _, v := range c.Verdicts {
		p.Verdicts = append(p.Verdicts, ProposedVerdict{
			v.Pool.Name, v.Approved, quantity.Number(v.Score), quantity.Number(v.Savings), quantity.Number(v.Disruption),
			quantity.Number(v.Saved), quantity.Number(v.Disturbed), quantity.Number(v.PoolCost), quantity.Number(v.PoolDisruption),
		})
	}
	return p
}

func proposeLaunch(l *plan.Launch) ProposedLaunch {
	out := ProposedLaunch{
		NodePool: l.Pool.Name, PoolUID: l.Pool.UID, Template: templateHash(l.Pool), Requirements: l.Requirements.Records(),
		Offering: ProposedOffering{l.Offering.Zone, l.Offering.CapacityType, l.Offering.ReservationID, quantity.Number(l.Offering.Price)},
		Requests: l.Requests, Drivers: l.Drivers, Relaxed: l.MinValuesRelaxed, Devices: len(l.Devices) > 0, devices: l.Devices,
	}
	for _, t := range l.InstanceTypes {
		out.InstanceTypes = append(out.InstanceTypes, t.Name)
	}
	for _, pod := range l.Pods {
		out.Pods = append(out.Pods, ProposedPod{pod.UID, snapshot.Requests(pod)})
	}
	return out
}

func uidsOf(pods []*corev1.Pod) []types.UID {
	out := make([]types.UID, len(pods))
	for i, p := range pods {
		out[i] = p.UID
	}
	return out
}

// templateHash distinguishes the templates of a pool.
func templateHash(pool *karpv1.NodePool) string {
	data, err := json.Marshal(&pool.Spec.Template)
	if err != nil { // no value that the API server stores fails
		return err.Error()
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// resolver finds what proposals name in a Snapshot.
type resolver struct {
	snap *snapshot.Snapshot
	// pods are all of the Snapshot; nil before a proposal needs one.
	pods map[types.UID]*corev1.Pod
	// templates are the hashes of pools, by name, as far as proposals have needed them.
	templates map[string]string
}

func newResolver(s *snapshot.Snapshot) *resolver {
	return &resolver{snap: s, templates: map[string]string{}}
}

// pod is a pod of the Snapshot; nil if it is gone. The first call costs one pass over the pods.
func (r *resolver) pod(uid types.UID) *corev1.Pod {
	if r.pods == nil {
		r.pods = map[types.UID]*corev1.Pod{}
		for _, list := range [][]*corev1.Pod{r.snap.Pods, r.snap.Virtual, r.snap.Arriving} {
			r.add(list)
		}
		for i := range r.snap.Nodes {
			r.add(r.snap.Nodes[i].Pods)
		}
	}
	return r.pods[uid]
}

func (r *resolver) add(pods []*corev1.Pod) {
	for _, p := range pods {
		r.pods[p.UID] = p
	}
}

// command returns the command with the candidates, which are those of the proposal in the Snapshot. It returns why the command is no longer
// possible: a pool has another template, or a pod that a launch is for requests more. Pods that are gone are left out. An instance type
// that the pool no longer has stays in its launch, without offerings, so that consolidate.Recheck names it.
func (r *resolver) command(p *Proposal, candidates []*disrupt.Candidate) (*disrupt.Command, *consolidate.Invalid) {
	out := &disrupt.Command{
		ID: p.ID, Reason: p.Reason, ConsolidationType: p.Kind, Candidates: candidates, Savings: float64(p.Savings),
	}
	moved := map[types.UID]bool{} // pods on the candidates
	for _, c := range candidates {
		for _, pod := range c.Pods {
			moved[pod.UID] = true
		}
	}
	for i := range p.Launches {
		l, invalid := r.launch(&p.Launches[i], moved)
		if invalid != nil {
			return nil, invalid
		}
		out.Plan.Launches = append(out.Plan.Launches, l)
	}
	for _, pl := range p.Placements {
		out.Plan.Placements = append(out.Plan.Placements, plan.Placement{
			Node: pl.Node, Claim: pl.Claim, Pods: r.existing(pl.Pods), Devices: pl.devices,
		})
	}
	for _, v := range p.Verdicts {
		out.Verdicts = append(out.Verdicts, disrupt.Verdict{
			Pool: r.pool(v.NodePool), Approved: v.Approved, Score: float64(v.Score), Savings: float64(v.Savings),
			Disruption: float64(v.Disruption), Saved: float64(v.Saved), Disturbed: float64(v.Disturbed), PoolCost: float64(v.PoolCost),
			PoolDisruption: float64(v.PoolDisruption),
		})
	}
	return out, nil
}

func (r *resolver) launch(p *ProposedLaunch, moved map[types.UID]bool) (plan.Launch, *consolidate.Invalid) {
	at := slices.IndexFunc(r.snap.Pools, func(s snapshot.Pool) bool {
		return s.NodePool.UID == p.PoolUID && s.NodePool.Name == p.NodePool
	})
	if at < 0 || r.template(r.snap.Pools[at].NodePool) != p.Template {
		return plan.Launch{}, &consolidate.Invalid{
			Kind: consolidate.Scheduling, Message: fmt.Sprintf("NodePool %q launches other nodes now", p.NodePool),
		}
	}
	pool := &r.snap.Pools[at]
	out := plan.Launch{
		Pool: pool.NodePool, Requirements: requirement.FromRecords(p.Requirements), Requests: p.Requests, Drivers: p.Drivers,
		MinValuesRelaxed: p.Relaxed, Devices: p.devices,
		Offering: catalog.Offering{
			Zone: p.Offering.Zone, CapacityType: p.Offering.CapacityType, ReservationID: p.Offering.ReservationID, Price: float64(p.Offering.Price),
		},
	}
	byName := make(map[string]*catalog.InstanceType, len(pool.InstanceTypes))
	for _, t := range pool.InstanceTypes {
		byName[t.Name] = t
	}
	for _, name := range p.InstanceTypes {
		t := byName[name]
		if t == nil {
			t = &catalog.InstanceType{Name: name}
		}
		out.InstanceTypes = append(out.InstanceTypes, t)
	}
	if len(out.InstanceTypes) > 0 {
		if cheapest, ok := out.InstanceTypes[0].Cheapest(out.Requirements); ok {
			out.Offering = cheapest
		}
	}
	for _, old := range p.Pods {
		pod := r.pod(old.UID)
		if pod == nil {
			continue
		}
		// These pods are not simulated again: their launch was made for what they requested then.
		if moved[old.UID] && requestsMore(pod, old.Requests) {
			return plan.Launch{}, &consolidate.Invalid{
				Kind: consolidate.Scheduling, Message: fmt.Sprintf("pod %s/%s requests more than before", pod.Namespace, pod.Name),
			}
		}
		out.Pods = append(out.Pods, pod)
	}
	return out, nil
}

// requestsMore reports whether a pod requests more of a resource than it did.
func requestsMore(pod *corev1.Pod, before corev1.ResourceList) bool {
	for name, q := range snapshot.Requests(pod) {
		if was := before[name]; q.Cmp(was) > 0 {
			return true
		}
	}
	return false
}

func (r *resolver) existing(uids []types.UID) []*corev1.Pod {
	out := make([]*corev1.Pod, 0, len(uids))
	for _, uid := range uids {
		if pod := r.pod(uid); pod != nil {
			out = append(out, pod)
		}
	}
	return out
}

func (r *resolver) template(pool *karpv1.NodePool) string {
	hash, known := r.templates[pool.Name]
	if !known {
		hash = templateHash(pool)
		r.templates[pool.Name] = hash
	}
	return hash
}

// pool is a pool by its name; one that has nothing but the name if it no longer exists.
func (r *resolver) pool(name string) *karpv1.NodePool {
	for i := range r.snap.Pools {
		if p := r.snap.Pools[i].NodePool; p.Name == name {
			return p
		}
	}
	for _, p := range r.snap.Closed {
		if p.Name == name {
			return p
		}
	}
	gone := &karpv1.NodePool{}
	gone.Name = name
	return gone
}
