package schedule

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// classifier sorts pods into constraint classes and classes, by their keys.
type classifier struct {
	constraintClasses map[string]*constraintClass
	classes           map[string]*class
	// classes in the order of the pods
	order []*class
	keys  *podclass.Keys
}

// add returns the class of the pod.
func (f *classifier) add(pod *corev1.Pod) (*class, error) {
	key, err := f.keys.Of(pod)
	if err != nil {
		return nil, err
	}
	c := f.classes[string(key.All)]
	if c == nil {
		all := string(key.All)
		constraints := all[len(all)-len(key.Constraints):]
		k := f.constraintClasses[constraints]
		if k == nil {
			k = &constraintClass{pod: pod}
			k.ports = resources.NewPortSet(resources.HostPorts(pod))
			f.constraintClasses[constraints] = k
		}
		if key.Requests == nil {
			key.Requests = snapshot.Requests(pod)
		}
		c = &class{constraintClass: k, resourceList: key.Requests}
		f.classes[all] = c
		f.order = append(f.order, c)
	}
	return c, nil
}

// classify groups pods into classes.
func (sv *solver) classify(pods []*corev1.Pod) []*queuedPod {
	f := &classifier{
		constraintClasses: map[string]*constraintClass{}, classes: map[string]*class{}, keys: podclass.NewKeys(sv.s.Devices != nil),
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
		c, err := f.add(p)
		if err != nil {
			if sv.pending[p.UID] {
				sv.invalidPods = append(sv.invalidPods, Rejection{Pod: p, Reasons: []Reason{{Code: InvalidPod, Message: err.Error()}}})
			}
			continue
		}
		c.members++
		c.running = c.running || !sv.pending[p.UID] || nominated[p.UID]
		all[i] = queuedPod{pod: p, class: c}
		queue = append(queue, &all[i])
	}
	sv.allClasses = f.order
	return queue
}

// order sorts the queue and compiles the constraints of its pods.
func (sv *solver) order(queue []*queuedPod) []*queuedPod {
	n := sv.axes.Len()
	requests, amounts := make(resources.Vec, n*len(sv.allClasses)), make(vec64, n*len(sv.allClasses))
	for i, c := range sv.allClasses {
		c.requests, c.amounts = requests[i*n:(i+1)*n:(i+1)*n], amounts[i*n:(i+1)*n:(i+1)*n]
		sv.axes.Read(c.resourceList, c.requests)
		c.shared = sv.volumes.AddTo(c.requests, sv.axes, c.pod)
		for axis, x := range c.requests {
			c.amounts[axis] = float64(x)
		}
		c.oversized = len(c.unknownResources) > 0 || sv.oversized(c.requests)
	}
	cpu, memory := sv.axes.IndexOf(corev1.ResourceCPU), sv.axes.IndexOf(corev1.ResourceMemory)
	for _, q := range queue {
		q.cpu, q.memory = q.class.requests[cpu], q.class.requests[memory]
	}
	slices.SortFunc(queue, queueOrder)
	for _, q := range queue {
		if k := q.class.constraintClass; !k.read {
			if sv.stopRequested() {
				return nil
			}
			k.read = true
			k.pod = q.pod // the first in queue order, whatever the order of the snapshot
			k.invalid = sv.readConstraints(k)
		}
	}
	sv.unusedAxes = sv.findUnusedAxes()
	sv.forgetSharers(queue)
	compile := func(which func(*class) bool) (first []*constraintClass) {
		for _, q := range queue {
			if k := q.class.constraintClass; !k.compiled && which(q.class) && !sv.stopRequested() {
				k.compiled = true
				sv.compileConstraints(k)
				first = append(first, k)
			}
		}
		return first
	}
	first := compile(func(c *class) bool { return c.running || !c.unplaceable() })
	if sv.abandoned {
		return nil
	}
	sv.topology.CountDeclared()
	sv.topology.Index()
	for _, k := range first {
		k.matches, k.blockedBy = sv.topology.Find(k.pod)
	}
	// Unplaceable pods are compiled last: their constraints are needed for explanations and do not affect other pods.
	if late := compile(func(*class) bool { return true }); len(late) > 0 {
		sv.topology.Index()
		for _, k := range late {
			k.matches, k.blockedBy = sv.topology.Find(k.pod)
		}
	}
	if sv.abandoned {
		return nil
	}
	sv.steps += sv.topology.TakeSteps()
	sv.groupForPacking(sv.allClasses)
	if slices.ContainsFunc(first, func(k *constraintClass) bool { return k.manyTerms }) {
		slices.SortStableFunc(queue, func(a, b *queuedPod) int { return btoi(a.class.manyTerms) - btoi(b.class.manyTerms) })
	}
	return queue
}

// findUnusedAxes finds the axes that only unplaceable pods request.
func (sv *solver) findUnusedAxes() (out resources.Bitset) {
	if !slices.ContainsFunc(sv.allClasses, (*class).unplaceable) {
		return nil
	}
	for i, name := range sv.axes.All() {
		asks := func(c *class) bool { return c.requests[i] > 0 && !c.unplaceable() }
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourcePods &&
			!slices.ContainsFunc(sv.allClasses, asks) &&
			!slices.ContainsFunc(sv.daemons, func(d *daemon) bool { return d.Amounts[i] > 0 }) {
			out.Add(i)
		}
	}
	return out
}

// unplaceable reports whether no plan can schedule the class's pods, whatever happens to other pods.
func (c *class) unplaceable() bool { return c.oversized || c.contradictory }

// startRun resets the state of classes for the queue, which it returns without the pods that cannot be considered.
func (sv *solver) startRun(queue []*queuedPod) []*queuedPod {
	sv.generation++
	sv.run++
	sv.pricing.start()
	sv.classes = sv.classes[:0]
	sv.rejected = slices.Clone(sv.invalidPods)
	out := make([]*queuedPod, 0, len(queue))
	claims := sv.claimUsers(queue)
	for _, q := range queue {
		c := q.class
		if len(c.invalid) > 0 {
			sv.rejected = append(sv.rejected, Rejection{Pod: q.pod, Reasons: c.invalid})
			continue
		}
		if why := claims.Blocked(q.pod, c.exclusive); why.Code != "" {
			sv.rejected = append(sv.rejected, Rejection{Pod: q.pod, Reasons: []Reason{why}})
			continue
		}
		if c.run != sv.run {
			c.run, c.count, c.nextPod, c.onExisting, c.failedAt = sv.run, 0, 0, 0, 0
			c.pods, c.attempts = slices.Grow(c.pods[:0], c.members), slices.Grow(c.attempts[:0], len(c.levels))[:len(c.levels)]
			clear(c.attempts)
			sv.classes = append(sv.classes, c)
		}
		q.placed = false
		c.count++
		c.pods = append(c.pods, q)
		out = append(out, q)
	}
	sv.findFreeDevices(out)
	return sv.reservedFirst(out)
}

// splitUnplaceable takes unplaceable pods out of the queue. The others are planned as if these did not exist.
func (sv *solver) splitUnplaceable(queue []*queuedPod) (rest, hopeless []*queuedPod) {
	for _, q := range queue {
		if q.class.unplaceable() {
			hopeless = append(hopeless, q)
			q.class.count--
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
		!slices.ContainsFunc(sv.nodes, func(n *node) bool { return n.open && requests.Fits(n.free) })
}

// readConstraints parses what all pods of the class require of labels, volumes and devices, or returns why they cannot
// be considered.
func (sv *solver) readConstraints(k *constraintClass) []Reason {
	if why := tooMany(k.pod); why.Code != "" {
		return []Reason{why}
	}
	devices, reasons := sv.findClaims(k.pod)
	if len(reasons) > 0 {
		return reasons
	}
	node, reasons := sv.validate(k.pod)
	if len(reasons) > 0 {
		return reasons
	}
	volumes := volume.Of(sv.s, k.pod)
	alternatives, reasons := volume.Alternatives(sv.s, volumes)
	if len(reasons) > 0 {
		return reasons
	}
	k.node, k.attached, k.devices, k.tolerations = node, volume.Attachments(volumes), devices, sv.tolerations(k.pod)
	k.exclusive = volume.Exclusive(volumes)
	for _, alt := range alternatives {
		k.volumes = append(k.volumes, sv.pools.Intern(alt))
	}
	k.contradictory = contradictory(node, alternatives)
	return nil
}

// contradictory reports whether no node can meet the pod's requirements together with any topology of its volumes.
func contradictory(node requirement.Pod, volumes []requirement.Set) bool {
	terms := node.Required
	if len(terms) == 0 {
		terms = []requirement.Set{{}}
	}
	for _, term := range terms {
		asked := node.Selector.Intersect(term)
		for _, v := range volumes {
			if !slices.ContainsFunc(asked.Intersect(v).All(), requirement.Requirement.Impossible) {
				return false
			}
		}
	}
	return true
}

// compileConstraints finds the groups of the class and compiles its relaxation levels. Of pods that are not considered,
// only running ones keep others away.
func (sv *solver) compileConstraints(k *constraintClass) {
	if len(k.invalid) > 0 && (!k.running || tooMany(k.pod).Code != "") {
		return
	}
	k.declares = sv.topology.Apart(topology.Inverse, k.pod)
	if len(k.invalid) == 0 {
		k.invalid = sv.compileLevels(k)
	}
}
