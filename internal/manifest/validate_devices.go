package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podClaimErrors returns the errors in the resource claims of a pod, and in the references of its containers to them.
func podClaimErrors(s *corev1.PodSpec, path *field.Path) (out field.ErrorList) {
	names := map[string]bool{}
	for i, c := range s.ResourceClaims {
		at := path.Child("resourceClaims").Index(i)
		if c.Name == "" {
			out = append(out, field.Required(at.Child("name"), "names the claim within the pod"))
		} else if names[c.Name] {
			out = append(out, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
		if (c.ResourceClaimName == nil) == (c.ResourceClaimTemplateName == nil) {
			out = append(out, field.Invalid(at, c.Name, "exactly one of resourceClaimName and resourceClaimTemplateName must be set"))
		}
	}
	for _, of := range []struct {
		field      string
		containers []corev1.Container
	}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
		for i := range of.containers {
			for j, c := range of.containers[i].Resources.Claims {
				if !names[c.Name] {
					at := path.Child(of.field).Index(i).Child("resources", "claims").Index(j).Child("name")
					out = append(out, field.NotFound(at, c.Name))
				}
			}
		}
	}
	return out
}

// requestErrors returns the errors in the requests of a resource claim.
func requestErrors(requests []resourcev1.DeviceRequest, path *field.Path) (out field.ErrorList) {
	names := map[string]bool{}
	for i, r := range requests {
		at := path.Index(i)
		out = append(out, requestNameErrors(r.Name, names, at)...)
		if (r.Exactly == nil) == (len(r.FirstAvailable) == 0) {
			out = append(out, field.Invalid(at, r.Name, "exactly one of exactly and firstAvailable must be set"))
			continue
		}
		if e := r.Exactly; e != nil {
			out = append(out, deviceErrors(requested{e.DeviceClassName, e.AllocationMode, e.Count}, at.Child("exactly"))...)
		}
		alternatives := map[string]bool{}
		for j, s := range r.FirstAvailable {
			sub := at.Child("firstAvailable").Index(j)
			out = append(out, requestNameErrors(s.Name, alternatives, sub)...)
			out = append(out, deviceErrors(requested{s.DeviceClassName, s.AllocationMode, s.Count}, sub)...)
		}
	}
	return out
}

// requestNameErrors returns the errors in the name of a request, and adds it to the names.
func requestNameErrors(name string, names map[string]bool, path *field.Path) (out field.ErrorList) {
	switch {
	case name == "":
		out = append(out, field.Required(path.Child("name"), "must not be empty"))
	case names[name]:
		out = append(out, field.Duplicate(path.Child("name"), name))
	}
	names[name] = true
	return out
}

// requested describes what a request, or an alternative of one, states.
type requested struct {
	class string
	mode  resourcev1.DeviceAllocationMode
	count int64
}

func deviceErrors(r requested, path *field.Path) (out field.ErrorList) {
	if r.class == "" {
		out = append(out, field.Required(path.Child("deviceClassName"), "names the DeviceClass"))
	}
	modes := []resourcev1.DeviceAllocationMode{"", resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeAll}
	switch {
	case !slices.Contains(modes, r.mode):
		out = append(out, oneOf(r.mode, path.Child("allocationMode"), modes[1:]...)...)
	case r.mode == resourcev1.DeviceAllocationModeAll && r.count != 0:
		out = append(out, field.Invalid(path.Child("count"), r.count, "must not be set with allocationMode All"))
	case r.count < 0:
		out = append(out, field.Invalid(path.Child("count"), r.count, "must be greater than zero"))
	}
	return out
}

// sliceErrors returns the errors in a ResourceSlice that keep its devices from being found.
func sliceErrors(s *resourcev1.ResourceSliceSpec, path *field.Path) (out field.ErrorList) {
	if s.Driver == "" {
		out = append(out, field.Required(path.Child("driver"), "names the driver"))
	}
	if s.Pool.Name == "" {
		out = append(out, field.Required(path.Child("pool", "name"), "names the pool of devices"))
	}
	if s.Pool.ResourceSliceCount <= 0 {
		out = append(out, field.Invalid(path.Child("pool", "resourceSliceCount"), s.Pool.ResourceSliceCount, "must be greater than zero"))
	}
	places := 0
	for _, set := range []bool{
		s.NodeName != nil, s.NodeSelector != nil, s.AllNodes != nil && *s.AllNodes,
		s.PerDeviceNodeSelection != nil && *s.PerDeviceNodeSelection,
	} {
		if set {
			places++
		}
	}
	if places != 1 {
		const one = "exactly one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection must be set"
		out = append(out, field.Invalid(path, s.Pool.Name, one))
	}
	return out
}
