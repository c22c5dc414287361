package assess

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// future is a cluster in which commands have been carried out. It never changes the snapshot that it began with.
type future struct {
	*snapshot.Snapshot
	// launched counts the nodes that exist only here.
	launched int
}

// newFuture returns the cluster a moment later, once all that has begun is done: nodes in flight are initialized, nodes that are
// being deleted are gone, pods have been where they are for the consolidateAfter of their pools, and no node is young. Files without a
// time of their own are as old as their newest object, so that all nodes could be young there.
func newFuture(s *snapshot.Snapshot) *future {
	own := *s
	own.Pools = slices.Clone(s.Pools)
	own.Nodes = make([]snapshot.Node, 0, len(s.Nodes))
	never := map[string]bool{}
	for i := range s.Pools {
		never[s.Pools[i].NodePool.Name] = s.Pools[i].NodePool.Spec.Disruption.ConsolidateAfter.IsNever()
	}
	for _, n := range s.Nodes {
		if leaves(&n) {
			continue // its pods are among those to schedule
		}
		if n.Claim != "" && n.Launched && !n.Initialized {
			n.Registered, n.Initialized, n.Ready = true, true, true
		}
		n.Consolidatable = n.Claim != "" && !never[n.Pool]
		if old := s.Now.Add(-oldEnough); n.CreatedAt.After(old) {
			n.CreatedAt = old
		}
		own.Nodes = append(own.Nodes, n)
	}
	f := &future{Snapshot: &own}
	f.countUse()
	return f
}

// leaves reports whether a node of a NodePool is being deleted.
func leaves(n *snapshot.Node) bool { return n.Claim != "" && n.Deleting }

// schedule carries out a plan for the pending pods.
func (f *future) schedule(plan *schedule.Plan) {
	fits := map[types.UID]bool{}
	for _, p := range plan.Placements {
		note(fits, p.Pods)
	}
	for i := range plan.Launches {
		note(fits, plan.Launches[i].Pods)
	}
	f.Pods = slices.DeleteFunc(slices.Clone(f.Pods), func(p *corev1.Pod) bool { return fits[p.UID] })
	f.carryOut(nil, plan)
}

func note(seen map[types.UID]bool, pods []*corev1.Pod) {
	for _, p := range pods {
		seen[p.UID] = true
	}
}

// apply carries out commands of one pass.
func (f *future) apply(commands []disrupt.Command) {
	gone := map[string]bool{}
	for i := range commands {
		for _, c := range commands[i].Candidates {
			gone[c.Node.Name] = true
		}
	}
	plans := make([]*schedule.Plan, 0, len(commands))
	for i := range commands {
		plans = append(plans, &commands[i].Plan)
	}
	f.carryOut(gone, plans...)
}

// carryOut removes nodes by name, launches those of the plans, and moves the pods as planned.
func (f *future) carryOut(gone map[string]bool, plans ...*schedule.Plan) {
	next := *f.Snapshot
	next.Nodes = slices.DeleteFunc(slices.Clone(f.Nodes), func(n snapshot.Node) bool { return gone[n.Name] })
	at := make(map[string]int, len(next.Nodes))
	for i := range next.Nodes {
		at[next.Nodes[i].Name] = i
	}
	for _, plan := range plans {
		for _, p := range plan.Placements {
			if i, known := at[p.Node]; known {
				f.bind(&next.Nodes[i], p.Pods)
			}
		}
		for i := range plan.Launches {
			n := f.launch(&plan.Launches[i])
			f.bind(&n, plan.Launches[i].Pods)
			next.Nodes = append(next.Nodes, n)
		}
	}
	f.Snapshot = &next
	f.countUse()
}

// bind puts pods on a node, as its own copies: they have just started there.
func (f *future) bind(n *snapshot.Node, pods []*corev1.Pod) {
	n.Pods = slices.Clone(n.Pods)
	for _, p := range pods {
		own := *p
		own.Spec.NodeName, own.Status.Phase, own.Status.StartTime = n.Name, corev1.PodRunning, &metav1.Time{Time: f.Now}
		own.Status.Conditions = slices.DeleteFunc(slices.Clone(p.Status.Conditions), func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled
		})
		n.Pods = append(n.Pods, &own)
	}
}

// launch returns the node that a launch becomes.
func (f *future) launch(l *schedule.Launch) snapshot.Node {
	f.launched++
	n := l.Node(fmt.Sprintf("new-%d", f.launched), f.Snapshot)
	n.Registered, n.Initialized, n.Ready = true, true, true
	n.Labels[karpv1.LabelRegistered], n.Labels[karpv1.LabelInitialized] = "true", "true"
	n.Consolidatable = !l.Pool.Spec.Disruption.ConsolidateAfter.IsNever()
	return n
}

// countUse counts what the nodes of each pool use of its limits.
func (f *future) countUse() {
	used := map[string]corev1.ResourceList{}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if n.Pool == "" || n.Deleting {
			continue
		}
		if used[n.Pool] == nil {
			used[n.Pool] = corev1.ResourceList{}
		}
		addTo(used[n.Pool], n.Capacity)
		addTo(used[n.Pool], corev1.ResourceList{cluster.ResourceNodes: *resource.NewQuantity(1, resource.DecimalSI)})
	}
	f.Pools = slices.Clone(f.Pools)
	for i := range f.Pools {
		f.Pools[i].Used = used[f.Pools[i].NodePool.Name]
	}
}

func addTo(sum, more corev1.ResourceList) {
	for name, q := range more {
		have := sum[name].DeepCopy()
		have.Add(q)
		sum[name] = have
	}
}

// wait lets time pass.
func (f *future) wait(d time.Duration) {
	next := *f.Snapshot
	next.Now = f.Now.Add(d)
	f.Snapshot = &next
}
