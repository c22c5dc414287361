package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// schedulerVersion is the version of kube-scheduler with rules that count. None of its features finishes with a later version.
var schedulerVersion = version.MajorMinor(1, 37)

// RequiredFeatures are the features that a node's kubelet must declare before kube-scheduler accepts the pod there, sorted; nil for nearly
// all pods.
func RequiredFeatures(spec *corev1.PodSpec) []string {
	if !mayRequireFeatures(spec) {
		return nil
	}
	features := nodedeclaredfeatures.DefaultFramework
	set, err := features.InferForPodScheduling(&types.PodInfo{Spec: spec}, schedulerVersion)
	if err != nil {
		return nil // its only error is a version that is missing
	}
	names, err := features.Unmap(set)
	if err != nil {
		return nil // a set of its own making
	}
	return names
}

// mayRequireFeatures is false for pods with none of the fields that any feature is about.
func mayRequireFeatures(spec *corev1.PodSpec) bool {
	if spec.HostNetwork && spec.HostUsers != nil && !*spec.HostUsers {
		return true
	}
	for _, list := range [...][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			if RestartsAll(&list[i]) || len(MountsWithOptions(&list[i])) > 0 {
				return true
			}
		}
	}
	return false
}

// RestartsAll reports whether the container has a rule by which the whole pod restarts.
func RestartsAll(c *corev1.Container) bool {
	for i := range c.RestartPolicyRules {
		if c.RestartPolicyRules[i].Action == corev1.ContainerRestartRuleActionRestartAllContainers {
			return true
		}
	}
	return false
}

// MountsWithOptions are the mounts of the container with options for bind mounts.
func MountsWithOptions(c *corev1.Container) (out []corev1.VolumeMount) {
	for i := range c.VolumeMounts {
		if len(c.VolumeMounts[i].BindMountOptions) > 0 {
			out = append(out, c.VolumeMounts[i])
		}
	}
	return out
}
