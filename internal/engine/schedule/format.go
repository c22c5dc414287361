package schedule

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Nearest is where a pod would be scheduled if the reasons of its pool did not exist.
type Nearest struct {
	InstanceType, Zone, CapacityType string
}

// String is for people.
func (n *Nearest) String() string {
	if n.Zone == "" {
		return n.InstanceType
	}
	return n.InstanceType + " in " + n.Zone
}

// maxEnumerated is how many items a message lists. An event holds 1,024 characters.
const maxEnumerated = 6

// enumerate joins the first few words of a list.
func enumerate(words []string) string {
	if len(words) > maxEnumerated {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:maxEnumerated-1], ", "), len(words)-maxEnumerated+1)
	}
	return strings.Join(words, ", ")
}

// requirementText prints a requirement as kubectl selectors do, with comparisons added.
func requirementText(r requirement.Requirement) string {
	switch r.Operator() {
	case corev1.NodeSelectorOpIn:
		if v, ok := r.Single(); ok {
			return r.Key() + "=" + v
		}
		return fmt.Sprintf("%s in (%s)", r.Key(), enumerate(r.Values()))
	case corev1.NodeSelectorOpDoesNotExist:
		return "no label " + r.Key()
	}
	var parts []string
	if r.Operator() == corev1.NodeSelectorOpNotIn {
		parts = append(parts, fmt.Sprintf("%s not in (%s)", r.Key(), enumerate(r.Values())))
	}
	lowest, highest := r.Bounds()
	if lowest != nil {
		parts = append(parts, fmt.Sprintf("%s >= %d", r.Key(), *lowest))
	}
	if highest != nil {
		parts = append(parts, fmt.Sprintf("%s <= %d", r.Key(), *highest))
	}
	if len(parts) == 0 {
		return "any " + r.Key()
	}
	return strings.Join(parts, " and ")
}

// valueText prints a requirement without its key, after the key has just been named.
func valueText(r requirement.Requirement) string {
	if r.Operator() != corev1.NodeSelectorOpIn {
		return requirementText(r)
	}
	if v, ok := r.Single(); ok {
		return v
	}
	return "one of " + enumerate(r.Values())
}
