package userdata

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelletier/go-toml/v2"
)

// bottlerocketSettings is the part of Bottlerocket's settings that decides how a node joins.
type bottlerocketSettings struct {
	Settings struct {
		Kubernetes        bottlerocketKubernetes                  `toml:"kubernetes"`
		BootstrapCommands map[string]bottlerocketBootstrapCommand `toml:"bootstrap-commands"`
	} `toml:"settings"`
}

type bottlerocketKubernetes struct {
	ClusterName        string            `toml:"cluster-name"`
	APIServer          string            `toml:"api-server"`
	ClusterCertificate string            `toml:"cluster-certificate"`
	ClusterDNSIP       any               `toml:"cluster-dns-ip"` // an address or a list of them
	NodeLabels         map[string]string `toml:"node-labels"`
	NodeTaints         map[string]any    `toml:"node-taints"` // "value:Effect" or a list of them
	MaxPods            *int32            `toml:"max-pods"`
	KubeReserved       map[string]string `toml:"kube-reserved"`
	SystemReserved     map[string]string `toml:"system-reserved"`
	EvictionHard       map[string]string `toml:"eviction-hard"`
	EvictionSoft       map[string]string `toml:"eviction-soft"`
	EvictionSoftGrace  map[string]string `toml:"eviction-soft-grace-period"`
	EvictionMaxGrace   *int32            `toml:"eviction-max-pod-grace-period"`
	ImageGCHigh        any               `toml:"image-gc-high-threshold-percent"` // a number or its text
	ImageGCLow         any               `toml:"image-gc-low-threshold-percent"`
	CPUCFSQuota        *bool             `toml:"cpu-cfs-quota-enforced"`
}

type bottlerocketBootstrapCommand struct {
	Commands [][]string `toml:"commands"`
}

// decodeBottlerocket reads settings in TOML. The whole of the user data is one document.
func decodeBottlerocket(raw []byte) (Config, error) {
	var doc bottlerocketSettings
	if err := toml.NewDecoder(bytes.NewReader(raw)).Decode(&doc); err != nil {
		var at *toml.DecodeError
		if errors.As(err, &at) {
			row, column := at.Position()
			return Config{}, fmt.Errorf("user data is not TOML settings: line %d, column %d: %w", row, column, err)
		}
		return Config{}, fmt.Errorf("user data is not TOML settings: %w", err)
	}
	k := doc.Settings.Kubernetes
	ca, err := decodeCA(k.ClusterCertificate)
	if err != nil {
		return Config{}, fmt.Errorf("settings.kubernetes.cluster-certificate: %w", err)
	}
	cfg := Config{ClusterName: k.ClusterName, Endpoint: k.APIServer, CA: ca, Labels: k.NodeLabels, UseENIMaxPods: true}
	if err := k.kubelet(&cfg); err != nil {
		return Config{}, err
	}
	for _, c := range doc.Settings.BootstrapCommands {
		for _, line := range c.Commands {
			if len(line) >= 3 && line[0] == "apiclient" && line[1] == "ephemeral-storage" && line[2] == "init" {
				cfg.LocalDisks = "raid0"
			}
		}
	}
	return cfg, nil
}

// kubelet translates the settings to kubelet's.
func (k bottlerocketKubernetes) kubelet(cfg *Config) error {
	out := &cfg.Kubelet
	out.KubeReserved, out.SystemReserved = k.KubeReserved, k.SystemReserved
	out.EvictionHard, out.EvictionSoft, out.EvictionSoftGracePeriod = k.EvictionHard, k.EvictionSoft, k.EvictionSoftGrace
	out.CPUCFSQuota = k.CPUCFSQuota
	if k.MaxPods != nil {
		out.MaxPods = *k.MaxPods
	}
	if k.EvictionMaxGrace != nil {
		out.EvictionMaxPodGracePeriod = *k.EvictionMaxGrace
	}
	var err error
	if out.ClusterDNS, err = stringOrList(k.ClusterDNSIP); err != nil {
		return fmt.Errorf("settings.kubernetes.cluster-dns-ip: %w", err)
	}
	if out.ImageGCHighThresholdPercent, err = percent(k.ImageGCHigh); err != nil {
		return fmt.Errorf("settings.kubernetes.image-gc-high-threshold-percent: %w", err)
	}
	if out.ImageGCLowThresholdPercent, err = percent(k.ImageGCLow); err != nil {
		return fmt.Errorf("settings.kubernetes.image-gc-low-threshold-percent: %w", err)
	}
	out.RegisterWithTaints, err = bottlerocketTaints(k.NodeTaints)
	return err
}

func bottlerocketTaints(settings map[string]any) ([]corev1.Taint, error) {
	var out []corev1.Taint
	for _, key := range sortedKeys(settings) {
		values, err := stringOrList(settings[key])
		if err != nil {
			return nil, fmt.Errorf("settings.kubernetes.node-taints of %s: %w", key, err)
		}
		for _, v := range values {
			taint, err := parseTaint(key + "=" + v)
			if err != nil {
				return nil, fmt.Errorf("settings.kubernetes.node-taints: %w", err)
			}
			out = append(out, taint)
		}
	}
	return out, nil
}

func stringOrList(v any) ([]string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return []string{v}, nil
	case []any:
		out := make([]string, 0, len(v))
		for _, item := range v {
			text, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("%v is not a string", item)
			}
			out = append(out, text)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("%v is neither a string nor a list of strings", v)
	}
}

func percent(v any) (*int32, error) {
	var n int32
	switch v := v.(type) {
	case nil:
		return nil, nil
	case int64:
		n = int32(v)
	case string:
		parsed, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return nil, err
		}
		n = int32(parsed)
	default:
		return nil, fmt.Errorf("%v is not a number", v)
	}
	if n < 0 || n > 100 {
		return nil, fmt.Errorf("%d is not a percentage", n)
	}
	return &n, nil
}
