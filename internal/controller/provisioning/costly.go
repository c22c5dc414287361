package provisioning

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/backoff"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	// costlySteps sets how many steps the pods of a namespace may take in each pass and get no node. That is about 20 ms: with a pass
	// every ten seconds, a five-hundredth of a core.
	costlySteps = 100_000
	// timePerStep states what a step of such pods takes at most; costlyShare is how many times as long as their plan took such pods wait, so
	// that they take a fiftieth of a core. longestWait bounds that.
	timePerStep = 200 * time.Nanosecond
	costlyShare = 50
	longestWait = 2 * time.Minute
	// minCostlyPause and maxCostlyPause bound the pause while nothing changes for such pods.
	minCostlyPause, maxCostlyPause = 20 * time.Second, 30 * time.Minute
	// codePostponed is the rejection code of pods that a plan leaves out during their pause.
	codePostponed schedule.Code = "Postponed"
)

// CostlyPods keeps pods that cost much and get no node from delaying others in each pass. It leaves them out of planning for a pause
// that grows each time, until something changes that they depend on, by namespace. The zero value has none. It is safe for
// concurrent use, and a nil one has none.
type CostlyPods struct {
	mu         sync.Mutex
	namespaces map[string]*costlyNamespace
	seed       maphash.Seed
	seeded     bool
}

// costlyNamespace is the pause of a namespace.
type costlyNamespace struct {
	// earliest is the time when pods with many terms of the namespace are planned again at the earliest, until when the pods are that have got
	// no node, while the cluster is as it was.
	earliest, until time.Time
	cluster         uint64
	// pods are the pods that have got no node.
	pods  map[types.UID]bool
	times int
}

// postponed are the pending pods that a plan leaves out now, each with the time of the next attempt.
func (c *CostlyPods) postponed(snap *snapshot.Snapshot, now time.Time) map[types.UID]time.Time {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.namespaces) == 0 {
		return nil
	}
	nominated := map[types.UID]bool{}
	for i := range snap.Nodes {
		for _, uid := range snap.Nodes[i].Nominated {
			nominated[uid] = true
		}
	}
	out := map[types.UID]time.Time{}
	cluster, known := uint64(0), false
	for _, pod := range snap.Pods {
		n := c.namespaces[pod.Namespace]
		if n == nil || nominated[pod.UID] || pod.Spec.NodeName != "" || !podclass.HasManyTerms(pod) {
			continue
		}
		if now.Before(n.earliest) {
			out[pod.UID] = n.earliest
			continue
		}
		if !known {
			cluster, known = c.clusterOf(snap), true
		}
		if n.pods[pod.UID] && now.Before(n.until) && n.cluster == cluster {
			out[pod.UID] = n.until
		}
	}
	return out
}

// record begins the pauses of the namespaces that the plan names, and stops those of others that were planned.
func (c *CostlyPods) record(snap *snapshot.Snapshot, plan *schedule.Plan, now time.Time) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	costly := map[string]bool{}
	for i := range plan.Costly {
		k := &plan.Costly[i]
		if k.Steps < costlySteps {
			continue
		}
		costly[k.Namespace] = true
		if c.namespaces == nil {
			c.namespaces = map[string]*costlyNamespace{}
		}
		n := c.namespaces[k.Namespace]
		if n == nil {
			n = &costlyNamespace{}
			c.namespaces[k.Namespace] = n
		}
		least := min(longestWait, time.Duration(k.Steps)*timePerStep*costlyShare)
		cluster := c.clusterOf(snap)
		if cluster != n.cluster {
			n.times = 0
		}
		n.earliest = now.Add(least)
		n.until = now.Add(max(least, backoff.Doubling{First: minCostlyPause, Max: maxCostlyPause}.After(n.times)))
		n.cluster, n.pods = cluster, map[types.UID]bool{}
		n.times++
		for _, pod := range k.Pods {
			n.pods[pod.UID] = true
		}
	}
	for name, n := range c.namespaces {
		if !costly[name] && now.Sub(n.until) > maxCostlyPause {
			delete(c.namespaces, name)
		}
	}
}

// clusterOf identifies what decides whether pending pods get a node: pools, offerings, nodes with their labels and taints, and the pods
// there.
//
// Cost: linear in pools with their offerings, nodes, and pods on nodes.
func (c *CostlyPods) clusterOf(snap *snapshot.Snapshot) uint64 {
	if !c.seeded {
		c.seed, c.seeded = maphash.MakeSeed(), true
	}
	var sum uint64 // of hashes, so that order does not matter
	add := func(parts ...string) {
		var h maphash.Hash
		h.SetSeed(c.seed)
		for _, part := range parts {
			_, _ = h.WriteString(part)
			_ = h.WriteByte(0)
		}
		sum += h.Sum64()
	}
	for i := range snap.Pools {
		p := &snap.Pools[i]
		add("pool", p.NodePool.Name, string(p.NodePool.UID), fmt.Sprint(p.NodePool.Generation))
		available := 0
		for _, it := range p.InstanceTypes {
			for k := range it.Offerings {
				if it.Offerings[k].Available {
					available++
				}
			}
		}
		add("offerings", p.NodePool.Name, fmt.Sprint(len(p.InstanceTypes), available))
	}
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		parts := []string{"node", n.Name, fmt.Sprint(n.Deleting, n.Initialized)}
		for _, t := range n.Taints {
			parts = append(parts, t.Key, t.Value, string(t.Effect))
		}
		keys := make([]string, 0, len(n.Labels))
		for k, v := range n.Labels {
			keys = append(keys, k+"="+v)
		}
		slices.Sort(keys)
		add(append(parts, keys...)...)
		for _, pod := range n.Pods {
			add("pod", string(pod.UID), n.Name)
		}
	}
	return sum
}

// Without is the snapshot without the pending pods that are left out of plans now.
func (c *CostlyPods) Without(snap *snapshot.Snapshot, now time.Time) *snapshot.Snapshot {
	return without(snap, c.postponed(snap, now))
}

// rejections returns those of pods that a plan leaves out.
func rejections(snap *snapshot.Snapshot, pods map[types.UID]time.Time) []schedule.Rejection {
	var out []schedule.Rejection
	for _, pod := range snap.Pods {
		if next, postponed := pods[pod.UID]; postponed {
			out = append(out, schedule.Rejection{Pod: pod, Reasons: []schedule.Reason{{Code: codePostponed, Rule: stated(
				"the terms of the pod take very many steps of a plan, and it has got no node; it is planned again at %s at the latest",
				next.UTC().Format(eventTimeFormat),
			)}}})
		}
	}
	return out
}

// isPostponed reports whether a pod was rejected because the plan leaves it out during its pause.
func isPostponed(r *schedule.Rejection) bool { return r.Reasons[0].Code == codePostponed }

// without is the snapshot without pending pods.
func without(snap *snapshot.Snapshot, pods map[types.UID]time.Time) *snapshot.Snapshot {
	if len(pods) == 0 {
		return snap
	}
	out := *snap
	out.Pods = slices.DeleteFunc(slices.Clone(snap.Pods), func(pod *corev1.Pod) bool {
		_, postponed := pods[pod.UID]
		return postponed
	})
	return &out
}
