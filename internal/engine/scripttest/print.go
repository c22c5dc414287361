package scripttest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// print prints a plan: what is launched, where pods are placed, and which pods wait for which reasons. Equal lines
// are merged.
func (w *world) print(p schedule.Plan) string {
	var lines []string
	for i := range p.Launches {
		l := &p.Launches[i]
		relaxed := ""
		if l.MinValuesRelaxed {
			relaxed = " minValues relaxed"
		}
		lines = append(lines, fmt.Sprintf("launch %s %s %s %s $%.4f/h (%s)%s for %s", l.Pool.Name, l.InstanceTypes[0].Name, l.Offering.Zone,
			l.Offering.CapacityType, l.Offering.Price, plural(len(l.InstanceTypes), "type"), relaxed, w.podGroups(l.Pods)))
	}
	slices.Sort(lines)
	lines = merged(lines)
	for _, pl := range p.Placements {
		lines = append(lines, fmt.Sprintf("place  %s on %s", w.podGroups(pl.Pods), pl.Node))
	}
	lines = append(lines, w.rejected(p.Rejected)...)
	lines = append(lines, w.preferences(p.Preferences)...)
	if len(p.Launches) > 0 {
		lines = append(lines, fmt.Sprintf("cost   $%.4f/h, at least $%.4f/h", p.Stats.HourlyCost, p.Stats.LowerBound))
	}
	if len(lines) == 0 {
		return "nothing\n"
	}
	return strings.Join(lines, "\n") + "\n"
}

// preferences lists what has become of preferences, under the policy Priced.
func (w *world) preferences(all []schedule.PreferenceCost) []string {
	lines := make([]string, 0, len(all))
	for i := range all {
		p := &all[i]
		var parts []string
		if p.Kept > 0 {
			parts = append(parts, fmt.Sprintf("kept x%d for $%.4f/h", p.Kept, p.KeptCost))
		}
		switch {
		case p.Dropped > 0 && math.IsNaN(p.DroppedCost):
			parts = append(parts, fmt.Sprintf("dropped x%d", p.Dropped))
		case p.Dropped > 0:
			parts = append(parts, fmt.Sprintf("dropped x%d instead of $%.4f/h", p.Dropped, p.DroppedCost))
		}
		if p.Unmet > 0 {
			parts = append(parts, fmt.Sprintf("unmet x%d", p.Unmet))
		}
		lines = append(lines, fmt.Sprintf("prefer %s: %s: %s", w.group[p.Pod.UID], p.Text, strings.Join(parts, ", ")))
	}
	return lines
}

// rejected lists pods without a node, those with the same reasons together.
func (w *world) rejected(rejected []schedule.Rejection) []string {
	byReason := map[string][]*corev1.Pod{}
	var order []string
	for _, r := range rejected {
		text := ""
		for _, why := range r.Reasons {
			text += "\n       "
			if why.NodePool != "" {
				text += why.NodePool + ": "
			}
			text += fmt.Sprintf("%s (%s)", wording.Reason(why), why.Code)
		}
		if byReason[text] == nil {
			order = append(order, text)
		}
		byReason[text] = append(byReason[text], r.Pod)
	}
	var lines []string
	for _, text := range order {
		lines = append(lines, "wait   "+w.podGroups(byReason[text])+text)
	}
	return lines
}

// merged merges equal lines, with their number at the end.
func merged(sorted []string) []string {
	var out []string
	for i := 0; i < len(sorted); {
		n := i
		for n < len(sorted) && sorted[n] == sorted[i] {
			n++
		}
		line := sorted[i]
		if n > i+1 {
			line += fmt.Sprintf(", %d times", n-i)
		}
		out = append(out, line)
		i = n
	}
	return out
}

// podGroups lists pods by group, such as "db, web x3".
func (w *world) podGroups(pods []*corev1.Pod) string {
	counts := map[string]int{}
	var names []string
	for _, p := range pods {
		name := w.group[p.UID]
		if counts[name]++; counts[name] == 1 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		if counts[name] > 1 {
			names[i] = fmt.Sprintf("%s x%d", name, counts[name])
		}
	}
	return strings.Join(names, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
