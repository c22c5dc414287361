package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// explain says for each pool why it cannot launch a node for the class, once everything else has its place.
func (sv *solver) explain(c *class) []Reason {
	if len(sv.templates) == 0 {
		return []Reason{{Code: NoPools, Message: "no NodePool can launch nodes, and no existing node has room"}}
	}
	sv.explaining = true
	defer func() { sv.explaining = false }()
	var out []Reason
	for _, t := range sv.templates {
		if t.broken.Code != "" {
			out = append(out, t.broken)
			continue
		}
		why := sv.whyNot(t, c)
		out = append(out, Reason{Code: why.code, NodePool: t.pool.Name, Message: why.say()})
	}
	return out
}

// whyNot looks at the shapes from the least demanding on, and tells what stops the one that comes furthest: a shape
// stopped by mere labels often is only one of the alternatives of node affinity.
func (sv *solver) whyNot(t *template, c *class) *refusal {
	var first *refusal
	for _, sh := range slices.Backward(c.shapes) {
		_, why := sv.grow(sv.newBin(t), c, sh, pressing)
		if why == nil {
			// What stood in the way went away with the last placements, which nobody followed up: the next plan will.
			return refuse(Topology, false, func() string { return "the pod can be placed only after others" })
		}
		if why.code != Requirement {
			return why
		}
		if first == nil {
			first = why
		}
	}
	return first
}

// noType tells apart why no instance type holds what is asked for.
func (sv *solver) noType(b *bin, c *class, reqs requirement.Set, total vec) *refusal {
	t := b.t
	code, admitted, fitting, available := Requirement, 0, 0, 0
	ports := t.conflictingGroups(b.ports, c.ports)
	portConflict := false
	if len(b.pods) > 0 {
		return refuse(Resources, true, func() string { return "the node is full" })
	}
	for i := range t.types {
		ti := &t.types[i]
		if !reqs.Overlaps(ti.Requirements) {
			continue
		}
		admitted++
		if !total.fits(ti.room) {
			continue
		}
		if ports != nil && ports[ti.group] {
			portConflict = true
			continue
		}
		fitting++
		if _, ok := ti.Cheapest(reqs); ok {
			available++
		}
	}
	switch {
	case admitted == 0:
		code = Requirement
	case fitting == 0 && portConflict:
		code = HostPort
	case fitting == 0:
		code = Resources
	case available == 0:
		code = Offering
	}
	return refuse(code, true, func() string {
		switch code {
		case HostPort:
			return "a DaemonSet takes the pod's host port on every node that would fit"
		case Resources:
			return sv.explainSize(t, reqs, total)
		case Offering:
			return fmt.Sprintf("%d instance types would do, but none can be had at the moment in the zones and capacity types allowed", fitting)
		}
		return "no instance type of the pool satisfies " + pinned(t, reqs)
	})
}

// pinned shows what is required beyond the pool's own requirements.
func pinned(t *template, reqs requirement.Set) string {
	var parts []string
	for _, r := range reqs.All() {
		if !r.Equal(t.reqs.Get(r.Key())) {
			parts = append(parts, r.String())
		}
	}
	if len(parts) == 0 {
		return "the pool's requirements together"
	}
	return strings.Join(parts, ", ")
}

// explainSize compares what is asked for with the most that any admitted type has.
func (sv *solver) explainSize(t *template, reqs requirement.Set, total vec) string {
	var most vec
	for i := range t.types {
		ti := &t.types[i]
		if reqs.Overlaps(ti.Requirements) {
			if most == nil {
				most = ti.room
			}
			most = most.max(ti.room)
		}
	}
	var parts []string
	for i, name := range sv.axes.names {
		if total[i] > most[i] {
			parts = append(parts, fmt.Sprintf("%s %s, of which the largest suitable instance type has %s for pods", amount(name, total[i]), name, amount(name, max(0, most[i]))))
		}
	}
	if len(parts) == 0 {
		return "no single instance type has enough of everything: " + sv.amounts(total)
	}
	return "the pod needs " + strings.Join(parts, " and ")
}

func (sv *solver) amounts(v vec) string {
	var parts []string
	for i, name := range sv.axes.names {
		if v[i] > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", amount(name, v[i]), name))
		}
	}
	return strings.Join(parts, ", ")
}

func amount(name corev1.ResourceName, n int64) string {
	if name == corev1.ResourceCPU {
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	}
	if name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return resource.NewQuantity(n, resource.DecimalSI).String()
}

// explainLimits names the limits that stop even the smallest type that would do.
func (sv *solver) explainLimits(b *bin, reqs requirement.Set, total vec) string {
	t := b.t
	smallest := make(vec, 0)
	for _, cand := range sv.candidates(t, reqs).list {
		ti := &t.types[cand.t]
		if !total.fits(ti.room) {
			continue
		}
		if len(smallest) == 0 {
			smallest = slices.Clone(ti.capacity)
		}
		for i, x := range ti.capacity {
			smallest[i] = min(smallest[i], x)
		}
	}
	var parts []string
	for i, name := range t.limits.names {
		if smallest[i] <= t.left[i] {
			continue
		}
		planned := t.limit[i] - t.used[i] - t.left[i]
		part := fmt.Sprintf("limit of %s %s: %s in use", amount(name, t.limit[i]), name, amount(name, t.used[i]))
		if planned > 0 {
			part += fmt.Sprintf(" and %s planned", amount(name, planned))
		}
		parts = append(parts, part+fmt.Sprintf(", and the smallest suitable node adds %s", amount(name, smallest[i])))
	}
	if len(parts) == 0 {
		return "its limits together leave no suitable instance type"
	}
	return "its " + strings.Join(parts, "; its ")
}

func explainMinima(reqs requirement.Set, missed map[string]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(missed)) {
		parts = append(parts, fmt.Sprintf("%d values of %s instead of at least %d", missed[key], key, reqs.Get(key).MinValues()))
	}
	return "too few instance types are left to choose from: " + strings.Join(parts, ", ")
}
