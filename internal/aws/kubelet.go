package aws

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// Problem is why a node class is not valid; without a Reason there is none.
type Problem struct{ Reason, Message string }

// everywhere are the fields of spec.kubelet that every image family can be told. Only nodeadm takes others.
var everywhere = []string{
	"clusterDNS", "maxPods", "podsPerCore", "systemReserved", "kubeReserved", "evictionHard", "evictionSoft",
	"evictionSoftGracePeriod", "evictionMaxPodGracePeriod", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "cpuCFSQuota",
}

// CheckKubelet says what is wrong with spec.kubelet for an image family; the first rule broken decides.
func CheckKubelet(class *awsv1.EC2NodeClass, family string) Problem {
	if class.Spec.Kubelet == nil || len(class.Spec.Kubelet.Raw) == 0 {
		return Problem{}
	}
	kubelet, err := class.KubeletConfiguration()
	if err != nil {
		return Problem{"InvalidKubeletConfiguration", err.Error()}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(class.Spec.Kubelet.Raw, &fields); err != nil {
		return Problem{"InvalidKubeletConfiguration", fmt.Sprintf("spec.kubelet: %v", err)}
	}
	if message := invalidKubelet(kubelet, fields); message != "" {
		return Problem{"InvalidKubeletConfiguration", "spec.kubelet: " + message}
	}
	if field := expression(kubelet); field != "" {
		return Problem{"KubeletExpressionsDisabled", fmt.Sprintf("spec.kubelet.%s is an expression; expressions are not supported by this version", field)}
	}
	if family == awsv1.AMIFamilyAL2023 || family == awsv1.AMIFamilyCustom {
		return Problem{}
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(everywhere, field) || (field == "podsPerCore" && family == awsv1.AMIFamilyBottlerocket) {
			return Problem{"UnsupportedKubeletConfiguration", fmt.Sprintf("image family %s cannot be told spec.kubelet.%s", family, field)}
		}
	}
	if len(kubelet.ClusterDNS) > 1 {
		return Problem{"UnsupportedKubeletConfiguration", fmt.Sprintf("image family %s takes one entry of spec.kubelet.clusterDNS", family)}
	}
	return Problem{}
}

// invalidKubelet says what no kubelet would take; empty if nothing.
func invalidKubelet(k awsv1.KubeletConfiguration, fields map[string]json.RawMessage) string {
	if _, set := fields["registerWithTaints"]; set {
		return "registerWithTaints is set by the NodePool's taints"
	}
	if k.MaxPods != nil && k.MaxPods.Type == intstr.Int && k.MaxPods.IntVal < 0 {
		return "maxPods is negative"
	}
	for _, reserved := range []struct {
		name   string
		values map[string]string
	}{{"kubeReserved", k.KubeReserved}, {"systemReserved", k.SystemReserved}} {
		for _, key := range slices.Sorted(maps.Keys(reserved.values)) {
			if !slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, key) {
				return fmt.Sprintf("%s has the unknown key %q", reserved.name, key)
			}
			if strings.HasPrefix(reserved.values[key], "-") {
				return fmt.Sprintf("%s.%s is negative", reserved.name, key)
			}
		}
	}
	if !maps.EqualFunc(k.EvictionSoft, k.EvictionSoftGracePeriod, func(string, string) bool { return true }) {
		return "evictionSoft and evictionSoftGracePeriod must have the same keys"
	}
	if k.ImageGCHighThresholdPercent != nil && k.ImageGCLowThresholdPercent != nil && *k.ImageGCHighThresholdPercent <= *k.ImageGCLowThresholdPercent {
		return "imageGCHighThresholdPercent must be above imageGCLowThresholdPercent"
	}
	return ""
}

// expression returns the first field whose value is an expression rather than a value; empty if none is.
func expression(k awsv1.KubeletConfiguration) string {
	if k.MaxPods != nil && k.MaxPods.Type == intstr.String {
		return "maxPods"
	}
	for _, key := range slices.Sorted(maps.Keys(k.KubeReserved)) {
		if _, err := resource.ParseQuantity(k.KubeReserved[key]); err != nil {
			return "kubeReserved." + key
		}
	}
	for _, key := range slices.Sorted(maps.Keys(k.SystemReserved)) {
		if _, err := resource.ParseQuantity(k.SystemReserved[key]); err != nil {
			return "systemReserved." + key
		}
	}
	return ""
}
