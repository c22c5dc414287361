package nodes

import (
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics/computed"
)

// NewExpirationCollector returns a collector of when nodes expire, and of nothing else.
func NewExpirationCollector(cfg Config) *computed.Collector[*world] {
	ofNode, keys := cfg.labels()
	read := func() (*world, error) { return cfg.readNodes(keys) }
	return computed.New(expirationGauges(ofNode), read, func(err error) {
		cfg.Log.Error("collecting when nodes expire", "error", err)
	})
}

// expirationGauges are the metrics of when nodes expire.
func expirationGauges(ofNode []string) []computed.Gauge[*world] {
	until := func(of func(*node) (time.Time, bool)) func(*world, computed.Send) {
		return func(w *world, send computed.Send) {
			for i := range w.nodes {
				if at, known := of(&w.nodes[i]); known {
					send(at.Sub(w.now).Seconds(), w.nodes[i].labels...)
				}
			}
		}
	}
	return []computed.Gauge[*world]{
		{
			Name: "karpenter_nodes_time_until_expiration_seconds", Labels: ofNode, Each: until(expiresAt),
			Help: "Time until expireAfter of a node has passed; negative once it has.",
		},
		{
			Name: "karpenter_nodes_time_until_forced_termination_seconds", Labels: ofNode, Each: until(forcedAt),
			Help: "Time until the pods of a node are deleted, whatever PodDisruptionBudgets allow; negative once it has passed.",
		},
	}
}

// expiresAt is when expireAfter of a node has passed; false if it never does.
func expiresAt(n *node) (time.Time, bool) {
	if n.claim == nil || n.claim.Spec.ExpireAfter.Duration == nil {
		return time.Time{}, false
	}
	return n.claim.CreationTimestamp.Add(*n.claim.Spec.ExpireAfter.Duration), true
}

// forcedAt is when the pods of a node are deleted, whatever protects them: the deadline of its drain once it has one, else its
// terminationGracePeriod after it is deleted since it has expired, and the grace of its pool before; false if neither is.
func forcedAt(n *node) (time.Time, bool) {
	if n.claim == nil {
		return time.Time{}, false
	}
	if at, err := n.claim.TerminationDeadline(); err == nil && at != nil {
		return *at, true
	}
	at, expires := expiresAt(n)
	if !expires || n.claim.Spec.TerminationGracePeriod == nil {
		return time.Time{}, false
	}
	return at.Add(n.grace + n.claim.Spec.TerminationGracePeriod.Duration), true
}

// graces are how long after expireAfter the nodes of pools are deleted, by the name of the pool; 0 where it is not in it.
func graces(pools []karpv1.NodePool) map[string]time.Duration {
	out := map[string]time.Duration{}
	for i := range pools {
		if e := pools[i].Graceful(); e != nil && e.Grace > 0 {
			out[pools[i].Name] = e.Grace
		}
	}
	return out
}
