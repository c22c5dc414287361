package disrupt

import (
	"cmp"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Expirations are how the nodes of pools go before their expireAfter has passed, by the name of the pool. Pools with nodes that do not are
// not in it.
type Expirations map[string]*karpv1.Expiration

// ExpirationsOf are those of the pools of a Snapshot; nil if there are none.
func ExpirationsOf(s *snapshot.Snapshot) (out Expirations) {
	for i := range s.Pools {
		out.add(s.Pools[i].NodePool)
	}
	for _, p := range s.Closed {
		out.add(p)
	}
	return out
}

func (x *Expirations) add(p *karpv1.NodePool) {
	e := p.Graceful()
	if e == nil {
		return
	}
	if *x == nil {
		*x = Expirations{}
	}
	(*x)[p.Name] = e
}

// Of is how a node goes before its expireAfter has passed; nil if it does not.
func (x Expirations) Of(n *snapshot.Node) *karpv1.Expiration {
	if n.Claim == "" || n.ExpireAfter <= 0 {
		return nil
	}
	return x[n.Pool]
}

// DueAt is from when on a node is replaced since its expireAfter comes near; zero if it is not.
func (x Expirations) DueAt(n *snapshot.Node) time.Time {
	if e := x.Of(n); e != nil {
		return e.Due(n.ClaimUID, n.CreatedAt, n.ExpireAfter)
	}
	return time.Time{}
}

// Due reports whether a node is to be replaced since its expireAfter comes near. Drift replaces the drifted ones.
func (x Expirations) Due(n *snapshot.Node, now time.Time) bool {
	at := x.DueAt(n)
	return !at.IsZero() && !now.Before(at) && n.DriftedAt.IsZero()
}

// ExpiresAt is when expireAfter of a node has passed; zero if it never does.
func ExpiresAt(n *snapshot.Node) time.Time {
	if n.ExpireAfter <= 0 {
		return time.Time{}
	}
	return n.CreatedAt.Add(n.ExpireAfter)
}

// Expiring returns the candidates with an expireAfter that comes near, of static pools if static is true, or else of the others.
func (v *View) Expiring(static bool) []*Candidate {
	if len(v.Expirations) == 0 {
		return nil
	}
	var out []*Candidate
	for _, list := range [][]*Candidate{v.Candidates, v.BoundedDrain} {
		for _, c := range list {
			if (c.Pool.Spec.Replicas != nil) == static && v.Expirations.Due(c.Node, v.Snapshot.Now) {
				out = append(out, c)
			}
		}
	}
	return out
}

// NextDue is when the next node is to be replaced since its expireAfter comes near; zero if there is none after now.
func (v *View) NextDue() (first time.Time) {
	if len(v.Expirations) == 0 {
		return time.Time{}
	}
	for i := range v.Snapshot.Nodes {
		at := v.Expirations.DueAt(&v.Snapshot.Nodes[i])
		if at.After(v.Snapshot.Now) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// ExpiryAllowances are what the budgets allow for nodes with an expireAfter that comes near: in each pool, those of the reason that its
// annotation states. of are the allowances by reason, in one order of pools. It is nil if no pool replaces such nodes.
func (v *View) ExpiryAllowances(of map[karpv1.DisruptionReason][]Allowance) []Allowance {
	if len(v.Expirations) == 0 {
		return nil
	}
	out := make([]Allowance, len(of[karpv1.DisruptionDrifted]))
	for i, drifted := range of[karpv1.DisruptionDrifted] {
		out[i] = drifted
		if e := v.Expirations[drifted.Pool.Name]; e != nil {
			out[i] = of[e.BudgetReason][i]
		}
	}
	return out
}

// ExpiryOrder sorts candidates with an expireAfter that comes near into the order in which they are tried: as DriftOrder,
// except that within a pool those go first that expire first.
func (a *DriftBackoff) ExpiryOrder(candidates []*Candidate, now time.Time) []*Candidate {
	return a.takeTurns(candidates, now, turn{
		since: func(c *Candidate) time.Time { return ExpiresAt(c.Node) },
		order: func(x, y *Candidate) int {
			return cmp.Or(
				cmp.Compare(a.failed[x.Node.ClaimUID], a.failed[y.Node.ClaimUID]),
				ExpiresAt(x.Node).Compare(ExpiresAt(y.Node)),
				cmp.Compare(x.Node.Name, y.Node.Name),
			)
		},
	})
}
