package podclass

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/support"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Compiler compiles the constraints of pods, once per class of them. Its state is what classes share: the taints of the
// cluster, and a bound on what pods with very many terms may add.
type Compiler struct {
	s                              *snapshot.Snapshot
	pools                          *nodepool.Models
	topology                       *topology.Registry
	volumes                        *volume.Limits
	support                        *support.Index
	respectPreferences, softTaints bool
	steps                          *int
	allTaints                      []corev1.Taint // made on first use
	manyTermGroups                 int            // groups that pods with many terms have added
}

// Config describes what constraints refer to. All fields are required.
type Config struct {
	Snapshot *snapshot.Snapshot
	Pools    *nodepool.Models
	Topology *topology.Registry
	Volumes  *volume.Limits
	// RespectPreferences is true if preferences count; softTaints if some node or pool has a taint of effect
	// PreferNoSchedule.
	RespectPreferences, SoftTaints bool
	// Steps gets what compiling costs: one per group of a relaxation level.
	Steps *int
}

// NewCompiler makes a compiler without state.
func NewCompiler(c Config) *Compiler {
	return &Compiler{
		s: c.Snapshot, pools: c.Pools, topology: c.Topology, volumes: c.Volumes, support: support.NewIndex(c.Snapshot),
		respectPreferences: c.RespectPreferences,
		softTaints:         c.SoftTaints, steps: c.Steps,
	}
}

// Read parses what all pods of the class require of labels, volumes and devices, by one of them. It comes
// before Compile for all classes, since volumes of pods that cannot be considered bind no other pods.
func (x *Compiler) Read(k *Constraints, pod *corev1.Pod) {
	k.isRead, k.pod = true, pod
	k.invalid = x.readConstraints(k)
}

// Compile finds the groups of the class and compiles its relaxation levels. Of pods that are not considered, only running
// ones keep others away.
func (x *Compiler) Compile(k *Constraints) {
	k.isCompiled = true
	if len(k.invalid) > 0 && (!k.running || tooMany(k.pod).Code != "") {
		return
	}
	k.declares = x.topology.Apart(topology.Inverse, k.pod)
	if len(k.invalid) == 0 {
		k.invalid = x.addLevels(k)
	}
}

// Find finds the groups that count the pods and that keep them out, among those of all classes.
func (x *Compiler) Find(k *Constraints) {
	k.matches, k.blockedBy = x.topology.Find(k.pod)
	if len(k.levels) == 0 {
		return
	}
	for _, g := range k.levels[len(k.levels)-1].groups {
		if g.Type() == topology.Spread && !g.OverHosts() && !slices.Contains(k.matches, g) {
			k.beside = append(k.beside, g)
		}
	}
}

// readConstraints is read, with the reasons why the pods cannot be considered.
func (x *Compiler) readConstraints(k *Constraints) []rejection.Reason {
	if why := tooMany(k.pod); why.Code != "" {
		return []rejection.Reason{why}
	}
	devices, reasons := x.findClaims(k.pod)
	if len(reasons) > 0 {
		return reasons
	}
	node, reasons := x.validate(k.pod)
	if len(reasons) > 0 {
		return reasons
	}
	volumes := volume.Of(x.s, k.pod)
	alternatives, reasons := volume.Alternatives(x.volumes.Index(), volumes)
	if len(reasons) > 0 {
		return reasons
	}
	k.node, k.devices, k.tolerations = node, devices, x.tolerations(k.pod)
	k.counted = node
	if x.s.Settings.AddedAffinity(&k.pod.Spec) != nil {
		if own, err := x.s.Labels.FromPod(&k.pod.Spec); err == nil {
			own.Required = own.Required[:min(len(own.Required), MaxAlternatives)]
			k.counted = own
		}
	}
	k.attached = append(volume.Attachments(volumes), volume.Inline(k.pod)...)
	k.exclusive = volume.Exclusive(volumes)
	k.needs = support.Needs{Features: snapshot.RequiredFeatures(&k.pod.Spec), Drivers: volume.MustBeInstalled(x.s, volumes)}
	for _, driver := range k.needs.Drivers {
		alternatives = volume.Combine(alternatives, x.support.Where(driver))
	}
	for _, alt := range alternatives {
		k.volumes = append(k.volumes, x.pools.Intern(alt))
	}
	k.node.Selector = x.haveTopologyKeys(k.pod, k.node.Selector)
	k.contradictory = contradictory(k.node, alternatives)
	return nil
}

// haveTopologyKeys excludes the nodes that have a key, which the pod is spread over or follows other pods by, only under its other name.
func (x *Compiler) haveTopologyKeys(pod *corev1.Pod, of requirement.Set) requirement.Set {
	if len(x.s.Labels.Lacking) == 0 {
		return of
	}
	keys := topology.HardSpreadKeys(pod)
	for _, t := range requiredAffinity(pod) {
		keys = append(keys, t.TopologyKey)
	}
	for _, key := range keys {
		if nodes := x.s.Labels.Lacking[key]; len(nodes) > 0 {
			of = of.With(requirement.NotIn(requirement.FieldName, nodes...))
		}
	}
	return of
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

// validate parses the node selection of the pod, or returns why the pod cannot be considered.
func (x *Compiler) validate(pod *corev1.Pod) (requirement.Pod, []rejection.Reason) {
	node, err := x.s.NodeSelection(&pod.Spec)
	if err != nil {
		return node, []rejection.Reason{{Code: rejection.InvalidPod, Rule: &rejection.Rule{Stated: err.Error()}}}
	}
	if node.Required != nil && len(node.Required) == 0 {
		return node, []rejection.Reason{
			{Code: rejection.InvalidPod, Rule: &rejection.Rule{Labels: &rejection.Labels{Cause: rejection.EmptyTerms, By: rejection.ByPod}}},
		}
	}
	if optedOut(node) {
		return node, []rejection.Reason{{Code: rejection.NotManaged}}
	}
	if why := x.impossibleValues(node.Selector); len(why) > 0 {
		return node, why
	}
	var reasons []rejection.Reason
	possible := node.Required == nil
	for _, term := range node.Required {
		why := x.impossibleValues(term)
		possible = possible || len(why) == 0
		reasons = append(reasons, why...)
	}
	if !possible {
		return node, withoutRepeats(reasons)
	}
	node.Required = node.Required[:min(len(node.Required), MaxAlternatives)]
	return node, nil
}

// withoutRepeats are the reasons, neighbors that state the same once.
func withoutRepeats(reasons []rejection.Reason) []rejection.Reason {
	return slices.CompactFunc(reasons, func(a, b rejection.Reason) bool {
		return reflect.DeepEqual(a, b)
	})
}

// optedOut reports whether each node that the pod can run on belongs to no NodePool. Preferences do not count: kube-scheduler
// gives them up.
func optedOut(node requirement.Pod) bool {
	unmanaged := func(term requirement.Set) bool {
		nodePool := node.Selector.Intersect(term).Get(karpv1.LabelNodePool)
		return nodePool.Operator() == corev1.NodeSelectorOpDoesNotExist && !nodePool.Impossible()
	}
	if len(node.Required) == 0 {
		return unmanaged(requirement.Set{})
	}
	return !slices.ContainsFunc(node.Required, func(term requirement.Set) bool { return !unmanaged(term) })
}

// impossibleValues are the reasons why no node has the labels of the set: it requires values that a label never has.
func (x *Compiler) impossibleValues(set requirement.Set) (out []rejection.Reason) {
	for _, r := range set.All() {
		known := x.s.Labels.KnownValues[r.Key()]
		if len(known) > 0 && r.Operator() == corev1.NodeSelectorOpIn && !slices.ContainsFunc(known, r.Has) {
			out = append(out, rejection.Reason{
				Code: rejection.InvalidPod, Rule: &rejection.Rule{Labels: &rejection.Labels{
					Cause: rejection.ImpossibleValue, By: rejection.ByPod, Required: []rejection.Label{rejection.LabelOf(r)}, Known: known,
				}},
			})
		}
	}
	return out
}

// findClaims looks up the pod's resource claims, or returns why the pod must wait.
func (x *Compiler) findClaims(pod *corev1.Pod) ([]snapshot.DeviceClaim, []rejection.Reason) {
	if !x.s.WantsDevices(pod) {
		return nil, nil
	}
	if x.s.Devices == nil {
		return nil, []rejection.Reason{{Code: rejection.DeviceClaims}}
	}
	claims, err := x.s.Devices.Claims(pod)
	if err != nil {
		return nil, []rejection.Reason{{Code: rejection.DeviceClaims, Rule: &rejection.Rule{Stated: err.Error()}}}
	}
	return claims, nil
}

// sharedGroups are affinity groups that keep the pod in one zone with other users of a claim that has no volume yet.
func (x *Compiler) sharedGroups(pod *corev1.Pod) []*topology.Group {
	if !volume.HasClaims(pod) {
		return nil
	}
	var out []*topology.Group
	for _, key := range volume.UnboundZonal(volume.Of(x.s, pod)) {
		if !x.volumes.Shared(key) {
			continue
		}
		out = append(out, x.topology.SharedClaim(key))
	}
	return out
}
