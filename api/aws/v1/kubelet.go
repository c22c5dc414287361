package v1

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// KubeletConfiguration holds the fields of spec.kubelet that bear on how much of a node is left for pods,
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
