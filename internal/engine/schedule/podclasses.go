package schedule

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// classifier sorts pods into constraint classes and classes, by keys that contain everything the scheduler considers.
type classifier struct {
	constraintClasses map[string]*constraintClass
	classes           map[string]*class
	// classes in the order of the pods
	order   []*class
	devices bool // the snapshot has device information
	key     []byte
	amounts []amountOf
}

type amountOf struct {
	name  corev1.ResourceName
	units int64
}

// Add returns the class of the pod.
func (f *classifier) add(pod *corev1.Pod) (*class, error) {
	f.key = f.key[:0]
	list := f.request(pod)
	for _, a := range f.amounts {
		f.addString(string(a.name))
		f.key = binary.AppendVarint(f.key, a.units)
	}
	start := len(f.key)
	if err := f.addConstraints(pod); err != nil {
		return nil, fmt.Errorf("describe pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	c := f.classes[string(f.key)]
	if c == nil {
		key := string(f.key)
		k := f.constraintClasses[key[start:]]
		if k == nil {
			k = &constraintClass{pod: pod}
			k.ports = resources.NewPortSet(resources.HostPorts(pod))
			f.constraintClasses[key[start:]] = k
		}
		if list == nil {
			list = snapshot.Requests(pod)
		}
		c = &class{constraintClass: k, resourceList: list}
		f.classes[key] = c
		f.order = append(f.order, c)
	}
	return c, nil
}

// request lists the requests of the pod, sorted by name. It returns the list only where it had to compute it.
func (f *classifier) request(pod *corev1.Pod) corev1.ResourceList {
	f.amounts = f.amounts[:0]
	spec := &pod.Spec
	plain := len(spec.Containers) == 1 && len(spec.InitContainers) == 0 && spec.Resources == nil && len(spec.Overhead) == 0 &&
		len(pod.Status.ContainerStatuses) == 0
	var made corev1.ResourceList
	list := corev1.ResourceList(nil)
	if plain {
		list = spec.Containers[0].Resources.Requests
		f.amounts = append(f.amounts, amountOf{corev1.ResourcePods, 1})
	} else {
		made = snapshot.Requests(pod)
		list = made
	}
	for name, q := range list {
		f.amounts = append(f.amounts, amountOf{name, quantity.Of(name, q)})
	}
	slices.SortFunc(f.amounts, func(a, b amountOf) int { return cmp.Compare(a.name, b.name) })
	return made
}

func (f *classifier) addString(s string) {
	f.key = binary.AppendUvarint(f.key, uint64(len(s)))
	f.key = append(f.key, s...)
}

func (f *classifier) addMap(m map[string]string) {
	f.key = binary.AppendUvarint(f.key, uint64(len(m)))
	if len(m) == 1 {
		for k, v := range m {
			f.addString(k)
			f.addString(v)
		}
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		f.addString(k)
		f.addString(m[k])
	}
}

// protoMessage is an API object with a deterministic binary form.
type protoMessage interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

func (f *classifier) addMessage(m protoMessage) error {
	n := m.Size()
	f.key = binary.AppendUvarint(f.key, uint64(n))
	start := len(f.key)
	f.key = append(f.key, make([]byte, n)...)
	_, err := m.MarshalToSizedBuffer(f.key[start:])
	return err
}

// addConstraints appends everything that the scheduler considers, except requests.
func (f *classifier) addConstraints(pod *corev1.Pod) error {
	spec := &pod.Spec
	f.addString(pod.Namespace)
	f.addMap(pod.Labels)
	f.addMap(spec.NodeSelector)
	devices := wantsDevices(spec)
	f.key = append(f.key, byte(btoi(devices)))
	if devices && f.devices {
		f.addString(string(pod.UID)) // devices are allocated pod by pod
	}
	f.key = append(f.key, byte(btoi(spec.Affinity != nil)))
	if spec.Affinity != nil {
		if err := f.addMessage(spec.Affinity); err != nil {
			return err
		}
	}
	f.key = binary.AppendUvarint(f.key, uint64(len(spec.Tolerations)))
	for i := range spec.Tolerations {
		if err := f.addMessage(&spec.Tolerations[i]); err != nil {
			return err
		}
	}
	f.key = binary.AppendUvarint(f.key, uint64(len(spec.TopologySpreadConstraints)))
	for i := range spec.TopologySpreadConstraints {
		if err := f.addMessage(&spec.TopologySpreadConstraints[i]); err != nil {
			return err
		}
	}
	for _, p := range resources.HostPorts(pod) {
		f.addString("port")
		f.addString(p.IP)
		f.addString(string(p.Protocol))
		f.key = binary.AppendVarint(f.key, int64(p.Port))
	}
	for i := range spec.Volumes {
		if name, ok := claimName(pod, &spec.Volumes[i]); ok {
			f.addString("claim")
			f.addString(name)
		}
	}
	return nil
}

// classify groups pods into classes.
func (sv *solver) classify(pods []*corev1.Pod) []*queuedPod {
	f := &classifier{constraintClasses: map[string]*constraintClass{}, classes: map[string]*class{}, devices: sv.s.Devices != nil}
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
		sv.addVolumes(c)
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
	sv.countDeclared()
	sv.indexGroups()
	for _, k := range first {
		sv.linkGroups(k)
	}
	// Unplaceable pods are compiled last: their constraints are needed for explanations and do not affect other pods.
	if late := compile(func(*class) bool { return true }); len(late) > 0 {
		sv.indexGroups()
		for _, k := range late {
			sv.linkGroups(k)
		}
	}
	if sv.abandoned {
		return nil
	}
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
		if why := claims.blocked(q); why.Code != "" {
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

// linkGroups finds the topology groups that count pods of the class or keep them out.
func (sv *solver) linkGroups(k *constraintClass) {
	var found []int
	sv.selectors.find(k.pod.Labels, func(i int) bool {
		sv.steps++
		if sv.groups[i].selects(k.pod) {
			found = append(found, i)
		}
		return false
	})
	slices.Sort(found)
	for _, i := range slices.Compact(found) {
		if g := sv.groups[i]; g.typ == inverse {
			k.blockedBy = append(k.blockedBy, g)
		} else {
			k.matches = append(k.matches, g)
		}
	}
}

// indexGroups builds the index that finds the groups that count a pod.
func (sv *solver) indexGroups() {
	sv.selectors = selectorIndex{}
	for i, g := range sv.groups {
		if len(g.parts) > 0 || g.claim != "" {
			sv.selectors.any = append(sv.selectors.any, i) // such groups have their own index
			continue
		}
		sv.selectors.add(i, g.selector)
	}
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
	volumes := podVolumes(sv.s, k.pod)
	alternatives, reasons := sv.volumeAlternatives(volumes)
	if len(reasons) > 0 {
		return reasons
	}
	k.node, k.attached, k.devices, k.tolerations = node, attachments(volumes), devices, sv.tolerations(k.pod)
	k.exclusive = sv.exclusive(volumes)
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
	k.declares = sv.apartGroups(inverse, k.pod)
	if len(k.invalid) == 0 {
		k.invalid = sv.compileLevels(k)
	}
}
