// Package wording puts requirements, amounts and lists into the words of messages, and hints at misspelled words.
package wording

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// MaxListed limits how many items a list of a message has. An event holds 1,024 characters.
const MaxListed = 6

// List joins the first few words of a list.
func List(words []string) string { return listed(words, 0) }

// listed is List for a list of which only the first words are known, at least MaxListed.
func listed(words []string, more int) string {
	if n := len(words) + more; n > MaxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:MaxListed-1], ", "), n-MaxListed+1)
	}
	return strings.Join(words, ", ")
}

// Requirement prints a requirement as kubectl selectors do, with comparisons added.
func Requirement(r requirement.Requirement) string {
	if r.Key() == requirement.FieldName {
		return strings.ReplaceAll(describe(r), requirement.FieldName, metav1.ObjectNameField)
	}
	return describe(r)
}

func describe(r requirement.Requirement) string {
	switch r.Operator() {
	case corev1.NodeSelectorOpIn:
		if v, ok := r.Single(); ok {
			return r.Key() + "=" + v
		}
		return fmt.Sprintf("%s in (%s)", r.Key(), List(r.Values()))
	case corev1.NodeSelectorOpDoesNotExist:
		return "no label " + r.Key()
	}
	var parts []string
	if r.Operator() == corev1.NodeSelectorOpNotIn {
		parts = append(parts, fmt.Sprintf("%s not in (%s)", r.Key(), List(r.Values())))
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

// Amount prints an amount of a resource in the units of package quantity, as Kubernetes does.
func Amount(name corev1.ResourceName, n int64) string {
	if name == corev1.ResourceCPU {
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	}
	if name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return resource.NewQuantity(n, resource.DecimalSI).String()
}
