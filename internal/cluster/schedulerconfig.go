package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// schedulerConfig is the part of the scheduler's configuration that plans depend on.
type schedulerConfig struct {
	PodTopologySpread struct {
		DefaultConstraints []corev1.TopologySpreadConstraint `json:"defaultConstraints,omitempty"`
	} `json:"podTopologySpread,omitempty"`
	Profiles []schedulerProfile `json:"profiles,omitempty"`
}

// schedulerProfile is that part of one profile.
type schedulerProfile struct {
	SchedulerName string `json:"schedulerName,omitempty"`
	NodeAffinity  struct {
		AddedAffinity *corev1.NodeAffinity `json:"addedAffinity,omitempty"`
	} `json:"nodeAffinity,omitempty"`
	NodeResourcesFit struct {
		IgnoredResources      []string `json:"ignoredResources,omitempty"`
		IgnoredResourceGroups []string `json:"ignoredResourceGroups,omitempty"`
	} `json:"nodeResourcesFit,omitempty"`
}

// SchedulerConfig is the setting scheduler-config as Settings have it.
type SchedulerConfig struct {
	DefaultSpread []corev1.TopologySpreadConstraint
	Profiles      map[string]snapshot.SchedulerProfile
}

// ParseSchedulerConfig parses the setting scheduler-config, YAML or JSON: the spread constraints of pods that have none of their own, and
// what profiles add to the rules of their pods, or leave out. It is a setting because the scheduler does not expose its configuration. The
// error lists all invalid fields.
func ParseSchedulerConfig(config string) (SchedulerConfig, error) {
	if strings.TrimSpace(config) == "" {
		return SchedulerConfig{}, nil
	}
	parsed, err := decodeSchedulerConfig(config)
	if err != nil {
		return SchedulerConfig{}, fmt.Errorf("--scheduler-config: %w", err)
	}
	constraints := parsed.PodTopologySpread.DefaultConstraints
	var errs []error
	for i := range constraints {
		for _, wrong := range validateDefaultConstraint(constraints, i) {
			errs = append(errs, fmt.Errorf("--scheduler-config: podTopologySpread.defaultConstraints[%d].%s", i, wrong))
		}
	}
	out := SchedulerConfig{DefaultSpread: constraints}
	for i := range parsed.Profiles {
		p := &parsed.Profiles[i]
		name := cmp.Or(p.SchedulerName, corev1.DefaultSchedulerName)
		if _, twice := out.Profiles[name]; twice {
			errs = append(errs, fmt.Errorf("--scheduler-config: profiles[%d].schedulerName: %s is set twice", i, name))
		}
		if err := p.validate(field.NewPath("profiles").Index(i)); err != nil {
			errs = append(errs, fmt.Errorf("--scheduler-config: %w", err))
		}
		if out.Profiles == nil {
			out.Profiles = map[string]snapshot.SchedulerProfile{}
		}
		out.Profiles[name] = snapshot.SchedulerProfile{
			AddedAffinity:    p.NodeAffinity.AddedAffinity,
			IgnoredResources: p.NodeResourcesFit.IgnoredResources, IgnoredResourceGroups: p.NodeResourcesFit.IgnoredResourceGroups,
		}
	}
	return out, errors.Join(errs...)
}

// validate returns an error for all that the scheduler would reject.
func (p *schedulerProfile) validate(at *field.Path) error {
	var errs []error
	if a := p.NodeAffinity.AddedAffinity; a != nil {
		at := at.Child("nodeAffinity", "addedAffinity")
		if a.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			at := at.Child("requiredDuringSchedulingIgnoredDuringExecution")
			_, err := nodeaffinity.NewNodeSelector(a.RequiredDuringSchedulingIgnoredDuringExecution, field.WithPath(at))
			if errs = append(errs, err); len(a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) == 0 {
				errs = append(errs, fmt.Errorf("%s: must not be empty: no node matches an empty list", at.Child("nodeSelectorTerms")))
			}
		}
		_, err := nodeaffinity.NewPreferredSchedulingTerms(a.PreferredDuringSchedulingIgnoredDuringExecution,
			field.WithPath(at.Child("preferredDuringSchedulingIgnoredDuringExecution")))
		errs = append(errs, err)
	}
	fit := at.Child("nodeResourcesFit")
	for i, name := range p.NodeResourcesFit.IgnoredResources {
		if problems := validation.IsQualifiedName(name); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s: %q is no resource: %s", fit.Child("ignoredResources").Index(i), name, problems[0]))
		}
	}
	for i, group := range p.NodeResourcesFit.IgnoredResourceGroups {
		if problems := validation.IsQualifiedName(group); len(problems) > 0 || strings.Contains(group, "/") {
			errs = append(errs, fmt.Errorf("%s: %q is not the part of a resource's name before the slash",
				fit.Child("ignoredResourceGroups").Index(i), group))
		}
	}
	return errors.Join(errs...)
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
