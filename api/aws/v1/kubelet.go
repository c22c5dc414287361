package v1

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// KubeletConfiguration holds the fields of spec.kubelet that decide how much of a node is left for pods,
// or that need a word of their own in some AMI families. Other fields are passed on to the kubelet unread.
// +kubebuilder:object:generate=false
type KubeletConfiguration struct {
	// ClusterDNS servers; by default the address of the service kube-system/kube-dns.
	ClusterDNS []string `json:"clusterDNS,omitempty"`
	// MaxPods is a number, or as a string an expression.
	MaxPods *intstr.IntOrString `json:"maxPods,omitempty"`
	// PodsPerCore bounds the number of pods by the number of vCPUs; 0 is no bound.
	PodsPerCore *int32 `json:"podsPerCore,omitempty"`
	// SystemReserved and KubeReserved: cpu, memory, ephemeral-storage, pid to quantity or expression.
	SystemReserved map[string]string `json:"systemReserved,omitempty"`
	KubeReserved   map[string]string `json:"kubeReserved,omitempty"`
	// EvictionHard and EvictionSoft: signal to quantity or percentage.
	EvictionHard map[string]string `json:"evictionHard,omitempty"`
	EvictionSoft map[string]string `json:"evictionSoft,omitempty"`
	// EvictionSoftGracePeriod: signal to duration.
	EvictionSoftGracePeriod     map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	EvictionMinimumReclaim      map[string]string `json:"evictionMinimumReclaim,omitempty"`
	EvictionMaxPodGracePeriod   *int32            `json:"evictionMaxPodGracePeriod,omitempty"`
	ImageGCHighThresholdPercent *int32            `json:"imageGCHighThresholdPercent,omitempty"`
	ImageGCLowThresholdPercent  *int32            `json:"imageGCLowThresholdPercent,omitempty"`
	CPUCFSQuota                 *bool             `json:"cpuCFSQuota,omitempty"`
}

// kubeletFields are the fields of spec.kubelet that every image family has a setting for. Only nodeadm, of AL2023, takes others.
var kubeletFields = []string{
	"clusterDNS", "maxPods", "podsPerCore", "systemReserved", "kubeReserved", "evictionHard", "evictionSoft",
	"evictionSoftGracePeriod", "evictionMaxPodGracePeriod", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "cpuCFSQuota",
}

// IgnoredKubeletFields are the fields of spec.kubelet, sorted, that the image family of the class has no setting for. They have no
// effect. A spec.kubelet that cannot be read has none.
func (c *EC2NodeClass) IgnoredKubeletFields() []string {
	family := c.ImageFamily()
	if family == AMIFamilyAL2023 || family == AMIFamilyCustom || c.Spec.Kubelet == nil {
		return nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(c.Spec.Kubelet.Raw, &fields) != nil {
		return nil
	}
	var out []string
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(kubeletFields, field) || (field == "podsPerCore" && family == AMIFamilyBottlerocket) {
			out = append(out, field)
		}
	}
	return out
}

// IgnoresClusterDNS reports whether spec.kubelet has more entries of clusterDNS than the image family takes, which is one.
func (c *EC2NodeClass) IgnoresClusterDNS() bool {
	family := c.ImageFamily()
	k, err := c.KubeletConfiguration()
	return err == nil && len(k.ClusterDNS) > 1 && family != AMIFamilyAL2023 && family != AMIFamilyCustom
}

// KubeletConfiguration reads spec.kubelet. Without one it returns the zero value.
func (c *EC2NodeClass) KubeletConfiguration() (KubeletConfiguration, error) {
	var k KubeletConfiguration
	if c.Spec.Kubelet == nil || len(c.Spec.Kubelet.Raw) == 0 {
		return k, nil
	}
	if err := json.Unmarshal(c.Spec.Kubelet.Raw, &k); err != nil {
		return KubeletConfiguration{}, fmt.Errorf("spec.kubelet: %w", err)
	}
	return k, nil
}
