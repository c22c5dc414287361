package bootstrap

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// flags returns the kubelet's command line flags, in a fixed order; unset ones are left out.
func flags(in Input, k kubelet) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	pairs := func(flag, separator string, m map[string]string) {
		if len(m) > 0 {
			add("--%s=%q", flag, join(m, separator))
		}
	}
	pairs("node-labels", "=", in.Labels)
	if len(in.Taints) > 0 {
		add("--register-with-taints=%q", joinTaints(in.Taints))
	}
	add("--max-pods=%d", k.maxPods)
	if k.PodsPerCore != nil {
		add("--pods-per-core=%d", *k.PodsPerCore)
	}
	pairs("system-reserved", "=", k.SystemReserved)
	pairs("kube-reserved", "=", k.KubeReserved)
	pairs("eviction-hard", "<", k.EvictionHard)
	pairs("eviction-soft", "<", k.EvictionSoft)
	pairs("eviction-soft-grace-period", "=", goDurations(k.EvictionSoftGracePeriod))
	if k.EvictionMaxPodGracePeriod != nil {
		add("--eviction-max-pod-grace-period=%d", *k.EvictionMaxPodGracePeriod)
	}
	if k.ImageGCHighThresholdPercent != nil {
		add("--image-gc-high-threshold=%d", *k.ImageGCHighThresholdPercent)
	}
	if k.ImageGCLowThresholdPercent != nil {
		add("--image-gc-low-threshold=%d", *k.ImageGCLowThresholdPercent)
	}
	if k.CPUCFSQuota != nil {
		add("--cpu-cfs-quota=%t", *k.CPUCFSQuota)
	}
	return out
}

// nodeLabels returns the flag alone.
func nodeLabels(labels map[string]string) string {
	return fmt.Sprintf("--node-labels=%q", join(labels, "="))
}

func join(m map[string]string, separator string) string {
	parts := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+separator+m[k])
	}
	return strings.Join(parts, ",")
}

func joinTaints(taints []corev1.Taint) string {
	parts := make([]string, len(taints))
	for i, t := range taints {
		parts[i] = t.ToString()
	}
	return strings.Join(parts, ",")
}

// goDurations formats durations as Go does (1m0s), as the kubelet does.
func goDurations(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		if d, err := time.ParseDuration(v); err == nil {
			v = d.String()
		}
		out[k] = v
	}
	return out
}
