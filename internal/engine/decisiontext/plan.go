// Package decisiontext writes plans and commands as text, one fact per line, with all that a user can see of them. Tests compare
// decisions by it: equal decisions have equal text.
package decisiontext

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// Plan writes a plan. It leaves out what measures the search instead of its result: the steps, the counts of classes and
// types, and the steps of pods with very many terms. The writer must not fail, as that of a hash does not.
func Plan(w io.Writer, p *plan.Plan) {
	t := text{w}
	if p.Abandoned {
		t.line("abandoned")
	}
	for i := range p.Placements {
		pl := &p.Placements[i]
		t.line("place on " + pl.Node + " claim " + pl.Claim + ": " + podNames(pl.Pods))
		t.devices(pl.Devices)
	}
	for i := range p.Launches {
		t.launch(&p.Launches[i])
	}
	for i := range p.Rejected {
		t.line("reject " + podName(p.Rejected[i].Pod))
		t.reasons(p.Rejected[i].Reasons)
	}
	t.preferences(p)
	if len(p.UnusablePools) > 0 {
		t.line("unusable pools")
		t.reasons(p.UnusablePools)
	}
	for _, ignored := range p.Ignored {
		t.line("ignore terms of " + podName(ignored.Pod) + ": " + strings.Join(ignored.Why, "; "))
	}
	for _, costly := range p.Costly {
		t.line("costly in " + costly.Namespace + ": " + podNames(costly.Pods))
	}
	for _, zone := range slices.Sorted(maps.Keys(p.Zones)) {
		t.line(fmt.Sprintf("zone %q: %d pods", zone, p.Zones[zone]))
	}
	t.line("cost " + dollars(p.Stats.HourlyCost) + " nodes " + dollars(p.Stats.NodeCost) +
		" preferences " + dollars(p.Stats.PreferenceCost) + " at least " + dollars(p.Stats.LowerBound))
}

// text writes lines.
type text struct{ w io.Writer }

func (t text) line(s string) { _, _ = io.WriteString(t.w, s+"\n") }

// launch writes a launch with its NodeClaim's requirements.
func (t text) launch(l *plan.Launch) {
	o := &l.Offering
	t.line("launch of " + l.Pool.Name + ": " + l.InstanceTypes[0].Name + " " + o.Zone + " " + o.CapacityType + " " + dollars(o.Price))
	if o.PriceDerived {
		t.line("  the price is derived")
	}
	if l.MinValuesRelaxed {
		t.line("  minValues relaxed")
	}
	for _, r := range l.ClaimRequirements() {
		t.line("  require " + requirementText(&r))
	}
	names := make([]string, len(l.InstanceTypes))
	for i, it := range l.InstanceTypes {
		names[i] = it.Name
	}
	t.line("  types " + strings.Join(names, " "))
	var requests []string
	for _, name := range slices.Sorted(maps.Keys(l.Requests)) {
		q := l.Requests[name]
		requests = append(requests, string(name)+"="+q.String())
	}
	t.line("  requests " + strings.Join(requests, " "))
	t.line("  pods " + podNames(l.Pods))
	if len(l.Drivers) > 0 {
		t.line("  drivers " + strings.Join(l.Drivers, " "))
	}
	t.devices(l.Devices)
}

func requirementText(r *karpv1.Requirement) string {
	out := r.Key + " " + string(r.Operator) + " " + strings.Join(r.Values, ",")
	if r.MinValues != nil {
		out += " minValues " + strconv.Itoa(*r.MinValues)
	}
	return out
}

func (t text) devices(list []plan.DeviceUse) {
	for _, use := range list {
		names := make([]string, len(use.Claims))
		for i, c := range use.Claims {
			names[i] = c.Name
		}
		t.line(fmt.Sprintf("  devices of %s: %s with %d grants", podName(use.Pod), strings.Join(names, " "), len(use.Grants)))
	}
}

func (t text) reasons(list []rejection.Reason) {
	for _, why := range list {
		line := fmt.Sprintf("  %s [%s]: %s", why.NodePool, why.Code, wording.Reason(why))
		if why.Nearest != nil {
			line += "; nearest " + why.Nearest.String() + " " + why.Nearest.CapacityType
		}
		t.line(line)
	}
}

func (t text) preferences(p *plan.Plan) {
	for i := range p.Preferences {
		c := &p.Preferences[i]
		t.line(fmt.Sprintf("prefer %s: %s: kept %d for %s, dropped %d for %s, unmet %d", podName(c.Pod), c.Text,
			c.Kept, dollars(c.KeptCost), c.Dropped, dollars(c.DroppedCost), c.Unmet))
	}
}

// dollars has nine digits: sums of prices differ in the last of sixteen between processors that add in one instruction what
// they multiply, and those that do not.
func dollars(price float64) string { return "$" + strconv.FormatFloat(price, 'g', 9, 64) }

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

func podNames(pods []*corev1.Pod) string {
	names := make([]string, len(pods))
	for i, p := range pods {
		names[i] = podName(p)
	}
	return strings.Join(names, " ")
}
