package manifest

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// validate returns the errors with which the API server would reject an object, for the fields that plans read. The
// schema validates NodePools and node classes.
func validate(o client.Object) field.ErrorList {
	out := metaErrors(o)
	spec, template := field.NewPath("spec"), field.NewPath("spec", "template")
	switch t := o.(type) {
	case *corev1.Pod:
		return append(out, podErrors(&t.Spec, spec)...)
	case *corev1.ReplicationController:
		if t.Spec.Template != nil {
			out = append(out, templateErrors(t.Spec.Template, template)...)
		}
		return append(out, replicaErrors(t.Spec.Replicas, spec.Child("replicas"))...)
	case *appsv1.Deployment:
		out = append(out, replicaErrors(t.Spec.Replicas, spec.Child("replicas"))...)
		return append(out, templateErrors(&t.Spec.Template, template)...)
	case *appsv1.ReplicaSet:
		out = append(out, replicaErrors(t.Spec.Replicas, spec.Child("replicas"))...)
		return append(out, templateErrors(&t.Spec.Template, template)...)
	case *appsv1.StatefulSet:
		out = append(out, replicaErrors(t.Spec.Replicas, spec.Child("replicas"))...)
		if o := t.Spec.Ordinals; o != nil {
			out = append(out, replicaErrors(&o.Start, spec.Child("ordinals", "start"))...)
		}
		return append(out, templateErrors(&t.Spec.Template, template)...)
	case *appsv1.DaemonSet:
		return append(out, templateErrors(&t.Spec.Template, template)...)
	case *batchv1.Job:
		out = append(out, replicaErrors(t.Spec.Parallelism, spec.Child("parallelism"))...)
		out = append(out, replicaErrors(t.Spec.Completions, spec.Child("completions"))...)
		return append(out, templateErrors(&t.Spec.Template, template)...)
	case *policyv1.PodDisruptionBudget:
		if t.Spec.MinAvailable != nil && t.Spec.MaxUnavailable != nil {
			out = append(out, field.Invalid(spec, "minAvailable and maxUnavailable", "cannot both be set"))
		}
		return append(out, selectorErrors(t.Spec.Selector, spec.Child("selector"))...)
	case *corev1.Node:
		return append(out, nodeErrors(t)...)
	case *schedulingv1beta1.PodGroup:
		return append(out, podGroupErrors(&t.Spec, spec)...)
	case *resourcev1.ResourceClaim:
		return append(out, requestErrors(t.Spec.Devices.Requests, spec.Child("devices", "requests"))...)
	case *resourcev1.ResourceClaimTemplate:
		return append(out, requestErrors(t.Spec.Spec.Devices.Requests, spec.Child("spec", "devices", "requests"))...)
	case *resourcev1.ResourceSlice:
		return append(out, sliceErrors(&t.Spec, spec)...)
	}
	return out
}

func metaErrors(o client.Object) (out field.ErrorList) {
	path := field.NewPath("metadata")
	if name := o.GetName(); name != "" && !plainSubdomain(name) {
		for _, why := range validation.IsDNS1123Subdomain(name) {
			out = append(out, field.Invalid(path.Child("name"), name, why))
		}
	}
	if namespace := o.GetNamespace(); namespace != "" {
		for _, why := range validation.IsDNS1123Label(namespace) {
			out = append(out, field.Invalid(path.Child("namespace"), namespace, why))
		}
	}
	return append(out, labelErrors(o.GetLabels(), path.Child("labels"))...)
}

// plainSubdomain reports whether a name is a subdomain for sure: labels of letters and digits with single dots and
// dashes between them. The regular expression that decides about other names takes a microsecond, and most names are
// plain.
func plainSubdomain(name string) bool {
	separated := true
	for i := range len(name) {
		switch b := name[i]; {
		case 'a' <= b && b <= 'z' || '0' <= b && b <= '9':
			separated = false
		case (b == '-' || b == '.') && !separated:
			separated = true
		default:
			return false
		}
	}
	return !separated && len(name) <= validation.DNS1123SubdomainMaxLength
}

// labelErrors returns the errors in labels, in the order of their keys.
func labelErrors(labels map[string]string, path *field.Path) (out field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		for _, why := range validation.IsQualifiedName(key) {
			out = append(out, field.Invalid(path, key, why))
		}
		out = append(out, valueErrors(labels[key], path.Key(key))...)
	}
	return out
}

func keyErrors(key string, path *field.Path) field.ErrorList {
	if key == "" {
		return field.ErrorList{field.Required(path, "must not be empty")}
	}
	return metavalidation.ValidateLabelName(key, path)
}

func valueErrors(value string, path *field.Path) (out field.ErrorList) {
	for _, why := range validation.IsValidLabelValue(value) {
		out = append(out, field.Invalid(path, value, why))
	}
	return out
}

// oneOf rejects a value that is not known.
func oneOf[T ~string](value T, path *field.Path, known ...T) field.ErrorList {
	if slices.Contains(known, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, known)}
}

func replicaErrors(n *int32, path *field.Path) field.ErrorList {
	if n != nil && *n < 0 {
		return field.ErrorList{field.Invalid(path, *n, "must be greater than or equal to 0")}
	}
	return nil
}

func templateErrors(t *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	return append(labelErrors(t.Labels, path.Child("metadata", "labels")), podErrors(&t.Spec, path.Child("spec"))...)
}

func nodeErrors(n *corev1.Node) field.ErrorList {
	out := amountErrors(n.Status.Capacity, field.NewPath("status", "capacity"))
	out = append(out, amountErrors(n.Status.Allocatable, field.NewPath("status", "allocatable"))...)
	for i, taint := range n.Spec.Taints {
		path := field.NewPath("spec", "taints").Index(i)
		out = append(out, keyErrors(taint.Key, path.Child("key"))...)
		out = append(out, valueErrors(taint.Value, path.Child("value"))...)
		out = append(out, effectErrors(taint.Effect, path.Child("effect"))...)
	}
	return out
}

func effectErrors(effect corev1.TaintEffect, path *field.Path) field.ErrorList {
	return oneOf(effect, path, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

// podErrors returns the errors in a pod's spec. Fields that only matter once a pod runs are not validated, and may be
// missing.
func podErrors(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	out := labelErrors(s.NodeSelector, path.Child("nodeSelector"))
	out = append(out, containerErrors(s, path)...)
	if s.Resources != nil {
		out = append(out, requirementErrors(*s.Resources, path.Child("resources"))...)
	}
	out = append(out, amountErrors(s.Overhead, path.Child("overhead"))...)
	for i, t := range s.Tolerations {
		out = append(out, tolerationErrors(t, path.Child("tolerations").Index(i))...)
	}
	out = append(out, affinityErrors(s.Affinity, path.Child("affinity"))...)
	out = append(out, spreadErrors(s.TopologySpreadConstraints, path.Child("topologySpreadConstraints"))...)
	if s.OS != nil {
		out = append(out, oneOf(s.OS.Name, path.Child("os", "name"), corev1.Linux, corev1.Windows)...)
	}
	if t := s.TerminationGracePeriodSeconds; t != nil && *t < 0 {
		out = append(out, field.Invalid(path.Child("terminationGracePeriodSeconds"), *t, "must be greater than or equal to 0"))
	}
	gates := map[string]bool{}
	for i, g := range s.SchedulingGates {
		at := path.Child("schedulingGates").Index(i).Child("name")
		out = append(out, keyErrors(g.Name, at)...)
		if gates[g.Name] {
			out = append(out, field.Duplicate(at, g.Name))
		}
		gates[g.Name] = true
	}
	out = append(out, podClaimErrors(s, path)...)
	return append(out, volumeErrors(s.Volumes, path.Child("volumes"))...)
}

func volumeErrors(volumes []corev1.Volume, path *field.Path) (out field.ErrorList) {
	names := map[string]bool{}
	for i, v := range volumes {
		at := path.Index(i)
		for _, why := range validation.IsDNS1123Label(v.Name) {
			out = append(out, field.Invalid(at.Child("name"), v.Name, why))
		}
		if names[v.Name] {
			out = append(out, field.Duplicate(at.Child("name"), v.Name))
		}
		names[v.Name] = true
		if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "" {
			out = append(out, field.Required(at.Child("persistentVolumeClaim", "claimName"), "names the PersistentVolumeClaim"))
		}
	}
	return out
}

func containerErrors(s *corev1.PodSpec, path *field.Path) (out field.ErrorList) {
	taken := map[string]bool{}
	for _, of := range []struct {
		field      string
		containers []corev1.Container
	}{{"initContainers", s.InitContainers}, {"containers", s.Containers}} {
		for i := range of.containers {
			c, at := &of.containers[i], path.Child(of.field).Index(i)
			out = append(out, requirementErrors(c.Resources, at.Child("resources"))...)
			for j, port := range c.Ports {
				portAt := at.Child("ports").Index(j)
				out = append(out, portErrors(port, s.HostNetwork, portAt)...)
				if key := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort); port.HostPort != 0 && of.field == "containers" {
					if taken[key] {
						out = append(out, field.Duplicate(portAt.Child("hostPort"), port.HostPort))
					}
					taken[key] = true
				}
			}
		}
	}
	return out
}

func portErrors(p corev1.ContainerPort, hostNetwork bool, path *field.Path) (out field.ErrorList) {
	if p.ContainerPort == 0 {
		out = append(out, field.Required(path.Child("containerPort"), "must be between 1 and 65535, inclusive"))
	} else {
		for _, why := range validation.IsValidPortNum(int(p.ContainerPort)) {
			out = append(out, field.Invalid(path.Child("containerPort"), p.ContainerPort, why))
		}
	}
	if p.HostPort != 0 {
		for _, why := range validation.IsValidPortNum(int(p.HostPort)) {
			out = append(out, field.Invalid(path.Child("hostPort"), p.HostPort, why))
		}
		if hostNetwork && p.HostPort != p.ContainerPort {
			out = append(out, field.Invalid(path.Child("hostPort"), p.HostPort, "must match `containerPort` when `hostNetwork` is true"))
		}
	}
	if p.HostIP != "" && net.ParseIP(p.HostIP) == nil {
		out = append(out, field.Invalid(path.Child("hostIP"), p.HostIP, "must be an IP address"))
	}
	return append(out, oneOf(p.Protocol, path.Child("protocol"), "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
}

// amountErrors rejects negative quantities.
func amountErrors(list corev1.ResourceList, path *field.Path) (out field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; q.Sign() < 0 {
			out = append(out, field.Invalid(path.Key(string(name)), q.String(), "must be greater than or equal to 0"))
		}
	}
	return out
}

func requirementErrors(r corev1.ResourceRequirements, path *field.Path) (out field.ErrorList) {
	for _, side := range []struct {
		field string
		list  corev1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		at := path.Child(side.field)
		out = append(out, amountErrors(side.list, at)...)
		for _, name := range slices.Sorted(maps.Keys(side.list)) {
			out = append(out, resourceErrors(name, at.Key(string(name)))...)
			if q := side.list[name]; extended(name) && q.MilliValue()%1000 != 0 {
				out = append(out, field.Invalid(at.Key(string(name)), q.String(), "must be an integer"))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, at := r.Requests[name], path.Child("requests").Key(string(name))
		limit, limited := r.Limits[name]
		whole := extended(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
		switch {
		case whole && !limited:
			at = path.Child("limits").Key(string(name))
			out = append(out, field.Required(at, "must be set to the same amount, since the resource cannot be overcommitted"))
		case whole && request.Cmp(limit) != 0:
			out = append(out, field.Invalid(at, request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			out = append(out, field.Invalid(at, request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	return out
}

// resourceErrors rejects names of resources that no container can request.
func resourceErrors(name corev1.ResourceName, path *field.Path) (out field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Invalid(path, "", "the name of the resource is empty")}
	}
	for _, why := range validation.IsQualifiedName(string(name)) {
		out = append(out, field.Invalid(path, string(name), why))
	}
	const rule = "must be a standard resource for containers (cpu, memory, ephemeral-storage, hugepages-SIZE) " +
		"or have a domain, such as example.com/device"
	standard := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	own := strings.Contains(string(name), "/")
	switch {
	case len(out) > 0:
	case !own && !slices.Contains(standard, name) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		out = append(out, field.Invalid(path, string(name), rule))
	case strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix):
		out = append(out, field.Invalid(path, string(name), "must not begin with "+corev1.DefaultResourceRequestsPrefix))
	}
	return out
}

// extended reports whether a resource is an extended resource, which can be requested only in integers.
func extended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}
