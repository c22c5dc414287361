package breaker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Why says in one sentence why a reason pauses: how many of how many have failed, what they have in common, and what will have
// it go on.
func (b *Book) Why(reason karpv1.DisruptionReason) string {
	r := b.Reasons[reason]
	if r == nil || r.Paused.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d of the last %d nodes launched to replace others for reason %s did not come up%s. "+
		"It goes on when the NodePool or its EC2NodeClass is edited, when another image is used, or when one node that is tried after %s comes up",
		r.failed(), len(r.Outcomes), reason, shared(r.Outcomes), r.Next.UTC().Format(time.RFC3339))
}

// shared says what those that failed have in common, and those that came up have not; and what they failed in.
func shared(all []Outcome) string {
	var common []string
	for _, trait := range []struct {
		name string
		of   func(Outcome) string
	}{
		{"image", func(o Outcome) string { return o.Image }},
		{"instance type", func(o Outcome) string { return o.Type }},
		{"zone", func(o Outcome) string { return o.Zone }},
	} {
		if v := distinctive(all, trait.of); v != "" {
			common = append(common, trait.name+" "+v)
		}
	}
	out := ""
	if len(common) > 0 {
		out = ", all of " + strings.Join(common, " and ")
	}
	reasons := map[string]int{}
	for _, o := range all {
		if o.Failed() {
			reasons[o.Why]++
		}
	}
	var counted []string
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		counted = append(counted, fmt.Sprintf("%d %s", reasons[why], why))
	}
	return out + ": " + strings.Join(counted, ", ")
}

// distinctive is the value of a trait that all that failed have; empty if they differ, or one that came up has it, too.
func distinctive(all []Outcome, of func(Outcome) string) string {
	value := ""
	for _, o := range all {
		if !o.Failed() {
			continue
		}
		if v := of(o); v == "" || value != "" && v != value {
			return ""
		}
		value = of(o)
	}
	if slices.ContainsFunc(all, func(o Outcome) bool { return !o.Failed() && of(o) == value }) {
		return ""
	}
	return value
}
