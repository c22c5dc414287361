package userdata

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	kubelet "k8s.io/kubelet/config/v1beta1"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// InstanceLimits is what an image measures about the instance when it works out its defaults.
type InstanceLimits struct {
	VCPUs int
	// MaxENIs and IPv4PerENI limit the pods that can have an address of their own.
	MaxENIs, IPv4PerENI int
}

// ENIMaxPods is the number of pods that the instance's network interfaces have addresses for: one
// address of each interface is the instance's own, and two pods use the host network.
func (m InstanceLimits) ENIMaxPods() int32 {
	return int32(m.MaxENIs*(m.IPv4PerENI-1) + 2)
}

// WithDefaults returns the kubelet's configuration with what the image fills in where the user data
// is silent. All three images reserve CPU and memory for the system by the same formula.
// User data replaces Amazon Linux 2's maps whole, since there they are flags; the other two images
// merge them key by key.
func (c Config) WithDefaults(m InstanceLimits) kubelet.KubeletConfiguration {
	out := *c.Kubelet.DeepCopy()
	if out.MaxPods == 0 {
		out.MaxPods = 110
		if c.UseENIMaxPods {
			out.MaxPods = m.ENIMaxPods()
			if c.Family == Windows {
				out.MaxPods = int32(m.IPv4PerENI - 1) // Windows uses the addresses of the first interface only
			}
		}
	}
	if limit := out.PodsPerCore * int32(m.VCPUs); out.PodsPerCore > 0 && c.Family != Bottlerocket {
		out.MaxPods = min(out.MaxPods, limit)
	}
	reserved := map[string]string{
		"cpu":               fmt.Sprintf("%dm", reservedMilliCPU(m.VCPUs)),
		"memory":            fmt.Sprintf("%dMi", reservedMemoryMiB(c.reservedPods(out, m))),
		"ephemeral-storage": "1Gi",
	}
	evictions := map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"}
	out.KubeReserved = c.overlay(reserved, out.KubeReserved)
	out.EvictionHard = c.overlay(evictions, out.EvictionHard)
	return out
}

// reservedPods is the number of pods that memory is reserved for. Amazon Linux counts what the
// interfaces can serve, whatever the limit in force; Bottlerocket counts the limit.
func (c Config) reservedPods(k kubelet.KubeletConfiguration, m InstanceLimits) int32 {
	if c.Family == Bottlerocket {
		return k.MaxPods
	}
	return m.ENIMaxPods()
}

func (c Config) overlay(defaults, given map[string]string) map[string]string {
	if given != nil && c.Family == AL2 {
		return given
	}
	maps.Copy(defaults, given)
	return defaults
}

func reservedMemoryMiB(pods int32) int32 { return 11*pods + 255 }

// reservedMilliCPU is 6 % of the first core, 1 % of the second, 0.5 % of the next two and 0.25 % of the rest.
func reservedMilliCPU(vcpus int) int {
	bands := []struct{ from, to, perTenThousand int }{
		{0, 1000, 600}, {1000, 2000, 100}, {2000, 4000, 50}, {4000, 1 << 30, 25},
	}
	total := 0
	for _, b := range bands {
		if cpu := vcpus * 1000; cpu > b.from {
			total += (min(cpu, b.to) - b.from) * b.perTenThousand / 10_000
		}
	}
	return total
}

// ValidateLabels is kubelet's check of --node-labels: in the namespaces of Kubernetes it may query
// only for labels that a node may set on itself. A kubelet that fails it exits.
func ValidateLabels(labels map[string]string) error {
	var unknown, invalid []string
	for _, key := range sortedKeys(labels) {
		if isKubernetesLabel(key) && !kubeletapis.IsKubeletLabel(key) {
			unknown = append(unknown, key)
		}
		for _, problem := range validation.IsQualifiedName(key) {
			invalid = append(invalid, fmt.Sprintf("'%s' - %s", key, problem))
		}
		for _, problem := range validation.IsValidLabelValue(labels[key]) {
			invalid = append(invalid, fmt.Sprintf("'%s' - %s", labels[key], problem))
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: %v; "+
			"they must begin with an allowed prefix (%s) or be in the specifically allowed set (%s)", unknown,
			strings.Join(kubeletapis.KubeletLabelNamespaces(), ", "), strings.Join(kubeletapis.KubeletLabels(), ", "))
	}
	if len(invalid) > 0 {
		return fmt.Errorf("invalid node labels: %s", strings.Join(invalid, "; "))
	}
	return nil
}

func isKubernetesLabel(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	if !found {
		return false
	}
	for _, domain := range []string{"kubernetes.io", "k8s.io"} {
		if namespace == domain || strings.HasSuffix(namespace, "."+domain) {
			return true
		}
	}
	return false
}

// validateKubelet checks the values that a kubelet rejects to start with.
func validateKubelet(k kubelet.KubeletConfiguration) error {
	if k.MaxPods < 0 {
		return fmt.Errorf("kubelet: invalid configuration: maxPods (--max-pods) %d must not be a negative number", k.MaxPods)
	}
	if k.PodsPerCore < 0 {
		return fmt.Errorf("kubelet: invalid configuration: podsPerCore (--pods-per-core) %d must not be a negative number", k.PodsPerCore)
	}
	if err := errors.Join(
		validateReserved("kubeReserved", k.KubeReserved), validateReserved("systemReserved", k.SystemReserved),
		validateThresholds("evictionHard", k.EvictionHard), validateThresholds("evictionSoft", k.EvictionSoft),
	); err != nil {
		return err
	}
	for _, signal := range sortedKeys(k.EvictionSoft) {
		if _, ok := k.EvictionSoftGracePeriod[signal]; !ok {
			return fmt.Errorf("kubelet: grace period must be specified for the soft eviction threshold %s", signal)
		}
	}
	return parseDurations(k.EvictionSoftGracePeriod)
}

func validateReserved(field string, reserved map[string]string) error {
	for _, name := range sortedKeys(reserved) {
		switch name {
		case "cpu", "memory", "ephemeral-storage", "pid":
		default:
			return fmt.Errorf("kubelet: %s: cannot reserve %q resource", field, name)
		}
		q, err := resource.ParseQuantity(reserved[name])
		if err != nil {
			return fmt.Errorf("kubelet: %s: failed to parse quantity %q for %q resource: %w", field, reserved[name], name, err)
		}
		if q.Sign() < 0 {
			return fmt.Errorf("kubelet: %s: resource quantity for %q cannot be negative: %s", field, name, reserved[name])
		}
	}
	return nil
}

func validateThresholds(field string, thresholds map[string]string) error {
	for _, signal := range sortedKeys(thresholds) {
		if _, err := Threshold(thresholds[signal], resource.Quantity{}); err != nil {
			return fmt.Errorf("kubelet: %s of %s: %w", field, signal, err)
		}
	}
	return nil
}

// Threshold is the amount that an eviction threshold, a quantity or a percentage, keeps free of a
// capacity. 100 % switches a threshold off.
func Threshold(text string, capacity resource.Quantity) (resource.Quantity, error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		share, err := strconv.ParseFloat(number, 64)
		if err != nil || share < 0 || share > 100 {
			return resource.Quantity{}, fmt.Errorf("%q is not a percentage", text)
		}
		if share == 100 {
			return resource.Quantity{}, nil
		}
		return *resource.NewQuantity(int64(share/100*float64(capacity.Value())), capacity.Format), nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("parse %q: %w", text, err)
	}
	if q.Sign() < 0 {
		return resource.Quantity{}, fmt.Errorf("%q must be positive", text)
	}
	return q, nil
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
