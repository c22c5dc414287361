package podreport

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// constraints states what of the pod limits the nodes on which it may run. Preferences limit nothing.
func (e *explanation) constraints() {
	limit := func(format string, args ...any) { e.Constraints = append(e.Constraints, fmt.Sprintf(format, args...)) }
	spec := &e.pod.Spec
	for _, k := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		limit("spec.nodeSelector: %s=%s", k, spec.NodeSelector[k])
	}
	if a := spec.Affinity; a != nil {
		if a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
				limit("required node affinity: %s", expressions(t.MatchExpressions))
			}
		}
		if a.PodAffinity != nil {
			for _, t := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				limit("required pod affinity: in the %s of pods with %s", domain(t.TopologyKey), metav1.FormatLabelSelector(t.LabelSelector))
			}
		}
		if a.PodAntiAffinity != nil {
			for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				limit("required anti-affinity: in no %s with pods with %s", domain(t.TopologyKey), metav1.FormatLabelSelector(t.LabelSelector))
			}
		}
	}
	for i := range spec.TopologySpreadConstraints {
		if c := &spec.TopologySpreadConstraints[i]; c.WhenUnsatisfiable == corev1.DoNotSchedule {
			limit("topology spread: at most %d more pods with %s in one %s than in another",
				c.MaxSkew, metav1.FormatLabelSelector(c.LabelSelector), domain(c.TopologyKey))
		}
	}
	for i := range spec.Volumes {
		if v := spec.Volumes[i].PersistentVolumeClaim; v != nil {
			limit("volume claim %s%s", v.ClaimName, prefixed(" in ", strings.Join(e.volumeZones(v.ClaimName), ", ")))
		}
	}
	for i := range spec.Containers {
		for _, p := range spec.Containers[i].Ports {
			if p.HostPort != 0 {
				limit("host port %d", p.HostPort)
			}
		}
	}
}

// expressions prints the match expressions of a term.
func expressions(list []corev1.NodeSelectorRequirement) string {
	var out []string
	for _, x := range list {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", x.Key, x.Operator, strings.Join(x.Values, ","))))
	}
	return strings.Join(out, " and ")
}

// domain is the word for the values of a topology key.
func domain(key string) string {
	switch key {
	case corev1.LabelTopologyZone:
		return "zone"
	case corev1.LabelHostname:
		return "node"
	}
	return key
}

// volumeZones are the zones of the volume that a claim of the pod is bound to; nil if they are not known.
func (e *explanation) volumeZones(claim string) []string {
	pvc := e.view.Snapshot.Volumes.Claims[types.NamespacedName{Namespace: e.pod.Namespace, Name: claim}]
	if pvc == nil || pvc.Spec.VolumeName == "" {
		return nil
	}
	return zonesOf(e.view.Snapshot.Volumes.Volumes[pvc.Spec.VolumeName])
}

// zonesOf are the zones in which a volume can be used; nil if they are not known.
func zonesOf(pv *corev1.PersistentVolume) (zones []string) {
	if pv == nil || pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	for _, t := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, x := range t.MatchExpressions {
			if strings.HasSuffix(x.Key, "/zone") && x.Operator == corev1.NodeSelectorOpIn {
				zones = append(zones, x.Values...)
			}
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}
