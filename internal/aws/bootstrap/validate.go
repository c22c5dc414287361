package bootstrap

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NotEncodableError means that a value cannot be written into user data such that the instance reads the same value.
type NotEncodableError struct {
	// Field describes where the value is, for example: label "team".
	Field string
	Value string
	// Why holds what is wrong with the value, Fix what the user has to change.
	Why, Fix string
}

func (e *NotEncodableError) Error() string {
	return fmt.Sprintf("%s of the node has the value %q, which cannot be passed to the instance: %s; %s", e.Field, e.Value, e.Why, e.Fix)
}

// check rejects values that must not reach an instance. Quotes alone do not protect it: a bootstrap script writes its
// arguments into files of systemd and of the kubelet, which have their own rules for quotes, escapes and separators. In
// addition, labels and taints that Kubernetes does not accept would keep the node from registering.
func (in Input) check(k kubelet) error {
	if err := checkLabels(in.Labels); err != nil {
		return err
	}
	if err := checkTaints(in.Taints); err != nil {
		return err
	}
	for _, c := range []struct {
		field, value string
	}{
		{"cluster name", in.Cluster.Name},
		{"cluster endpoint", in.Cluster.Endpoint},
		{"cluster CA bundle", in.Cluster.CABundle},
		{"cluster service CIDR", in.Cluster.ServiceCIDR},
	} {
		if why := unsafeReason(c.value); why != "" {
			return &NotEncodableError{Field: c.field, Value: c.value, Why: why, Fix: "correct the controller's settings of the cluster"}
		}
	}
	for i, address := range k.ClusterDNS {
		if why := unsafeReason(address); why != "" {
			return &NotEncodableError{Field: fmt.Sprintf("kubelet setting clusterDNS[%d]", i), Value: address, Why: why, Fix: fixKubelet}
		}
	}
	for _, m := range k.maps() {
		for _, key := range slices.Sorted(maps.Keys(m.values)) {
			for _, text := range []string{key, m.values[key]} {
				if why := unsafeReason(text); why != "" {
					return &NotEncodableError{Field: fmt.Sprintf("kubelet setting %s[%q]", m.name, key), Value: m.values[key], Why: why, Fix: fixKubelet}
				}
			}
		}
	}
	return nil
}

const (
	fixKubelet = "change spec.kubelet of the EC2NodeClass"
	fixLabel   = "change the labels or requirements of the NodePool, or delete the NodeClaim that has them"
	fixTaint   = "change the taints of the NodePool, or delete the NodeClaim that has them"
)

func checkLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		problems := validation.IsQualifiedName(key)
		if len(problems) == 0 {
			problems = validation.IsValidLabelValue(labels[key])
		}
		if len(problems) > 0 {
			return &NotEncodableError{Field: fmt.Sprintf("label %q", key), Value: labels[key], Why: strings.Join(problems, ", "), Fix: fixLabel}
		}
	}
	return nil
}

func checkTaints(taints []corev1.Taint) error {
	for _, t := range taints {
		problems := validation.IsQualifiedName(t.Key)
		if len(problems) == 0 {
			problems = validation.IsValidLabelValue(t.Value)
		}
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			problems = append(problems, fmt.Sprintf("its effect is %q, not NoSchedule, PreferNoSchedule or NoExecute", t.Effect))
		}
		if len(problems) > 0 {
			return &NotEncodableError{Field: fmt.Sprintf("taint %q", t.Key), Value: t.Value, Why: strings.Join(problems, ", "), Fix: fixTaint}
		}
	}
	return nil
}

// plainPunctuation is the punctuation in names, addresses, base64, quantities and thresholds.
const plainPunctuation = "-._:/+=%<[]"

// unsafeReason returns why a setting cannot be passed on; empty if it can.
func unsafeReason(text string) string {
	for _, c := range text {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(plainPunctuation, c) {
			continue
		}
		return fmt.Sprintf("the character %q is neither a letter nor a digit, nor one of %s", c, plainPunctuation)
	}
	return ""
}

// stringMap is a map of spec.kubelet with its name.
type stringMap struct {
	name   string
	values map[string]string
}

// maps returns the maps of spec.kubelet that become arguments of the kubelet.
func (k kubelet) maps() []stringMap {
	return []stringMap{
		{"systemReserved", k.SystemReserved},
		{"kubeReserved", k.KubeReserved},
		{"evictionHard", k.EvictionHard},
		{"evictionSoft", k.EvictionSoft},
		{"evictionSoftGracePeriod", k.EvictionSoftGracePeriod},
	}
}

// UnsafeAddress returns why an address of spec.kubelet.clusterDNS cannot be passed to an instance; empty if it can.
func UnsafeAddress(address string) string { return unsafeReason(address) }
