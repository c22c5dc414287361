package nodepool

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Daemon is the pod of a DaemonSet, which nodes must have room for.
type Daemon struct {
	Tolerations []corev1.Toleration
	// Alternatives are the label requirements of the pod, one of which must hold.
	Alternatives []requirement.Set
	Requests     corev1.ResourceList
	// Amounts are Requests over the axes of Config.
	Amounts resources.Vec
	Ports   []resources.HostPort
	// Rivals are the other daemons, by number, that want the same host ports: one of them runs on a node that several would run on.
	// Contested is true if others want its host ports that do not want each other's.
	Rivals    resources.Bitset
	Contested bool
	// Drivers are the CSI drivers of the volumes that count against a node's attach limits, once per volume.
	Drivers []string
}

// daemonGroup describes what daemon pods take on all types that run the same ones.
type daemonGroup struct {
	requests corev1.ResourceList
	ports    []resources.HostPort
	attached map[string]int   // volumes by driver
	members  resources.Bitset // the daemons, by number
}

// attach adds the volumes of a daemon. A claim that several daemons use counts for each of them.
func (g *daemonGroup) attach(drivers []string) {
	if g.attached == nil && len(drivers) > 0 {
		g.attached = map[string]int{}
	}
	for _, driver := range drivers {
		g.attached[driver]++
	}
}

// templateDaemon is a daemon that runs on nodes of a template, with the alternatives that the template allows.
type templateDaemon struct {
	*Daemon
	number       int // in Config
	alternatives []requirement.Set
}

// runningDaemons are the daemons that run on any nodes of the template.
func (t *Template) runningDaemons() []templateDaemon {
	var out []templateDaemon
	for i, d := range t.models.config.Daemons {
		if _, blocked := snapshot.UntoleratedHard(d.Tolerations, t.taints); blocked {
			continue
		}
		c := templateDaemon{Daemon: d, number: i}
		for _, alt := range d.Alternatives {
			alt = t.models.newNode.Possible(alt, t.reqs) // room for a daemon that never comes costs less than a daemon without room
			if t.reqs.Compatible(alt, t.models.config.Labels.WellKnown) {
				c.alternatives = append(c.alternatives, alt)
			}
		}
		if len(c.alternatives) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// runsOn reports whether the daemon's pods run on nodes with these requirements.
func (r *templateDaemon) runsOn(reqs requirement.Set) bool {
	return slices.ContainsFunc(r.alternatives, func(alt requirement.Set) bool { return alt.Overlaps(reqs) })
}

// splitTypesByDaemons splits types with offerings that come with different daemons, for example those of one zone.
func splitTypesByDaemons(types []*catalog.InstanceType, daemons []templateDaemon) []*catalog.InstanceType {
	out := make([]*catalog.InstanceType, 0, len(types))
	for _, it := range types {
		var groups [][]catalog.Offering
		index := map[string]int{}
		for _, o := range it.Offerings {
			set := make([]byte, len(daemons))
			for j := range daemons {
				if daemons[j].runsOn(it.Requirements.Intersect(o.Requirements)) {
					set[j] = 1
				}
			}
			g, known := index[string(set)]
			if !known {
				g = len(groups)
				index[string(set)], groups = g, append(groups, nil)
			}
			groups[g] = append(groups[g], o)
		}
		if len(groups) < 2 {
			out = append(out, it)
			continue
		}
		for _, g := range groups {
			out = append(out, variant(it, g))
		}
	}
	return out
}

// offeringDaemons are the daemons that run on some offerings of a type but not on others: they select labels of
// offerings.
func offeringDaemons(types []*catalog.InstanceType, daemons []templateDaemon) []templateDaemon {
	keys := map[string]bool{}
	for _, it := range types {
		for i := range it.Offerings {
			for _, r := range it.Offerings[i].Requirements.All() {
				keys[r.Key()] = true
			}
		}
	}
	var out []templateDaemon
	for _, d := range daemons {
		if slices.ContainsFunc(d.alternatives, func(alt requirement.Set) bool {
			return slices.ContainsFunc(alt.All(), func(r requirement.Requirement) bool { return keys[r.Key()] })
		}) {
			out = append(out, d)
		}
	}
	return out
}

// groupDaemons computes which daemons run on which types, and what room they leave.
func (t *Template) groupDaemons(daemons []templateDaemon) {
	m := t.models
	t.daemons = daemons
	groups := map[string]int{}
	var overheads []resources.Vec
	members := make([]byte, len(daemons))
	for i := range t.types {
		ti := &t.types[i]
		for j, d := range daemons {
			members[j] = 0
			if d.runsOn(ti.Requirements) {
				members[j] = 1
			}
		}
		g, ok := groups[string(members)]
		if !ok {
			g = len(t.daemonGroups)
			groups[string(members)] = g
			group, overhead := daemonGroup{requests: corev1.ResourceList{}}, make(resources.Vec, m.config.Axes.Len())
			for j, d := range daemons {
				if members[j] > 0 {
					requests, amounts := d.besides(daemons[:j], members)
					quantity.AddTo(group.requests, requests)
					overhead = overhead.Plus(amounts)
					group.ports = append(group.ports, d.Ports...)
					group.attach(d.Drivers)
					group.members.Add(d.number)
				}
			}
			t.daemonGroups, overheads = append(t.daemonGroups, group), append(overheads, overhead)
		}
		ti.daemonGroup = g
		ti.room = m.config.Axes.Vec(ti.Allocatable).Minus(overheads[g])
		m.config.LimitVolumes(ti.room, ti.VolumeLimits, t.daemonGroups[g].attached)
		if m.config.StoreVolumes != nil {
			m.config.StoreVolumes(ti.room, ti.InstanceType)
		}
		for _, q := range ti.Allocatable {
			if q.Sign() < 0 { // a negative amount of anything: the type holds nothing
				ti.room[0] = -1
			}
		}
		ti.room = m.shared(ti.room)
	}
}

// besides returns what the daemon takes besides those before it which are members: of rivals, one runs.
func (r *templateDaemon) besides(before []templateDaemon, members []byte) (corev1.ResourceList, resources.Vec) {
	if len(r.Rivals) == 0 {
		return r.Requests, r.Amounts
	}
	list, amounts := corev1.ResourceList{}, r.Amounts
	most, mostAmounts := corev1.ResourceList{}, make(resources.Vec, len(amounts))
	for j, other := range before {
		if members[j] > 0 && r.Rivals.Has(other.number) {
			mostAmounts = mostAmounts.Max(other.Amounts)
			for name, q := range other.Requests {
				if have, ok := most[name]; !ok || q.Cmp(have) > 0 {
					most[name] = q
				}
			}
		}
	}
	for name, q := range r.Requests {
		if have, ok := most[name]; !ok || q.Cmp(have) > 0 {
			more := q.DeepCopy()
			more.Sub(have)
			list[name] = more
		}
	}
	return list, amounts.Max(mostAmounts).Minus(mostAmounts)
}

// DaemonsTake reports whether the port is taken on some of the template's nodes.
func (t *Template) DaemonsTake(p resources.HostPort) bool {
	return slices.ContainsFunc(t.daemonGroups, func(g daemonGroup) bool {
		return resources.PortsConflict([]resources.HostPort{p}, g.ports)
	})
}

// BlockedBy reports whether the type comes with one of the marked daemon groups; nil marks none.
func (ti *Type) BlockedBy(groups []bool) bool { return groups != nil && groups[ti.daemonGroup] }

// ConflictingGroups marks the daemon groups with host ports that conflict; nil if there are none.
func (t *Template) ConflictingGroups(taken, more []resources.HostPort) []bool {
	if len(taken)+len(more) == 0 || !slices.ContainsFunc(t.daemonGroups, func(g daemonGroup) bool { return len(g.ports) > 0 }) {
		return nil
	}
	out := make([]bool, len(t.daemonGroups))
	for i, g := range t.daemonGroups {
		out[i] = resources.PortsConflict(g.ports, taken) || resources.PortsConflict(g.ports, more)
	}
	return out
}
