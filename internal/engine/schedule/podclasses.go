package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/existing"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/sizing"
)

// classify groups pods into classes.
func (sv *solver) classify(pods []*corev1.Pod) []*queuedPod {
	f := podclass.NewClassifier(sv.s.Devices != nil, &sv.s.Settings)
	f.Recreated = sv.s.Recreated
	if sv.s.Devices != nil {
		f.ServeExtended(sv.s.Devices.ExtendedResources())
	}
	nominated := map[types.UID]bool{}
	for i := range sv.s.Nodes {
		for _, uid := range sv.s.Nodes[i].Nominated {
			nominated[uid] = true
		}
	}
	all := make([]queuedPod, len(pods))
	queue := make([]*queuedPod, 0, len(pods))
	for i, p := range pods {
		known, err := f.ClassOf(sv.asPlanned(p))
		if err != nil {
			if sv.pending[p.UID] {
				why := Reason{Code: InvalidPod, Rule: &rejection.Rule{Stated: err.Error()}}
				sv.invalidPods = append(sv.invalidPods, Rejection{Pod: p, Reasons: []Reason{why}})
			}
			continue
		}
		if known.Number() == len(sv.allClasses) {
			sv.allClasses = append(sv.allClasses, &class{Pods: sizing.NewPods(known, nil)})
		}
		c := sv.allClasses[known.Number()]
		c.members++
		if !sv.pending[p.UID] || nominated[p.UID] {
			c.MarkRunning()
		}
		all[i] = queuedPod{pod: p, class: c}
		queue = append(queue, &all[i])
	}
	return queue
}

// order sorts the queue and compiles the constraints of its pods.
func (sv *solver) order(queue []*queuedPod) []*queuedPod {
	n := sv.axes.Len()
	requests := make(resources.Vec, n*len(sv.allClasses))
	for i, c := range sv.allClasses {
		c.Measure(sv.axes, sv.volumes, requests[i*n:(i+1)*n:(i+1)*n])
		c.oversized = len(c.unknownResources) > 0 || sv.oversized(c.Requests())
	}
	cpu, memory := sv.axes.IndexOf(corev1.ResourceCPU), sv.axes.IndexOf(corev1.ResourceMemory)
	for _, q := range queue {
		q.cpu, q.memory = q.class.Requests()[cpu], q.class.Requests()[memory]
	}
	slices.SortFunc(queue, queueOrder)
	compiler := podclass.NewCompiler(podclass.Config{
		Snapshot: sv.s, Pools: sv.pools, Topology: sv.topology, Volumes: sv.volumes, RespectPreferences: sv.respectPreferences,
		SoftTaints: sv.softTaints, Steps: &sv.steps,
	})
	for _, q := range queue {
		if k := q.class.Constraints; !k.IsRead() {
			if sv.stopRequested() {
				return nil
			}
			compiler.Read(k, sv.asPlanned(q.pod)) // the first in queue order, whatever the order of the snapshot
		}
	}
	sv.unusedAxes = sv.findUnusedAxes()
	sv.forgetSharers(queue)
	compile := func(which func(*class) bool) (first []*podclass.Constraints) {
		for _, q := range queue {
			if k := q.class.Constraints; !k.IsCompiled() && which(q.class) && !sv.stopRequested() {
				compiler.Compile(k)
				first = append(first, k)
			}
		}
		return first
	}
	first := compile(func(c *class) bool { return c.Running() || !c.unplaceable() })
	if sv.abandoned {
		return nil
	}
	sv.topology.CountDeclared()
	sv.topology.Index()
	for _, k := range first {
		compiler.Find(k)
	}
	// Unplaceable pods are compiled last: their constraints are needed for explanations and do not affect other pods.
	if late := compile(func(*class) bool { return true }); len(late) > 0 {
		sv.topology.Index()
		for _, k := range late {
			compiler.Find(k)
		}
	}
	if sv.abandoned {
		return nil
	}
	sv.placeLast()
	sv.steps += sv.topology.TakeSteps()
	sv.groupForPacking()
	if slices.ContainsFunc(first, func(k *podclass.Constraints) bool { return k.ManyTerms() }) {
		slices.SortStableFunc(queue, func(a, b *queuedPod) int { return btoi(a.class.ManyTerms()) - btoi(b.class.ManyTerms()) })
	}
	return queue
}

// findUnusedAxes finds the axes that only unplaceable pods request.
func (sv *solver) findUnusedAxes() (out resources.Bitset) {
	if !slices.ContainsFunc(sv.allClasses, (*class).unplaceable) {
		return nil
	}
	for i, name := range sv.axes.All() {
		asks := func(c *class) bool { return c.Requests()[i] > 0 && !c.unplaceable() }
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourcePods &&
			!slices.ContainsFunc(sv.allClasses, asks) &&
			!slices.ContainsFunc(sv.daemons, func(d *existing.Daemon) bool { return d.Amounts[i] > 0 }) {
			out.Add(i)
		}
	}
	return out
}

// unplaceable reports whether no plan can schedule the class's pods, whatever happens to other pods.
func (c *class) unplaceable() bool { return c.oversized || c.Contradictory() }

// start resets the state of classes for the queue. It returns a copy of it without the pods that cannot be considered.
func (r *run) start() []*queuedPod {
	r.rejected = slices.Clone(r.invalidPods)
	out := make([]*queuedPod, 0, len(r.queue))
	claims := r.claimUsers(r.queue)
	for _, q := range r.queue {
		c := q.class
		if len(c.Invalid()) > 0 {
			r.rejected = append(r.rejected, Rejection{Pod: q.pod, Reasons: c.Invalid()})
			continue
		}
		if why := claims.Blocked(q.pod, c.Exclusive()); why.Code != "" {
			r.rejected = append(r.rejected, Rejection{Pod: q.pod, Reasons: []Reason{why}})
			continue
		}
		if c.run != r.number {
			c.Clear()
			c.run, c.nextPod, c.onExisting, c.failedAt = r.number, 0, 0, 0
			c.pods, c.attempts = slices.Grow(c.pods[:0], c.members), slices.Grow(c.attempts[:0], len(c.Levels()))[:len(c.Levels())]
			clear(c.attempts)
			r.classes = append(r.classes, c)
		}
		q.placed = false
		c.Join()
		c.pods = append(c.pods, q)
		out = append(out, q)
	}
	if r.countForeign {
		for _, g := range r.topology.Groups() {
			if g.HasForeign() {
				r.topology.CountForeign(g)
			}
		}
	}
	r.findFreeDevices(out)
	return r.reservedFirst(out)
}

// splitUnplaceable takes unplaceable pods out of the queue. The others are planned as if these did not exist.
func (r *run) splitUnplaceable(queue []*queuedPod) (rest, hopeless []*queuedPod) {
	for _, q := range queue {
		if q.class.unplaceable() {
			hopeless = append(hopeless, q)
			q.class.Leave()
		}
	}
	if len(hopeless) == 0 {
		return queue, nil
	}
	return slices.DeleteFunc(queue, func(q *queuedPod) bool { return q.class.unplaceable() }), hopeless
}

// oversized reports whether no existing node, as it is, and no instance type, when empty, has room for the requests.
func (sv *solver) oversized(requests resources.Vec) bool {
	return len(sv.pools.All()) > 0 && !slices.ContainsFunc(sv.pools.All(), func(t *nodepool.Template) bool { return t.Holds(requests) }) &&
		!sv.nodes.Holds(requests)
}
