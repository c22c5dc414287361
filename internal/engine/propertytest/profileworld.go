package propertytest

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// ProfilesWorld is a SchedulerWorld with a scheduler that adds node affinity to that of pods, and compares some extended resources with
// no node.
func ProfilesWorld(next func() byte) *snapshot.Snapshot { return random{next}.profilesWorld() }

func (d random) profilesWorld() *snapshot.Snapshot {
	s := d.schedulerWorld()
	var p snapshot.SchedulerProfile
	if d.maybe(60) {
		p.AddedAffinity = d.addedAffinity()
	}
	const other = "example.org/chip"
	if d.maybe(60) {
		p.IgnoredResources = []string{pick(d, widgets, widgets, other), "cpu"} // which is no extended resource
	}
	if d.maybe(60) {
		p.IgnoredResourceGroups = []string{pick(d, "example.com", "example.org")}
	}
	s.Settings.Profiles = map[string]snapshot.SchedulerProfile{corev1.DefaultSchedulerName: p}
	wants := map[string]edit{}
	for _, pod := range s.Pods {
		app := pod.Name[:1]
		if wants[app] == nil {
			wants[app] = func(*corev1.Pod) {}
			if d.maybe(40) {
				name, n := pick(d, widgets, other), fmt.Sprint(d.from(1, 2))
				wants[app] = func(p *corev1.Pod) {
					r := &p.Spec.Containers[0].Resources
					r.Requests = r.Requests.DeepCopy()
					maps.Copy(r.Requests, Resources(name, n))
				}
			}
		}
		wants[app](pod)
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if d.maybe(30) {
			n.Allocatable = n.Allocatable.DeepCopy()
			maps.Copy(n.Allocatable, Resources(widgets, fmt.Sprint(d.from(1, 3))))
			n.Capacity = n.Allocatable
		}
	}
	return s
}

func (d random) addedAffinity() *corev1.NodeAffinity {
	expr := func() corev1.NodeSelectorRequirement {
		switch d.n(5) {
		case 0:
			return Expr(Capacity, in, pick(d, karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot))
		case 1:
			return Expr("rack", pick(d, exists, absent))
		case 2:
			return Expr(Arch, in, pick(d, "amd64", "arm64"))
		case 3:
			return Expr(Host, notIn, pick(d, "n0", "n1"))
		default:
			return Expr(Zone, pick(d, in, notIn), pick(d, Zones()...))
		}
	}
	required := &corev1.NodeSelector{}
	for range d.from(1, 3) {
		term := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expr()}}
		if d.maybe(20) {
			term.MatchExpressions = append(term.MatchExpressions, expr())
		}
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, term)
	}
	return &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
}
