package schedule

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// classifier sorts pods into kinds and classes by what the scheduler minds, written as keys.
type classifier struct {
	kinds   map[string]*kind
	classes map[string]*class
	// order are the classes as they came.
	order   []*class
	devices bool // of the snapshot are known
	key     []byte
	amounts []amountOf
}

type amountOf struct {
	name  corev1.ResourceName
	units int64
}

// add returns the pod's class.
func (f *classifier) add(pod *corev1.Pod) (*class, error) {
	f.key = f.key[:0]
	list := f.request(pod)
	for _, a := range f.amounts {
		f.text(string(a.name))
		f.key = binary.AppendVarint(f.key, a.units)
	}
	start := len(f.key)
	if err := f.describe(pod); err != nil {
		return nil, fmt.Errorf("describe pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	c := f.classes[string(f.key)]
	if c == nil {
		key := string(f.key)
		k := f.kinds[key[start:]]
		if k == nil {
			k = &kind{pod: pod, ports: hostPorts(pod)}
			f.kinds[key[start:]] = k
		}
		if list == nil {
			list = snapshot.Requests(pod)
		}
		c = &class{kind: k, list: list}
		f.classes[key] = c
		f.order = append(f.order, c)
	}
	return c, nil
}

// request lists what the pod asks for, sorted by name. The list itself comes only where it had to be made.
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
		f.amounts = append(f.amounts, amountOf{name, units(name, q)})
	}
	slices.SortFunc(f.amounts, func(a, b amountOf) int { return cmp.Compare(a.name, b.name) })
	return made
}

func (f *classifier) text(s string) {
	f.key = binary.AppendUvarint(f.key, uint64(len(s)))
	f.key = append(f.key, s...)
}

func (f *classifier) table(m map[string]string) {
	f.key = binary.AppendUvarint(f.key, uint64(len(m)))
	if len(m) == 1 {
		for k, v := range m {
			f.text(k)
			f.text(v)
		}
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		f.text(k)
		f.text(m[k])
	}
}

// message is an API object that can be written to bytes, the same for the same object.
type message interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

func (f *classifier) object(m message) error {
	n := m.Size()
	f.key = binary.AppendUvarint(f.key, uint64(n))
	start := len(f.key)
	f.key = append(f.key, make([]byte, n)...)
	_, err := m.MarshalToSizedBuffer(f.key[start:])
	return err
}

// describe writes all that the scheduler minds but amounts.
func (f *classifier) describe(pod *corev1.Pod) error {
	spec := &pod.Spec
	f.text(pod.Namespace)
	f.table(pod.Labels)
	f.table(spec.NodeSelector)
	devices := wantsDevices(spec)
	f.key = append(f.key, byte(btoi(devices)))
	if devices && f.devices {
		f.text(string(pod.UID)) // whose devices are whose is decided one by one
	}
	f.key = append(f.key, byte(btoi(spec.Affinity != nil)))
	if spec.Affinity != nil {
		if err := f.object(spec.Affinity); err != nil {
			return err
		}
	}
	f.key = binary.AppendUvarint(f.key, uint64(len(spec.Tolerations)))
	for i := range spec.Tolerations {
		if err := f.object(&spec.Tolerations[i]); err != nil {
			return err
		}
	}
	f.key = binary.AppendUvarint(f.key, uint64(len(spec.TopologySpreadConstraints)))
	for i := range spec.TopologySpreadConstraints {
		if err := f.object(&spec.TopologySpreadConstraints[i]); err != nil {
			return err
		}
	}
	for _, p := range hostPorts(pod) {
		f.text("port")
		f.text(p.ip)
		f.text(string(p.protocol))
		f.key = binary.AppendVarint(f.key, int64(p.port))
	}
	for i := range spec.Volumes {
		if name, ok := claimName(pod, &spec.Volumes[i]); ok {
			f.text("claim")
			f.text(name)
		}
	}
	return nil
}

// classify groups pods into classes.
func (sv *solver) classify(pods []*corev1.Pod) []*queued {
	f := &classifier{kinds: map[string]*kind{}, classes: map[string]*class{}, devices: sv.s.Devices != nil}
	all := make([]queued, len(pods))
	queue := make([]*queued, 0, len(pods))
	for i, p := range pods {
		c, err := f.add(p)
		if err != nil {
			if sv.simulated[p.UID] {
				sv.illegible = append(sv.illegible, Rejection{Pod: p, Reasons: []Reason{{Code: InvalidPod, Message: err.Error()}}})
			}
			continue
		}
		c.members++
		all[i] = queued{pod: p, class: c}
		queue = append(queue, &all[i])
	}
	sv.proto = f.order
	return queue
}

// order sorts the queue, and works out what its pods need.
func (sv *solver) order(queue []*queued) []*queued {
	n := len(sv.axes.names)
	requests, amounts := make(vec, n*len(sv.proto)), make(vec64, n*len(sv.proto))
	for i, c := range sv.proto {
		c.requests, c.amounts = requests[i*n:(i+1)*n:(i+1)*n], amounts[i*n:(i+1)*n:(i+1)*n]
		sv.axes.read(c.list, c.requests)
		for axis, x := range c.requests {
			c.amounts[axis] = float64(x)
		}
	}
	cpu, memory := sv.axes.index[corev1.ResourceCPU], sv.axes.index[corev1.ResourceMemory]
	for _, q := range queue {
		q.cpu, q.memory = q.class.requests[cpu], q.class.requests[memory]
	}
	slices.SortFunc(queue, queueOrder)
	var kinds []*kind
	for _, q := range queue {
		if k := q.class.kind; !k.compiled {
			k.compiled = true
			k.pod = q.pod // the first, whatever the order of the snapshot
			k.refused = sv.compileKind(k)
			kinds = append(kinds, k)
		}
	}
	sv.countDeclared()
	for _, k := range kinds {
		sv.connect(k)
	}
	sv.relate(sv.proto)
	return queue
}

// begin sets out to place the pods of the queue, which it returns without those that cannot be considered.
func (sv *solver) begin(queue []*queued) []*queued {
	sv.generation++
	sv.run++
	sv.classes = sv.classes[:0]
	sv.rejected = slices.Clone(sv.illegible)
	out := make([]*queued, 0, len(queue))
	for _, q := range queue {
		c := q.class
		if len(c.refused) > 0 {
			sv.rejected = append(sv.rejected, Rejection{Pod: q.pod, Reasons: c.refused})
			continue
		}
		if c.run != sv.run {
			c.run, c.count, c.next, c.joined, c.failedAt = sv.run, 0, 0, 0, 0
			c.pods, c.tries = slices.Grow(c.pods[:0], c.members), slices.Grow(c.tries[:0], len(c.shapes))[:len(c.shapes)]
			clear(c.tries)
			sv.classes = append(sv.classes, c)
		}
		q.done = false
		c.count++
		c.pods = append(c.pods, q)
		out = append(out, q)
	}
	sv.openDevices(out)
	return sv.reservedFirst(out)
}

// connect finds the groups that count pods of the kind or keep them out.
func (sv *solver) connect(k *kind) {
	for _, g := range sv.groups {
		switch selected := g.selects(k.pod); {
		case selected && g.kind == inverse:
			k.blockedBy = append(k.blockedBy, g)
		case selected:
			k.matches = append(k.matches, g)
		}
	}
}

// compileKind works out what all pods of the kind need, or says why they cannot be considered.
func (sv *solver) compileKind(k *kind) []Reason {
	for _, term := range requiredAnti(k.pod) {
		k.declares = append(k.declares, sv.affinityGroup(inverse, k.pod, &term))
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
	k.node, k.attached, k.devices = node, attachments(volumes), devices
	for _, alt := range alternatives {
		k.volumes = append(k.volumes, sv.wish(alt))
	}
	k.shapes = sv.shapes(k.pod, node)
	return nil
}
