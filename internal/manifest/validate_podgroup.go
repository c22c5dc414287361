package manifest

import (
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podGroupErrors returns the errors in the policy and the topology of a PodGroup.
func podGroupErrors(s *schedulingv1beta1.PodGroupSpec, path *field.Path) (out field.ErrorList) {
	policy := path.Child("schedulingPolicy")
	if (s.SchedulingPolicy.Gang == nil) == (s.SchedulingPolicy.Basic == nil) {
		out = append(out, field.Required(policy, "exactly one of gang and basic must be set"))
	}
	if gang := s.SchedulingPolicy.Gang; gang != nil && gang.MinCount < 1 {
		out = append(out, field.Invalid(policy.Child("gang", "minCount"), gang.MinCount, "must be at least 1"))
	}
	if s.SchedulingConstraints == nil {
		return out
	}
	topology := path.Child("schedulingConstraints", "topology")
	if n := len(s.SchedulingConstraints.Topology); n > 1 {
		out = append(out, field.TooMany(topology, n, 1))
	}
	for i, c := range s.SchedulingConstraints.Topology {
		for _, why := range validation.IsQualifiedName(c.Key) {
			out = append(out, field.Invalid(topology.Index(i).Child("key"), c.Key, why))
		}
	}
	return out
}
