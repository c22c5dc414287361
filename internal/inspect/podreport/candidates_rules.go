package podreport

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// topology proposes to relax topology spread, and to drop terms of pod affinity and anti-affinity.
func (g *generator) topology() {
	for i := range g.pod.Spec.TopologySpreadConstraints {
		c := &g.pod.Spec.TopologySpreadConstraints[i]
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		over, path := domain(c.TopologyKey), pointer("spec", "topologySpreadConstraints", i)
		soft := []Operation{{Op: "replace", Path: path + "/whenUnsatisfiable", Value: string(corev1.ScheduleAnyway)}}
		if c.MinDomains != nil { // only a rule has it
			fewer := Operation{Op: "remove", Path: path + "/minDomains"}
			g.add(fmt.Sprintf("In %s, drop minDomains of the spread over each %s.", g.workload, over), permits, g.editPod(fewer))
			soft = append(soft, fewer)
		}
		g.add(fmt.Sprintf("In %s, make the spread over each %s a preference.", g.workload, over), permits, g.editPod(soft...))
	}
	g.affinityTerms(g.pod, g.workload, givesUp)
}

// affinityTerms proposes to drop each required term of pod affinity and anti-affinity of a workload.
func (g *generator) affinityTerms(pod *corev1.Pod, w workload, r reach) {
	a := pod.Spec.Affinity
	if a == nil {
		return
	}
	drop := func(kind, words string, terms []corev1.PodAffinityTerm) {
		for i := range terms {
			path := pointer("spec", "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution", i)
			if len(terms) == 1 {
				path = pointer("spec", "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution")
			}
			g.add(fmt.Sprintf("In %s, drop the required pod %s per %s.", w, words, domain(terms[i].TopologyKey)), r,
				editWorkload(pod, w, []Operation{{Op: "remove", Path: path}}))
		}
	}
	if a.PodAntiAffinity != nil {
		drop("podAntiAffinity", "anti-affinity", a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	if a.PodAffinity != nil && r == givesUp {
		drop("podAffinity", "affinity", a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
}

// ports proposes to give up host ports.
func (g *generator) ports() {
	for i := range g.pod.Spec.Containers {
		for k, p := range g.pod.Spec.Containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			g.add(fmt.Sprintf("In %s, give up host port %d of container %s.", g.workload, p.HostPort, g.pod.Spec.Containers[i].Name), givesUp,
				g.editPod(Operation{Op: "remove", Path: pointer("spec", "containers", i, "ports", k, "hostPort")}))
		}
	}
}

// otherWorkloads proposes that workloads with anti-affinity to the pod give it up.
func (g *generator) otherWorkloads() {
	if !g.hasCode("Topology") {
		return
	}
	seen := map[Object]bool{g.workload.Object: true}
	for _, p := range g.view.Pods {
		if !snapshot.Active(p) || p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil || !keepsAway(p, g.pod) {
			continue
		}
		w := workloadOf(g.view, p)
		if seen[w.Object] || len(seen) > maxOthers {
			continue
		}
		seen[w.Object] = true
		g.affinityTerms(p, w, others)
	}
}

// maxOthers limits how many other workloads are tried. A pod that more keep away from is a matter for people.
const maxOthers = 4

// hasCode reports whether any rule of the code excludes the pod.
func (g *generator) hasCode(code string) bool {
	if g.now.rejection == nil {
		return false
	}
	for _, r := range g.now.rejection.Reasons {
		if string(r.Code) == code {
			return true
		}
	}
	return false
}

// keepsAway reports whether a pod has anti-affinity to another in its namespace.
func keepsAway(p, from *corev1.Pod) bool {
	for _, t := range p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if p.Namespace == from.Namespace && selects(t.LabelSelector, from.Labels) {
			return true
		}
	}
	return false
}

// selects reports whether a label selector selects labels.
func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(set))
}
