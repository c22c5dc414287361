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

// DefaultSpread parses the setting scheduler-config, YAML or JSON: the spread constraints of pods that have none of
// their own. It is a setting because the scheduler does not expose its configuration. The error lists all invalid
// fields.
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
		for _, wrong := range validateDefaultConstraint(constraints, i) {
			errs = append(errs, fmt.Errorf("--scheduler-config: podTopologySpread.defaultConstraints[%d].%s", i, wrong))
		}
	}
	return constraints, errors.Join(errs...)
}

// validateDefaultConstraint lists what the scheduler would reject in a default constraint, each a field and its
// problem.
func validateDefaultConstraint(all []corev1.TopologySpreadConstraint, i int) []string {
	c := &all[i]
	var out []string
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	refuse(c.MaxSkew <= 0, "maxSkew: %d is not positive", c.MaxSkew)
	if problems := validation.IsQualifiedName(c.TopologyKey); len(problems) > 0 {
		refuse(true, "topologyKey: %q is not a label key: %s", c.TopologyKey, problems[0])
	}
	hard := c.WhenUnsatisfiable == corev1.DoNotSchedule
	refuse(
		!hard && c.WhenUnsatisfiable != corev1.ScheduleAnyway,
		"whenUnsatisfiable: %q is neither DoNotSchedule nor ScheduleAnyway",
		c.WhenUnsatisfiable,
	)
	refuse(c.LabelSelector != nil, "labelSelector: must be empty, since each pod has the selector of its Services and controller")
	refuse(len(c.MatchLabelKeys) > 0, "matchLabelKeys: must be empty, since the constraint has no selector of its own to add them to")
	refuse(c.MinDomains != nil && (*c.MinDomains <= 0 || !hard), "minDomains: must be positive, and is allowed only with DoNotSchedule")
	for _, policy := range []struct {
		field string
		value *corev1.NodeInclusionPolicy
	}{{"nodeAffinityPolicy", c.NodeAffinityPolicy}, {"nodeTaintsPolicy", c.NodeTaintsPolicy}} {
		refuse(policy.value != nil && *policy.value != corev1.NodeInclusionPolicyHonor && *policy.value != corev1.NodeInclusionPolicyIgnore,
			"%s: must be Honor or Ignore", policy.field)
	}
	refuse(slices.ContainsFunc(all[:i], func(o corev1.TopologySpreadConstraint) bool {
		return o.TopologyKey == c.TopologyKey && o.WhenUnsatisfiable == c.WhenUnsatisfiable
	}), "topologyKey: %s, %s is set twice", c.TopologyKey, c.WhenUnsatisfiable)
	return out
}
