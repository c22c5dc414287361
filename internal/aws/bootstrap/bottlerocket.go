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

// knownKeys are the keys of a table that the operating system supports, each with the keys of its own table, nil if all
// are valid. "*" stands for every key.
type knownKeys map[string]knownKeys

// bottlerocketKeys are the keys of settings.kubernetes. With an unknown key, Bottlerocket would reject the whole user
// data.
var bottlerocketKeys = knownKeys{
	"api-server": nil, "cloud-provider": nil, "cluster-certificate": nil, "cluster-name": nil, "cluster-dns-ip": nil,
	"credential-providers": {"*": {"enabled": nil, "cache-duration": nil, "image-patterns": nil, "environment": nil}},
	"node-labels":          nil, "node-taints": nil, "max-pods": nil,
	"static-pods":   {"*": {"enabled": nil, "manifest": nil}},
	"eviction-hard": nil, "eviction-soft": nil, "eviction-soft-grace-period": nil, "eviction-max-pod-grace-period": nil,
	"kube-reserved": nil, "system-reserved": nil, "allowed-unsafe-sysctls": nil, "server-tls-bootstrap": nil,
	"registry-qps": nil, "registry-burst": nil, "event-qps": nil, "event-burst": nil, "kube-api-qps": nil, "kube-api-burst": nil,
	"container-log-max-size": nil, "container-log-max-files": nil, "container-log-max-workers": nil,
	"container-log-monitor-interval": nil, "cpu-manager-policy": nil, "cpu-manager-policy-options": nil,
	"cpu-manager-reconcile-period": nil, "memory-manager-policy": nil,
	"memory-manager-reserved-memory": {"*": {"enabled": nil, "memory": nil, "hugepages-2Mi": nil, "hugepages-1Gi": nil}},
	"topology-manager-scope":         nil, "topology-manager-policy": nil,
	"topology-manager-policy-options": {"prefer-closest-numa-nodes": nil, "max-allowable-numa-nodes": nil},
	"image-gc-high-threshold-percent": nil, "image-gc-low-threshold-percent": nil, "ids-per-pod": nil, "cpu-cfs-quota-enforced": nil,
	"shutdown-grace-period": nil, "shutdown-grace-period-for-critical-pods": nil, "cluster-domain": nil, "seccomp-default": nil,
	"pod-pids-limit": nil, "device-ownership-from-security-context": nil, "single-process-oom-kill": nil,
	"hostname-override-source": nil, "log-level": nil,
}

// drop removes unknown keys from t, and returns their paths, sorted.
func (k knownKeys) drop(path string, t table) []string {
	var dropped []string
	for _, key := range slices.Sorted(maps.Keys(t)) {
		below, ok := k[key]
		if !ok {
			below, ok = k["*"]
		}
		if !ok {
			delete(t, key)
			dropped = append(dropped, path+"."+key)
			continue
		}
		if inner, isTable := t[key].(table); isTable && below != nil {
			dropped = append(dropped, below.drop(path+"."+key, inner)...)
		}
	}
	return dropped
}

// table is a TOML table.
type table = map[string]any

// bottlerocket returns the user's TOML with our settings written over it.
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
	dropped := bottlerocketKeys.drop("settings.kubernetes", kubernetes)
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

// child returns the table under a key, and creates it if it does not exist.
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

// mountInstanceStorage returns the bootstrap command that stripes the instance store and binds the busy directories to
// it. Older images need the list of directories.
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

// BottlerocketBindsDirs reports whether images of this version bind the default directories to the instance store by
// themselves: "latest", and 1.46.0 and later. A version that is not three numbers counts as an old one.
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
