package propertytest

import (
	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// EarlierNames are the labels that kubelet and the cloud controller manager set under two names, by the present one.
var EarlierNames = map[string]string{
	Zone: corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyRegion: corev1.LabelFailureDomainBetaRegion,
	Arch: "beta.kubernetes.io/arch", corev1.LabelOSStable: "beta.kubernetes.io/os",
	corev1.LabelInstanceTypeStable: corev1.LabelInstanceType,
}

// AliasWorld is a SchedulerWorld with pods that state labels by their earlier names. Some of its nodes
// have labels under their present names only.
func AliasWorld(next func() byte) *snapshot.Snapshot { return random{next}.aliasWorld() }

func (d random) aliasWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	for i := range s.Nodes {
		labels := s.Nodes[i].Labels
		for _, key := range []string{Zone, Arch, corev1.LabelInstanceTypeStable} {
			value := labels[key]
			if !d.maybe(35) {
				labels[EarlierNames[key]] = value
			}
		}
		if d.maybe(20) {
			s.Nodes[i].Claim, s.Nodes[i].ClaimUID, s.Nodes[i].Pool = "", "", ""
		}
	}
	rename := map[string]map[string]string{}
	for _, family := range []string{"a", "b", "c"} {
		rename[family] = map[string]string{}
		for _, key := range []string{Zone, Arch, corev1.LabelInstanceTypeStable} {
			if d.maybe(50) {
				rename[family][key] = EarlierNames[key]
			}
		}
	}
	for _, p := range s.Pods {
		renameKeys(p, rename[p.Name[:1]])
	}
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].Pods {
			renameKeys(p, rename[p.Name[:1]])
		}
	}
	s.NoteLacking()
	return s
}

// renameKeys has the pod state keys by other names.
func renameKeys(p *corev1.Pod, names map[string]string) {
	name := func(key *string) {
		if to, has := names[*key]; has {
			*key = to
		}
	}
	for key, value := range p.Spec.NodeSelector {
		if to, has := names[key]; has {
			delete(p.Spec.NodeSelector, key)
			p.Spec.NodeSelector[to] = value
		}
	}
	for i := range p.Spec.TopologySpreadConstraints {
		name(&p.Spec.TopologySpreadConstraints[i].TopologyKey)
	}
	for _, terms := range [][]corev1.PodAffinityTerm{nearOf(p), antiTerms(p)} {
		for i := range terms {
			name(&terms[i].TopologyKey)
		}
	}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for i := range term.MatchExpressions {
				// What must not be is read under both names: a pod that excludes a label under a name that some nodes lack stays off them.
				if op := term.MatchExpressions[i].Operator; op == in || op == exists {
					name(&term.MatchExpressions[i].Key)
				}
			}
		}
	}
}
