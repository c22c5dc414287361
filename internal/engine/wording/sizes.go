package wording

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// sizes is which requests are too large.
func (s Style) sizes(z *rejection.Sizes) Clause {
	what := tooLarge(z)
	switch lacking := lacks(z); {
	case z.Pool != nil && lacking != "":
		return clause(Pool, "has no instance type with %s: it allows only %s", lacking, s.label(*z.Pool))
	case z.Pod != nil && lacking != "":
		return clause(Pod, "requires %s, and no such instance type of the pool has %s", s.label(*z.Pod), lacking)
	case lacking != "":
		return clause(Pod, "needs %s, and no instance type that suits it otherwise has any", lacking)
	case z.Pool != nil:
		return what.but(s.label(*z.Pool))
	case z.Pod != nil:
		return clause(Pod, "requires %s: %s", s.label(*z.Pod), what)
	}
	return what
}

// lacks are the resources, if these are all that is in the way, of which the types that suit have nothing; empty otherwise.
func lacks(z *rejection.Sizes) string {
	var names []string
	for i := range z.TooLarge {
		if z.TooLarge[i].Cause != rejection.NoSuitableType {
			return ""
		}
		names = append(names, z.TooLarge[i].Resource)
	}
	if z.OtherUnknown > 0 {
		return ""
	}
	return strings.Join(names, " and ")
}

// allow is what a pool would have to allow for resources that its types lack; empty if that is not known, or not enough.
func allow(r rejection.Reason) string {
	if r.Nearest == nil || r.Together != 1 || r.Rule == nil || r.Rule.Sizes == nil || r.Rule.Sizes.Pool == nil || lacks(r.Rule.Sizes) == "" {
		return ""
	}
	l := r.Rule.Sizes.Pool
	if l.Operator != corev1.NodeSelectorOpIn || len(l.Values) == 0 {
		return ""
	}
	value := map[string]string{
		corev1.LabelTopologyZone: r.Nearest.Zone, karpv1.LabelCapacityType: r.Nearest.CapacityType,
		corev1.LabelInstanceTypeStable: r.Nearest.InstanceType,
	}[l.Key]
	return "; allow " + cmp.Or(value, "that of "+r.Nearest.InstanceType) + ", too"
}

func tooLarge(z *rejection.Sizes) Clause {
	var parts []string
	if len(z.TooLarge) == 0 {
		for _, a := range z.Together {
			parts = append(parts, a.Needs+" "+a.Resource)
		}
		return clause(None, "no single instance type has enough of everything that the pod needs: %s", all(parts))
	}
	for i := range z.TooLarge {
		t := &z.TooLarge[i]
		if z.Pool != nil && t.Cause == rejection.NoSuitableType { // what the pool allows follows
			parts = append(parts, t.Needs+" "+t.Resource)
			continue
		}
		parts = append(parts, size(t))
	}
	text := "needs " + strings.Join(parts, "; and ")
	if z.OtherUnknown > 0 {
		text += fmt.Sprintf(", nor any of %d other resources that it requests", z.OtherUnknown)
	}
	return Clause{Subject: Pod, Text: text}
}

// size is one request that is too large.
func size(z *rejection.Size) string {
	text := z.Needs + " " + z.Resource
	switch z.Cause {
	case rejection.NowhereKnown:
		return text + ", which neither a node nor an instance type has"
	case rejection.NoType:
		return text + ", which no instance type has" + similar(z.Similar)
	case rejection.NoSuitableType:
		return text + ", which no instance type that suits it has"
	case rejection.AllTooSmall:
		text += ": no instance type is that large; "
	default:
		text += ", and "
	}
	text += fmt.Sprintf("%s, the largest type that suits it, has %s for pods", z.InstanceType, z.Has)
	if z.Daemons != "" {
		text += fmt.Sprintf(" after %s for daemons", z.Daemons)
	}
	return text
}

// limits is which limits of the pool leave too little.
func limits(list []rejection.Limit) Clause {
	parts := make([]string, len(list))
	for i, l := range list {
		use := l.Used + " in use"
		if l.Planned != "" {
			use += fmt.Sprintf(", %s planned", l.Planned)
		}
		parts[i] = fmt.Sprintf("limit of %s %s leaves %s (%s), and the smallest suitable type, %s, adds %s",
			l.Limit, l.Resource, l.Left, use, l.InstanceType, l.Adds)
	}
	return Clause{Subject: OfPool, Text: strings.Join(parts, "; the pool's ")}
}

// minValues is of which labels too few values are left.
func minValues(list []rejection.MinValue) Clause {
	parts := make([]string, len(list))
	for i, m := range list {
		parts[i] = fmt.Sprintf("%d values of %s instead of at least %d", m.Values, m.Key, m.Wanted)
	}
	return clause(None, "too few instance types are left to choose from: %s", all(parts))
}

// offerings returns why what fits cannot be launched now.
func offerings(o *rejection.Offerings) Clause {
	if o.Unpriced {
		const remedy = ", and nothing is launched at an unknown price: a NodeOverlay can give it one (feature gate NodeOverlay)"
		if o.Only != "" {
			return clause(None, "no price is known of %s, the only instance type that suits%s", o.Only, remedy)
		}
		return clause(None, "no price is known of any of the %d instance types that suit%s", o.Types, remedy)
	}
	text := fmt.Sprintf("none of the %d instance types that fit is available at the moment", o.Types)
	if o.Only != "" {
		text = o.Only + ", the only instance type that fits, is not available at the moment"
	}
	if len(o.CapacityTypes) > 0 {
		text += " as " + List(o.CapacityTypes)
	}
	if len(o.Zones) > 0 {
		text += " in " + List(o.Zones)
	}
	return Clause{Text: text}
}
