package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	sigsyaml "sigs.k8s.io/yaml"
)

// schedulerConfig is the part of the scheduler's configuration that plans depend on.
type schedulerConfig struct {
	PodTopologySpread struct {
		DefaultConstraints []corev1.TopologySpreadConstraint `json:"defaultConstraints,omitempty"`
	} `json:"podTopologySpread,omitempty"`
}

// DefaultSpread reads the setting scheduler-config, YAML or JSON: the spread constraints of pods that have none of their
// own. They are given here because the scheduler does not tell its configuration. The error names all that is wrong.
func DefaultSpread(config string) ([]corev1.TopologySpreadConstraint, error) {
	if strings.TrimSpace(config) == "" {
		return nil, nil
	}
	var parsed schedulerConfig
	if err := sigsyaml.UnmarshalStrict([]byte(config), &parsed); err != nil {
		return nil, fmt.Errorf("--scheduler-config: %w", err)
	}
	constraints := parsed.PodTopologySpread.DefaultConstraints
	var errs []error
	for i := range constraints {
		for _, wrong := range wrongDefaults(constraints, i) {
			errs = append(errs, fmt.Errorf("--scheduler-config: podTopologySpread.defaultConstraints[%d].%s", i, wrong))
		}
	}
	return constraints, errors.Join(errs...)
}

// wrongDefaults says what the scheduler would not take of a default constraint, each a field and what is wrong with it.
func wrongDefaults(all []corev1.TopologySpreadConstraint, i int) []string {
	c := &all[i]
	var out []string
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	refuse(c.MaxSkew <= 0, "maxSkew: %d is not positive", c.MaxSkew)
	if problems := validation.IsQualifiedName(c.TopologyKey); len(problems) > 0 {
		refuse(true, "topologyKey: %q is no label: %s", c.TopologyKey, problems[0])
	}
	hard := c.WhenUnsatisfiable == corev1.DoNotSchedule
	refuse(!hard && c.WhenUnsatisfiable != corev1.ScheduleAnyway, "whenUnsatisfiable: %q is neither DoNotSchedule nor ScheduleAnyway", c.WhenUnsatisfiable)
	refuse(c.LabelSelector != nil, "labelSelector: it is that of the Services and the controller of each pod")
	refuse(len(c.MatchLabelKeys) > 0, "matchLabelKeys: there is no selector of its own that they could be added to")
	refuse(c.MinDomains != nil && (*c.MinDomains <= 0 || !hard), "minDomains: it is a positive number, and for DoNotSchedule only")
	for _, policy := range []struct {
		field string
		value *corev1.NodeInclusionPolicy
	}{{"nodeAffinityPolicy", c.NodeAffinityPolicy}, {"nodeTaintsPolicy", c.NodeTaintsPolicy}} {
		refuse(policy.value != nil && *policy.value != corev1.NodeInclusionPolicyHonor && *policy.value != corev1.NodeInclusionPolicyIgnore,
			"%s: it is neither Honor nor Ignore", policy.field)
	}
	refuse(slices.ContainsFunc(all[:i], func(o corev1.TopologySpreadConstraint) bool {
		return o.TopologyKey == c.TopologyKey && o.WhenUnsatisfiable == c.WhenUnsatisfiable
	}), "topologyKey: %s, %s is there twice", c.TopologyKey, c.WhenUnsatisfiable)
	return out
}
