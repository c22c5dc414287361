// Package bootstrap renders the user data with which an instance joins the cluster, in the format of its AMI family.
//
// Everything is a pure function of its input, and equal inputs give equal bytes: maps are written in the order of their
// keys.
package bootstrap

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Cluster describes what a node needs to join the cluster.
type Cluster struct {
	Name     string
	Endpoint string
	// CABundle is base64 of the PEM bundle.
	CABundle string
	// ServiceCIDR is needed by AL2023 only.
	ServiceCIDR string
	// DNS is the cluster IP of kube-dns, empty if unknown.
	DNS string
}

// Input is everything that user data depends on.
type Input struct {
	Cluster Cluster
	// Labels and Taints are the final ones that the node registers with; see NodeLabels and NodeTaints.
	Labels map[string]string
	Taints []corev1.Taint
	// Kubelet is the part of spec.kubelet that is interpreted, RawKubelet the JSON of all of it; nil if there is none.
	Kubelet    awsv1.KubeletConfiguration
	RawKubelet []byte
	// MaxPods is the number of pods of the resolved instance type.
	MaxPods int64
	// UserData is spec.userData.
	UserData string
	// RAID0 stripes the instance store for kubelet and containerd.
	RAID0 bool
	// BottlerocketBindsDirs is true if the image binds the default directories to the instance store by itself.
	BottlerocketBindsDirs bool
}

// Rendered is the user data, not yet in base64.
type Rendered struct {
	Text string
	// Dropped are unknown keys of the user's settings, which were left out.
	Dropped []string
}

// MissingCIDRError means that AL2023 user data cannot be rendered before the service CIDR is known.
type MissingCIDRError struct{}

func (MissingCIDRError) Error() string { return "the cluster's service CIDR is not known yet" }

// Render returns the user data for an AMI family.
func Render(family string, in Input) (Rendered, error) {
	k, err := resolveKubelet(in)
	if err != nil {
		return Rendered{}, err
	}
	if family != awsv1.AMIFamilyCustom { // which is entirely the user's own
		if err := in.check(k); err != nil {
			return Rendered{}, fmt.Errorf("user data for %s: %w", family, err)
		}
	}
	var out Rendered
	switch family {
	case awsv1.AMIFamilyAL2:
		out.Text, err = al2(in, k)
	case awsv1.AMIFamilyAL2023:
		out.Text, err = al2023(in, k)
	case awsv1.AMIFamilyBottlerocket:
		out, err = bottlerocket(in, k)
	case awsv1.AMIFamilyWindows2019, awsv1.AMIFamilyWindows2022, awsv1.AMIFamilyWindows2025:
		out.Text = windows(in, k)
	case awsv1.AMIFamilyCustom:
		out.Text = in.UserData
	default:
		return Rendered{}, fmt.Errorf("user data for unknown image family %q", family)
	}
	if err != nil {
		return Rendered{}, fmt.Errorf("user data for %s: %w", family, err)
	}
	return out, nil
}

// NodeLabels returns the labels that a kubelet may register with, without those of the domains kubernetes.io, k8s.io
// and node-restriction.kubernetes.io.
func NodeLabels(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	maps.DeleteFunc(out, func(key, _ string) bool { return restricted(key) })
	return out
}

func restricted(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return false
	}
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
}

// NodeTaints returns the taints that a node registers with: its own, its startup taints, and the one that repels pods
// until registration is complete.
func NodeTaints(taints, startupTaints []corev1.Taint) []corev1.Taint {
	all := slices.Concat(taints, startupTaints)
	unregistered := karpv1.TaintUnregistered()
	if !slices.ContainsFunc(all, func(t corev1.Taint) bool { return t.MatchTaint(&unregistered) }) {
		all = append(all, unregistered)
	}
	return all
}

// kubelet is the kubelet's configuration with the settings that are resolved per instance type and cluster.
type kubelet struct {
	awsv1.KubeletConfiguration
	maxPods int64
	// raw is the whole spec.kubelet, including the fields that only nodeadm can pass on.
	raw map[string]any
}

// resolveKubelet fills in what the user left open. in.MaxPods has the result of a maxPods expression.
func resolveKubelet(in Input) (kubelet, error) {
	k := kubelet{KubeletConfiguration: in.Kubelet, maxPods: in.MaxPods}
	if k.MaxPods != nil && k.MaxPods.Type == intstr.Int {
		k.maxPods = int64(k.MaxPods.IntVal)
	}
	if len(k.ClusterDNS) == 0 && in.Cluster.DNS != "" {
		k.ClusterDNS = []string{in.Cluster.DNS}
	}
	if len(in.RawKubelet) > 0 {
		if err := json.Unmarshal(in.RawKubelet, &k.raw); err != nil {
			return kubelet{}, fmt.Errorf("parse spec.kubelet: %w", err)
		}
	}
	return k, nil
}

// IPv6 reports whether the cluster's pods have IPv6 addresses, which the address of its DNS shows.
func (c Cluster) IPv6() bool { return isIPv6(c.DNS) }
