package bootstrap

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	corev1 "k8s.io/api/core/v1"
)

// bottlerocketKeys are the keys of settings.kubernetes that the operating system knows. Others would make
// it refuse the whole of the user data.
var bottlerocketKeys = set(
	"api-server", "cloud-provider", "cluster-certificate", "cluster-name", "cluster-dns-ip", "credential-providers",
	"node-labels", "node-taints", "max-pods", "static-pods",
	"eviction-hard", "eviction-soft", "eviction-soft-grace-period", "eviction-max-pod-grace-period",
	"kube-reserved", "system-reserved", "allowed-unsafe-sysctls", "server-tls-bootstrap",
	"registry-qps", "registry-burst", "event-qps", "event-burst", "kube-api-qps", "kube-api-burst",
	"container-log-max-size", "container-log-max-files", "container-log-max-workers", "container-log-monitor-interval",
	"cpu-manager-policy", "cpu-manager-policy-options", "cpu-manager-reconcile-period",
	"memory-manager-policy", "memory-manager-reserved-memory",
	"topology-manager-scope", "topology-manager-policy", "topology-manager-policy-options",
	"image-gc-high-threshold-percent", "image-gc-low-threshold-percent", "ids-per-pod", "cpu-cfs-quota-enforced",
	"shutdown-grace-period", "shutdown-grace-period-for-critical-pods", "cluster-domain", "seccomp-default",
	"pod-pids-limit", "device-ownership-from-security-context", "single-process-oom-kill",
	"hostname-override-source", "log-level",
)

func set(keys ...string) map[string]bool {
	m := make(map[string]bool, len(keys))
	for _, k := range keys {
		m[k] = true
	}
	return m
}

// table is a table of TOML.
type table = map[string]any

// bottlerocket is the user's TOML with our settings written over it.
func bottlerocket(in Input, k kubelet) (Rendered, error) {
	root := table{}
	if err := toml.Unmarshal([]byte(in.UserData), &root); err != nil {
		return Rendered{}, fmt.Errorf("spec.userData: parse TOML: %w", err)
	}
	settings, err := child(root, "settings")
	if err != nil {
		return Rendered{}, err
	}
	kubernetes, err := child(settings, "kubernetes")
	if err != nil {
		return Rendered{}, err
	}
	var dropped []string
	for _, key := range slices.Sorted(maps.Keys(kubernetes)) {
		if !bottlerocketKeys[key] {
			delete(kubernetes, key)
			dropped = append(dropped, "settings.kubernetes."+key)
		}
	}
	if err := bottlerocketKubernetes(kubernetes, in, k); err != nil {
		return Rendered{}, err
	}
	if in.RAID0 {
		commands, err := child(settings, "bootstrap-commands")
		if err != nil {
			return Rendered{}, err
		}
		commands["000-mount-instance-storage"] = mountInstanceStorage(in.BottlerocketBindsDirs)
	}
	text, err := toml.Marshal(root)
	if err != nil {
		return Rendered{}, fmt.Errorf("write TOML: %w", err)
	}
	return Rendered{Text: string(text), Dropped: dropped}, nil
}

// child returns the table under a key, made if it is not there.
func child(parent table, key string) (table, error) {
	switch v := parent[key].(type) {
	case nil:
		made := table{}
		parent[key] = made
		return made, nil
	case table:
		return v, nil
	default:
		return nil, fmt.Errorf("spec.userData: %s is not a table", key)
	}
}

func bottlerocketKubernetes(kubernetes table, in Input, k kubelet) error {
	kubernetes["cluster-name"] = in.Cluster.Name
	kubernetes["api-server"] = in.Cluster.Endpoint
	kubernetes["cluster-certificate"] = in.Cluster.CABundle
	labels, err := child(kubernetes, "node-labels")
	if err != nil {
		return err
	}
	for key, value := range in.Labels {
		labels[key] = value
	}
	if len(labels) == 0 {
		delete(kubernetes, "node-labels")
	}
	delete(kubernetes, "node-taints")
	if len(in.Taints) > 0 {
		kubernetes["node-taints"] = bottlerocketTaints(in.Taints)
	}
	if len(k.ClusterDNS) > 0 {
		kubernetes["cluster-dns-ip"] = k.ClusterDNS[0]
	}
	kubernetes["max-pods"] = k.maxPods
	for key, m := range map[string]map[string]string{
		"system-reserved":            k.SystemReserved,
		"kube-reserved":              k.KubeReserved,
		"eviction-hard":              k.EvictionHard,
		"eviction-soft":              k.EvictionSoft,
		"eviction-soft-grace-period": goDurations(k.EvictionSoftGracePeriod),
	} {
		if len(m) > 0 {
			kubernetes[key] = m
		}
	}
	if k.EvictionMaxPodGracePeriod != nil {
		kubernetes["eviction-max-pod-grace-period"] = *k.EvictionMaxPodGracePeriod
	}
	if k.ImageGCHighThresholdPercent != nil {
		kubernetes["image-gc-high-threshold-percent"] = strconv.Itoa(int(*k.ImageGCHighThresholdPercent))
	}
	if k.ImageGCLowThresholdPercent != nil {
		kubernetes["image-gc-low-threshold-percent"] = strconv.Itoa(int(*k.ImageGCLowThresholdPercent))
	}
	if k.CPUCFSQuota != nil {
		kubernetes["cpu-cfs-quota-enforced"] = *k.CPUCFSQuota
	}
	return nil
}

// bottlerocketTaints groups taints by key, each as value:Effect.
func bottlerocketTaints(taints []corev1.Taint) map[string][]string {
	out := map[string][]string{}
	for _, t := range taints {
		out[t.Key] = append(out[t.Key], t.Value+":"+string(t.Effect))
	}
	return out
}

// mountInstanceStorage is the bootstrap command that stripes the instance store and puts the busy
// directories on it. Older images must be told which.
func mountInstanceStorage(bindsDirs bool) table {
	bind := []string{"apiclient", "ephemeral-storage", "bind"}
	if !bindsDirs {
		bind = append(bind, "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")
	}
	return table{
		"commands":  [][]string{{"apiclient", "ephemeral-storage", "init"}, bind},
		"essential": true,
		"mode":      "always",
	}
}

// BottlerocketBindsDirs reports whether images of this version bind the usual directories to the instance
// store by themselves: "latest", and 1.46.0 and later. A version that is not three numbers is taken for an old one.
func BottlerocketBindsDirs(version string) bool {
	if version == "latest" {
		return true
	}
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) != 3 {
		return false
	}
	var numbers [3]int
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil {
			return false
		}
		numbers[i] = n
	}
	return slices.Compare(numbers[:], []int{1, 46, 0}) >= 0
}
