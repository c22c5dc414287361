package propertytest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// meanwhileSeeds are added to the number of a world, for what changes between two passes.
const meanwhileSeeds = 13_000_000

// meanwhile returns the world after a while in which pods came to some nodes, left others, or wait for a node, and nodes have gone.
func (d random) meanwhile(s *snapshot.Snapshot, later time.Duration) *snapshot.Snapshot {
	out := at(s, later)
	out.Nodes = slices.Clone(s.Nodes)
	out.Pods = slices.Clone(s.Pods)
	for i := range out.Nodes {
		n := &out.Nodes[i]
		switch {
		case n.Claim == "" || !d.maybe(30):
		case d.maybe(60) && hasPods(s):
			n.Pods, n.Consolidatable = append(slices.Clone(n.Pods), d.arrival(s, n.Name)), false
		case len(n.Pods) > 0:
			n.Pods, n.Consolidatable = slices.Clone(n.Pods[1:]), false
		default:
			n.Claim, n.ClaimUID = "", "" // its claim has gone, and the node is about to go
		}
	}
	if d.maybe(30) && hasPods(s) { // they need room that commands count on
		for range d.n(6 * len(s.Nodes)) {
			out.Pods = append(out.Pods, d.arrival(s, ""))
		}
	}
	return out
}

// fragmentedFleets are fleets with proposals of several nodes.
const fragmentedFleets = 60

func fragmentedFleet(t *testing.T, seed uint64) *snapshot.Snapshot {
	s, err := workload.RunningCluster(24, 0.3, seed, linearTypes(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Pools[0].NodePool.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	return s
}

func hasPods(s *snapshot.Snapshot) bool {
	return slices.ContainsFunc(s.Nodes, func(n snapshot.Node) bool { return len(n.Pods) > 0 })
}

// arrival is another pod like one that runs in the world, on the named node or on none.
func (d random) arrival(s *snapshot.Snapshot, node string) *corev1.Pod {
	var running []*corev1.Pod
	for i := range s.Nodes {
		running = append(running, s.Nodes[i].Pods...)
	}
	p := pick(d, running...).DeepCopy()
	p.Name, p.UID = fmt.Sprintf("%s-%d", p.Name, d.n(1000)), types.UID(fmt.Sprintf("%s-%d", p.UID, d.n(1<<16)))
	p.Spec.NodeName = node
	return p
}

// Whatever happens between two passes: each proposal starts, waits on or is dropped, nothing starts on a node that a pod has come to
// lately or that is gone, and no node goes twice.
func TestProposalsMeetChanges(t *testing.T) {
	started, dropped, parts := 0, 0, 0
	meet := func(seed uint64, s *snapshot.Snapshot) {
		decided, remembers := pass.Decide(controllerPass(s, pass.Memory{}))
		if len(remembers.Proposals) == 0 {
			return
		}
		started += len(decided.Start)
		d := seeded(seed + meanwhileSeeds)
		for _, later := range []time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Second} {
			s = d.meanwhile(s, later)
			before := remembers.Proposals
			var due pass.Decisions
			due, remembers = pass.Decide(controllerPass(s, remembers))
			checkStarted(t, seed, s, &due)
			started += len(due.Start)
			for _, p := range before {
				waits := slices.ContainsFunc(remembers.Proposals, func(q pass.Proposal) bool { return sharesNode(p, q.Nodes) })
				starts := slices.ContainsFunc(due.Start, func(c pass.Decision) bool {
					return slices.ContainsFunc(p.Nodes, func(n pass.ProposedNode) bool { return startsNode(c, n.UID) })
				})
				gone := 0
				for _, x := range due.Dropped {
					if sharesNode(p, x.Proposal.Nodes) {
						gone++
						if x.Part {
							parts++
						}
					}
				}
				dropped += gone
				if !waits && !starts && gone == 0 {
					t.Errorf("seed %d: the proposal about %v is lost after %v", seed, p.Nodes, later)
				}
			}
		}
	}
	eachPassWorld(t, meet)
	for seed := range uint64(fragmentedFleets) { // their commands have several nodes
		meet(seed, fragmentedFleet(t, seed))
	}
	if started < 100 || dropped < 100 || parts < 10 {
		t.Errorf("%d commands started, %d were dropped, %d in part: that proves little", started, dropped, parts)
	}
}

func sharesNode(p pass.Proposal, nodes []pass.ProposedNode) bool {
	return slices.ContainsFunc(p.Nodes, func(n pass.ProposedNode) bool {
		return slices.ContainsFunc(nodes, func(m pass.ProposedNode) bool { return m.UID == n.UID })
	})
}

func startsNode(c pass.Decision, uid types.UID) bool {
	for _, candidate := range c.Candidates {
		if candidate.Node.ClaimUID == uid {
			return true
		}
	}
	return false
}

func savesMoney(r karpv1.DisruptionReason) bool {
	return r == karpv1.DisruptionEmpty || r == karpv1.DisruptionUnderutilized
}

// checkStarted reports a command that disrupts a node twice, or for savings a node that a pod has come to or left lately.
func checkStarted(t *testing.T, seed uint64, s *snapshot.Snapshot, decided *pass.Decisions) {
	t.Helper()
	seen := map[types.UID]bool{}
	for i := range decided.Start {
		c := &decided.Start[i]
		for _, candidate := range c.Candidates {
			n := candidate.Node
			if seen[n.ClaimUID] {
				t.Errorf("seed %d: node %s is disrupted twice", seed, n.Name)
			}
			seen[n.ClaimUID] = true
			at := slices.IndexFunc(s.Nodes, func(m snapshot.Node) bool { return m.ClaimUID == n.ClaimUID })
			if at < 0 {
				t.Errorf("seed %d: %s of node %s, which is gone", seed, c.Reason, n.Name)
				continue
			}
			if savesMoney(c.Reason) && !s.Nodes[at].Consolidatable {
				t.Errorf("seed %d: %s of node %s, which a pod has come to or left lately", seed, c.Reason, n.Name)
			}
		}
	}
}
