package breaker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// PauseMessage describes why a reason is paused: how many of how many failed, what they have in common, and what resumes it.
func (b *History) PauseMessage(reason karpv1.DisruptionReason) string {
	r := b.Reasons[reason]
	if r == nil || r.Paused.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s. "+
		"Replacement resumes when you edit the NodePool or its EC2NodeClass, when another image is used, or when a single node launched after %s comes up",
		r.failures(reason), r.Next.UTC().Format(time.RFC3339))
}

// failures describes how many of how many failed, and what they have in common.
func (r *Record) failures(reason karpv1.DisruptionReason) string {
	return fmt.Sprintf("%d of the last %d nodes launched to replace others for reason %s did not come up%s",
		r.failed(), len(r.Outcomes), reason, commonTraits(r.Outcomes))
}

// commonTraits describes what the failed claims have in common, and the successful ones have not, and the steps that
// failed.
func commonTraits(all []Outcome) string {
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

// distinctive is the value of a trait that all failed claims have; empty if they differ, or a successful one has it
// too.
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
