package userdata

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// flagSetters are the kubelet flags that change what others can see of a node. A map-valued flag
// replaces what a configuration file gave; repeated --node-labels add up. Both are kubelet's rules.
var flagSetters = map[string]func(cfg *Config, value string) error{
	"node-labels": func(cfg *Config, v string) error {
		labels, err := pairs(v, "=")
		if err != nil {
			return err
		}
		if cfg.Labels == nil {
			cfg.Labels = map[string]string{}
		}
		for k, v := range labels {
			cfg.Labels[k] = v
		}
		return nil
	},
	"register-with-taints": func(cfg *Config, v string) (err error) {
		cfg.Kubelet.RegisterWithTaints, err = parseTaints(v)
		return err
	},
	"max-pods":      func(cfg *Config, v string) error { return setInt32(&cfg.Kubelet.MaxPods, v) },
	"pods-per-core": func(cfg *Config, v string) error { return setInt32(&cfg.Kubelet.PodsPerCore, v) },
	"cluster-dns": func(cfg *Config, v string) error {
		cfg.Kubelet.ClusterDNS = strings.Split(v, ",")
		return nil
	},
	"kube-reserved":              func(cfg *Config, v string) error { return setMap(&cfg.Kubelet.KubeReserved, v, "=") },
	"system-reserved":            func(cfg *Config, v string) error { return setMap(&cfg.Kubelet.SystemReserved, v, "=") },
	"eviction-hard":              func(cfg *Config, v string) error { return setMap(&cfg.Kubelet.EvictionHard, v, "<") },
	"eviction-soft":              func(cfg *Config, v string) error { return setMap(&cfg.Kubelet.EvictionSoft, v, "<") },
	"eviction-soft-grace-period": func(cfg *Config, v string) error { return setMap(&cfg.Kubelet.EvictionSoftGracePeriod, v, "=") },
	"eviction-max-pod-grace-period": func(cfg *Config, v string) error {
		return setInt32(&cfg.Kubelet.EvictionMaxPodGracePeriod, v)
	},
	"image-gc-high-threshold": func(cfg *Config, v string) error {
		return setInt32Ptr(&cfg.Kubelet.ImageGCHighThresholdPercent, v)
	},
	"image-gc-low-threshold": func(cfg *Config, v string) error {
		return setInt32Ptr(&cfg.Kubelet.ImageGCLowThresholdPercent, v)
	},
	"cpu-cfs-quota": func(cfg *Config, v string) error {
		b, err := strconv.ParseBool(v)
		cfg.Kubelet.CPUCFSQuota = &b
		return err
	},
	"register-node": func(cfg *Config, v string) error {
		b, err := strconv.ParseBool(v)
		cfg.Kubelet.RegisterNode = &b
		return err
	},
}

// inertFlags are kubelet's other flags. They are accepted, as kubelet accepts them, and change nothing here.
var inertFlags = strings.Fields(`
	address allowed-unsafe-sysctls anonymous-auth application-metrics-count-limit authentication-token-webhook
	authentication-token-webhook-cache-ttl authorization-mode authorization-webhook-cache-authorized-ttl
	authorization-webhook-cache-unauthorized-ttl bootstrap-kubeconfig cert-dir cgroup-driver cgroup-root cgroups-per-qos
	client-ca-file cloud-config cloud-provider cluster-domain config config-dir container-log-max-files
	container-log-max-size container-runtime container-runtime-endpoint contention-profiling cpu-cfs-quota-period
	cpu-manager-policy cpu-manager-policy-options cpu-manager-reconcile-period enable-controller-attach-detach
	enable-debugging-handlers enable-server enforce-node-allocatable event-burst event-qps eviction-minimum-reclaim
	eviction-pressure-transition-period exit-on-lock-contention experimental-allocatable-ignore-eviction fail-swap-on
	feature-gates file-check-frequency hairpin-mode healthz-bind-address healthz-port hostname-override
	housekeeping-interval http-check-frequency image-credential-provider-bin-dir image-credential-provider-config
	image-service-endpoint iptables-drop-bit iptables-masquerade-bit keep-terminated-pod-volumes
	kernel-memcg-notification kube-api-burst kube-api-content-type kube-api-qps kube-reserved-cgroup kubeconfig
	kubelet-cgroups local-storage-capacity-isolation lock-file log-flush-frequency logging-format make-iptables-util-chains
	manifest-url manifest-url-header max-open-files maximum-dead-containers maximum-dead-containers-per-container
	memory-manager-policy minimum-container-ttl-duration minimum-image-ttl-duration network-plugin node-ip
	node-status-max-images node-status-update-frequency oom-score-adj pod-cidr pod-infra-container-image pod-manifest-path
	pod-max-pids port protect-kernel-defaults provider-id qos-reserved read-only-port register-schedulable registry-burst
	registry-qps reserved-cpus reserved-memory resolv-conf root-dir rotate-certificates rotate-server-certificates
	runonce runtime-cgroups runtime-request-timeout seccomp-default serialize-image-pulls streaming-connection-idle-timeout
	sync-frequency system-cgroups system-reserved-cgroup tls-cert-file tls-cipher-suites tls-min-version
	tls-private-key-file topology-manager-policy topology-manager-policy-options topology-manager-scope v vmodule
	volume-plugin-dir volume-stats-agg-period`)

// applyFlags reads kubelet's command line into cfg. Flags win over configuration files.
func applyFlags(cfg *Config, flags []string) error {
	for i := 0; i < len(flags); i++ {
		name, value, joined := strings.Cut(strings.TrimLeft(flags[i], "-"), "=")
		if !strings.HasPrefix(flags[i], "-") || name == "" {
			return fmt.Errorf("kubelet: unknown command %q", flags[i])
		}
		set, known := flagSetters[name]
		if !known && !slices.Contains(inertFlags, name) {
			return fmt.Errorf("kubelet: failed to parse kubelet flag: unknown flag: --%s", name)
		}
		if !joined && i+1 < len(flags) && !strings.HasPrefix(flags[i+1], "-") {
			i++
			value = flags[i]
		}
		if !known {
			continue
		}
		if err := set(cfg, value); err != nil {
			return fmt.Errorf("kubelet: failed to parse kubelet flag: invalid argument %q for \"--%s\" flag: %w", value, name, err)
		}
	}
	return nil
}

// pairs reads "a=1,b=2" for the separator "=". An empty text has no pairs.
func pairs(text, separator string) (map[string]string, error) {
	out := map[string]string{}
	for _, field := range strings.Split(text, ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		key, value, ok := strings.Cut(field, separator)
		if !ok || key == "" {
			return nil, fmt.Errorf("malformed pair %q, expect key%svalue", field, separator)
		}
		out[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return out, nil
}

// parseTaints reads "key=value:Effect,key:Effect".
func parseTaints(text string) ([]corev1.Taint, error) {
	var out []corev1.Taint
	for _, field := range strings.Split(text, ",") {
		if field == "" {
			continue
		}
		taint, err := parseTaint(field)
		if err != nil {
			return nil, err
		}
		out = append(out, taint)
	}
	return out, nil
}

func parseTaint(text string) (corev1.Taint, error) {
	i := strings.LastIndex(text, ":")
	if i <= 0 {
		return corev1.Taint{}, fmt.Errorf("invalid taint spec %q: an effect is needed", text)
	}
	key, value, _ := strings.Cut(text[:i], "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(text[i+1:])}, nil
}

func setMap(dst *map[string]string, value, separator string) (err error) {
	*dst, err = pairs(value, separator)
	return err
}

func setInt32(dst *int32, value string) error {
	n, err := strconv.ParseInt(value, 10, 32)
	*dst = int32(n)
	return err
}

func setInt32Ptr(dst **int32, value string) error {
	var n int32
	err := setInt32(&n, value)
	*dst = &n
	return err
}

// parseDurations checks the values of --eviction-soft-grace-period.
func parseDurations(periods map[string]string) error {
	for signal, text := range periods {
		if _, err := time.ParseDuration(text); err != nil {
			return fmt.Errorf("kubelet: evictionSoftGracePeriod of %s: %w", signal, err)
		}
	}
	return nil
}
