package podreport

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// whatIf plans the cluster with changes.
type whatIf struct {
	view *inspect.View
	// base is the view's snapshot, with those pools closed that launch nothing now.
	base *snapshot.Snapshot
	pod  types.UID
	// plans counts the plans made.
	plans int
}

// newWhatIf plans the view with pools closed.
func newWhatIf(view *inspect.View, pod *corev1.Pod, closed []PoolReason) *whatIf {
	return &whatIf{view: view, base: withoutPools(view.Snapshot, closed), pod: pod.UID}
}

// trial is a snapshot that changes are applied to. It shares all that they do not change with the view's.
type trial struct {
	*snapshot.Snapshot
	view *inspect.View
	// pod is the pod that is explained.
	pod types.UID
	// nodes is true once Nodes is a copy.
	nodes bool
}

// newTrial copies what changes replace: the lists and maps, not the objects.
func (w *whatIf) newTrial() *trial {
	s := *w.base
	s.Pools, s.Closed = slices.Clone(s.Pools), slices.Clone(s.Closed)
	s.Pods, s.Arriving, s.DaemonSets = slices.Clone(s.Pods), slices.Clone(s.Arriving), slices.Clone(s.DaemonSets)
	s.Volumes.Claims, s.Volumes.StorageClasses = maps.Clone(s.Volumes.Claims), maps.Clone(s.Volumes.StorageClasses)
	return &trial{Snapshot: &s, view: w.view, pod: w.pod}
}

// outcome describes what a plan makes of the pod.
type outcome struct {
	plan schedule.Plan
	// place states where the pod goes; nil if nowhere.
	place *Place
	// launch is the new node for it, rejection why there is none; both may be nil.
	launch    *schedule.Launch
	rejection *schedule.Rejection
}

// manyPods is the number of pending pods above which changes are tried without the others first: one full plan of
// 100,000 pods takes seconds, and of this many some tens of milliseconds.
const manyPods = 2000

// try plans with edits. The boolean is false if an edit does not apply.
func (w *whatIf) try(edits []edit) (outcome, bool) {
	t := w.newTrial()
	for _, e := range edits {
		if !e.apply(t) {
			return outcome{}, false
		}
	}
	if len(t.Pods) > manyPods {
		alone := *t.Snapshot
		alone.Pods = slices.DeleteFunc(slices.Clone(t.Pods), func(p *corev1.Pod) bool { return p.UID != w.pod })
		alone.Virtual = nil
		if first := w.solve(&alone); first.place == nil {
			return first, true
		}
	}
	return w.solve(t.Snapshot), true
}

// solve plans a snapshot.
func (w *whatIf) solve(s *snapshot.Snapshot) outcome {
	w.plans++
	out := outcome{plan: schedule.Solve(s, schedule.DefaultBudget())}
	is := func(p *corev1.Pod) bool { return p.UID == w.pod }
	for i := range out.plan.Placements {
		p := &out.plan.Placements[i]
		if !slices.ContainsFunc(p.Pods, is) {
			continue
		}
		at := slices.IndexFunc(s.Nodes, func(n snapshot.Node) bool { return n.Name == p.Node && n.Claim == p.Claim })
		out.place = placeOf(w.view.PriceList(), &s.Nodes[at])
		return out
	}
	for i := range out.plan.Launches {
		l := &out.plan.Launches[i]
		if slices.ContainsFunc(l.Pods, is) {
			out.place, out.launch = launchPlace(l), l
			return out
		}
	}
	for i := range out.plan.Rejected {
		if is(out.plan.Rejected[i].Pod) {
			out.rejection = &out.plan.Rejected[i]
		}
	}
	return out
}

// launchPlace is the node to be launched.
func launchPlace(l *schedule.Launch) *Place {
	return &Place{
		NodePool: l.Pool.Name, InstanceType: l.InstanceTypes[0].Name, Zone: l.Offering.Zone, CapacityType: l.Offering.CapacityType,
		HourlyCost: l.Offering.Price, New: true, With: len(l.Pods) - 1,
	}
}

// replacePods replaces pods wherever the snapshot has them.
func (t *trial) replacePods(by map[types.UID]*corev1.Pod) {
	replace := func(list []*corev1.Pod) {
		for i, p := range list {
			if q := by[p.UID]; q != nil {
				list[i] = q
			}
		}
	}
	replace(t.Pods)
	replace(t.Arriving)
	for i := range t.Nodes {
		if slices.ContainsFunc(t.Nodes[i].Pods, func(p *corev1.Pod) bool { return by[p.UID] != nil }) {
			t.ownNodes()
			t.Nodes[i].Pods = slices.Clone(t.Nodes[i].Pods)
			replace(t.Nodes[i].Pods)
		}
	}
}

// ownNodes makes Nodes a copy that may be changed.
func (t *trial) ownNodes() {
	if !t.nodes {
		t.Nodes, t.nodes = slices.Clone(t.Nodes), true
	}
}

// removePod removes a pod from its node.
func (t *trial) removePod(uid types.UID) {
	is := func(p *corev1.Pod) bool { return p.UID == uid }
	for i := range t.Nodes {
		if slices.ContainsFunc(t.Nodes[i].Pods, is) {
			t.ownNodes()
			t.Nodes[i].Pods = slices.DeleteFunc(slices.Clone(t.Nodes[i].Pods), is)
		}
	}
	t.Pods = slices.DeleteFunc(t.Pods, is)
}

// pool is the index of an open pool, -1 if there is none with the name.
func (t *trial) pool(name string) int {
	return slices.IndexFunc(t.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == name })
}

// open opens a closed pool with what its class can launch.
func (t *trial) open(pool *karpv1.NodePool) bool {
	if t.pool(pool.Name) >= 0 {
		return true
	}
	types, err := t.view.Offered(pool)
	if err != nil || len(types) == 0 {
		return false
	}
	ref := pool.Spec.Template.Spec.NodeClassRef
	entry := snapshot.Pool{NodePool: pool, NodeClassLabel: classLabel(ref), InstanceTypes: types}
	for i := range t.view.Snapshot.Pools {
		if p := &t.view.Snapshot.Pools[i]; p.NodePool.Name == pool.Name {
			entry.Used = p.Used
		}
	}
	t.Pools = append(t.Pools, entry)
	slices.SortFunc(t.Pools, func(a, b snapshot.Pool) int { return strings.Compare(a.NodePool.Name, b.NodePool.Name) })
	t.Closed = slices.DeleteFunc(t.Closed, func(p *karpv1.NodePool) bool { return p.Name == pool.Name })
	return true
}
