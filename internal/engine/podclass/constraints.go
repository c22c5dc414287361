package podclass

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/support"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Constraints is an equivalence class of pods with equal scheduling constraints, whatever they request.
//
// Invariant: once compiled it does not change, except for what is made on first use. Anyone who reads it must not modify what
// it returns.
type Constraints struct {
	pod   *corev1.Pod // one of them
	node  requirement.Pod
	ports resources.PortSet
	// counted selects the nodes that count for spreads: node without what the pod's scheduler adds.
	counted requirement.Pod
	// tolerations are the pod's, as far as any taint needs them.
	tolerations []corev1.Toleration
	// manyTerms is true for pods with so many terms that planning them is bounded: see hasManyTerms.
	manyTerms bool
	// volumes are the alternatives that the pod's volumes leave, one of which must hold; never empty.
	volumes []requirement.Interned
	// needs holds what the pod needs of the kubelet and of CSI drivers.
	needs support.Needs
	// devices are the resource claims; none while devices are not planned.
	devices []snapshot.DeviceClaim
	// exclusive are the volume claims that no other pod can use at the same time.
	exclusive []types.NamespacedName
	// attached are the volumes that count against a node's attach limits.
	attached []volume.Attachment
	// least holds what each of the pods requests at least, per axis; nil until a class of them is measured.
	least resources.Vec
	// levels are the relaxation levels: each drops one preference more. The first that can be met counts.
	levels []*Level
	// invalid are the reasons why the pods cannot be considered at all.
	invalid []rejection.Reason
	// contradictory is true when no node can meet all requirements of the pods.
	contradictory      bool
	isRead, isCompiled bool
	// running is true when some of the pods are on nodes or nominated, where they keep others away.
	running bool

	// matches are the groups that count the pods, declares the inverse groups of their own anti-affinity, blockedBy the
	// inverse groups that keep them out.
	matches, declares, blockedBy []*topology.Group
	// beside are the required spreads over domains that do not count the pods.
	beside []*topology.Group
	// zones are the constraint classes of pods that run in one zone instead of spreading over zones: see inZone.
	zones map[string]*Constraints
}

// New is the class of pods like this one, to be read.
func New(pod *corev1.Pod) *Constraints {
	return &Constraints{pod: pod, ports: resources.NewPortSet(resources.HostPorts(pod))}
}

// NeedsSupport reports whether Needs has anything.
func (c *Constraints) NeedsSupport() bool { return !c.needs.None() }

// Needs returns what the pods need of the kubelet and of the CSI drivers of a node.
func (c *Constraints) Needs() support.Needs { return c.needs }

// MarkRunning notes that some of the pods are on nodes or nominated, where they keep others away.
func (c *Constraints) MarkRunning() { c.running = true }

// WithVolume is a copy for pods with one topology of their volumes, and without host ports if these do not count.
func (c *Constraints) WithVolume(alternative requirement.Interned, anyPorts bool) *Constraints {
	k := *c
	k.volumes = []requirement.Interned{alternative}
	if anyPorts {
		k.ports = resources.PortSet{}
	}
	return &k
}

// Views are the topology constraints of a pod at this relaxation level. The caller must not modify them.
func (c *Constraints) Views(level *Level) []topology.View {
	if level.views == nil {
		level.views = make([]topology.View, 0, len(level.groups)+len(c.blockedBy))
		for _, list := range [...][]*topology.Group{level.groups, c.blockedBy} {
			for _, g := range list {
				level.views = append(level.views, topology.NewView(g, c.pod, level.strict, &c.node))
			}
		}
	}
	return level.views
}

// SortedViews are the level's views by what steps look for. The caller must not modify them.
func (c *Constraints) SortedViews(level *Level) *topology.SortedViews {
	level.sorted.Fill(c.Views(level))
	return &level.sorted
}

// ViewSteps returns how many steps it takes to check the views of a level for one node: one each. Those of pods with many terms
// are counted by what they cost.
func (c *Constraints) ViewSteps(level *Level) int {
	if c.manyTerms {
		return c.SortedViews(level).Steps()
	}
	return len(c.Views(level))
}

// answer is a question that is answered at most once.
type answer int

const (
	unasked answer = iota
	yes
	no
)

// LaunchableAt reports whether some template has the labels that the level requires, together with those of a volume.
// A preferred zone in which nothing is offered must not keep pods out of the choice of new nodes until their turn comes.
//
// Cost: one lookup per template and volume, once per level.
func (k *Constraints) LaunchableAt(level *Level, pools *nodepool.Models) bool {
	if level.launchable == unasked {
		level.launchable = no
		if slices.ContainsFunc(pools.All(), func(t *nodepool.Template) bool { return offers(t, k, level) }) {
			level.launchable = yes
		}
	}
	return level.launchable == yes
}

// offers reports whether the template has a candidate for the level with some volume alternative.
func offers(t *nodepool.Template, k *Constraints, level *Level) bool {
	if t.Unusable().Code != "" || level.blocked.Has(t.Index()) {
		return false
	}
	cands := t.Candidates(t.Requirements()).Narrow(level.internedFull)
	return cands != nil && slices.ContainsFunc(k.volumes, func(alt requirement.Interned) bool {
		with := cands.Narrow(alt)
		return with != nil && len(with.List()) > 0
	})
}

// OnlySpreadsOverZones reports whether the class's spreads over zones count its own pods, and no other rule that may
// give way or depends on pods elsewhere concerns its zone. Relaxation levels before the first one do not count.
//
// A second spread that is required, over other domains than hosts, does concern it: kube-scheduler binds one pod after the other, each as
// both spreads allow, and there need be no order that leads to the counts of a division, which knows only zones.
func (k *Constraints) OnlySpreadsOverZones(first int) bool {
	const zone = corev1.LabelTopologyZone
	if k.manyTerms {
		return false
	}
	for _, level := range k.levels[first:] {
		if !level.full.Get(zone).Equal(level.strict.Get(zone)) {
			return false
		}
	}
	required := k.levels[len(k.levels)-1].groups
	return !slices.ContainsFunc(k.Views(k.levels[first]), func(v topology.View) bool {
		if v.Key() != zone {
			return v.Type() == topology.Spread && !v.OverHosts() && slices.Contains(required, v.Group())
		}
		return v.Type() != topology.Spread || !v.Self()
	})
}

// InZone is the constraint class of pods that run in the zone instead of spreading over zones; nil if they cannot.
func (k *Constraints) InZone(zone string, pools *nodepool.Models) *Constraints {
	if known, ok := k.zones[zone]; ok {
		return known
	}
	overZones := func(g *topology.Group) bool { return g.Spreads(corev1.LabelTopologyZone) }
	all := 0
	for _, g := range k.levels[0].groups {
		all += btoi(overZones(g))
	}
	in := requirement.In(corev1.LabelTopologyZone, zone)
	sub := *k
	sub.levels, sub.zones = nil, nil
	for _, level := range k.levels {
		own := Level{
			strict: level.strict.With(in), full: level.full.With(in), tolerations: level.tolerations, blocked: level.blocked,
			preferences: level.preferences,
		}
		for _, g := range level.groups {
			if !overZones(g) {
				own.groups = append(own.groups, g)
			}
		}
		// A level that gives up one of the spreads is no level of a division.
		if len(level.groups)-len(own.groups) < all || own.full.Get(corev1.LabelTopologyZone).Impossible() {
			continue
		}
		own.internedStrict, own.internedFull = pools.Intern(own.strict), pools.Intern(own.full)
		sub.levels = append(sub.levels, &own)
	}
	if k.zones == nil {
		k.zones = map[string]*Constraints{}
	}
	k.zones[zone] = nil
	if len(sub.levels) > 0 {
		k.zones[zone] = &sub
	}
	return k.zones[zone]
}

// Attached are the volumes that count against a node's attach limits.
func (c *Constraints) Attached() []volume.Attachment { return c.attached }

// Beside are the spreads over domains that the pods require and that do not count them: they run beside pods of others.
func (c *Constraints) Beside() []*topology.Group { return c.beside }

// BlockedBy are the inverse groups that keep the pods out.
func (c *Constraints) BlockedBy() []*topology.Group { return c.blockedBy }

// Contradictory is true when no node can meet all requirements of the pods.
func (c *Constraints) Contradictory() bool { return c.contradictory }

// Declares are the inverse groups of the pods' own anti-affinity.
func (c *Constraints) Declares() []*topology.Group { return c.declares }

// Devices are the resource claims; none while devices are not planned.
func (c *Constraints) Devices() []snapshot.DeviceClaim { return c.devices }

// Exclusive are the volume claims that no other pod can use at the same time.
func (c *Constraints) Exclusive() []types.NamespacedName { return c.exclusive }

// Invalid are the reasons why the pods cannot be considered at all.
func (c *Constraints) Invalid() []rejection.Reason { return c.invalid }

// IsCompiled reports whether Compile has been called.
func (c *Constraints) IsCompiled() bool { return c.isCompiled }

// IsRead reports whether Read has been called.
func (c *Constraints) IsRead() bool { return c.isRead }

// Levels are the relaxation levels: each drops one preference more. The first that can be met counts.
func (c *Constraints) Levels() []*Level { return c.levels }

// ManyTerms is true for pods with so many terms that planning them is bounded.
func (c *Constraints) ManyTerms() bool { return c.manyTerms }

// Matches are the groups that count the pods.
func (c *Constraints) Matches() []*topology.Group { return c.matches }

// Pod is one of the pods.
func (c *Constraints) Pod() *corev1.Pod { return c.pod }

// Ports are the host ports.
func (c *Constraints) Ports() *resources.PortSet { return &c.ports }

// Running is true when some of the pods are on nodes or nominated, where they keep others away.
func (c *Constraints) Running() bool { return c.running }

// Selection returns what the pods require and prefer of nodes' labels.
func (c *Constraints) Selection() *requirement.Pod { return &c.node }

// Volumes are the alternatives that the volumes leave, one of which must hold; never empty.
func (c *Constraints) Volumes() []requirement.Interned { return c.volumes }
