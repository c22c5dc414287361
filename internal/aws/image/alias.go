// Package image finds the AMIs of a node class and the instance types that each is for.
package image

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
)

// variant is the kind of hardware that an image is built for.
type variant []corev1.NodeSelectorRequirement

var (
	standard = variant{absent(awsv1.LabelInstanceAcceleratorCount), absent(awsv1.LabelInstanceGPUCount)}
	nvidia   = variant{present(awsv1.LabelInstanceGPUCount)}
	neuron   = variant{present(awsv1.LabelInstanceAcceleratorCount)}
)

func absent(key string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist}
}

func present(key string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists}
}

func equals(key, value string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
}

// parameter is an SSM parameter that holds an image ID, and the hardware that the image is for.
type parameter struct {
	name     string
	variants []variant
	// mutable parameters refer to another image over time.
	mutable bool
}

// UnsupportedAliasError is an alias without images for this version of Kubernetes.
type UnsupportedAliasError struct{ Alias, Version, Why string }

func (e *UnsupportedAliasError) Error() string {
	return fmt.Sprintf("alias %s on Kubernetes %s: %s", e.Alias, e.Version, e.Why)
}

const latest = "latest"

// aliasParameters returns the parameters behind an alias (family@version) for a Kubernetes minor version such as 1.33.
func aliasParameters(alias, version string) ([]parameter, error) {
	family, release, ok := strings.Cut(alias, "@")
	if !ok || release == "" {
		return nil, fmt.Errorf("alias %q is not family@version", alias)
	}
	switch family {
	case "al2":
		if !before(version, 33) {
			return nil, &UnsupportedAliasError{alias, version, "Amazon Linux 2 images end with 1.32; use al2023 or bottlerocket"}
		}
		return al2(version, release), nil
	case "al2023":
		return al2023(version, release), nil
	case "bottlerocket":
		return bottlerocket(version, release), nil
	case "windows2019", "windows2022", "windows2025":
		if family == "windows2025" && before(version, 35) {
			return nil, &UnsupportedAliasError{alias, version, "Windows Server 2025 images begin with 1.35"}
		}
		return windows(version, strings.TrimPrefix(family, "windows")), nil
	}
	return nil, fmt.Errorf("alias %q: unknown family", alias)
}

// before reports whether a version 1.x is older than 1.minor.
func before(version string, minor int) bool {
	major, rest, _ := strings.Cut(version, ".")
	m, err := strconv.Atoi(major)
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(rest)
	return err == nil && (m < 1 || m == 1 && n < minor)
}

func al2(version, release string) []parameter {
	param := func(image, node string, variants ...variant) parameter {
		leaf := "recommended"
		if release != latest {
			leaf = fmt.Sprintf("amazon-eks-%s-%s-%s", node, version, release)
		}
		return parameter{
			name:     fmt.Sprintf("/aws/service/eks/optimized-ami/%s/%s/%s/image_id", version, image, leaf),
			variants: variants, mutable: release == latest,
		}
	}
	return []parameter{
		param("amazon-linux-2", "node", standard),
		param("amazon-linux-2-arm64", "arm64-node", standard),
		param("amazon-linux-2-gpu", "gpu-node", neuron, nvidia),
	}
}

func al2023(version, release string) []parameter {
	var out []parameter
	for _, v := range []struct {
		arch, name string
		variant    variant
	}{
		{"x86_64", "standard", standard},
		{"x86_64", "nvidia", nvidia},
		{"x86_64", "neuron", neuron},
		{"arm64", "standard", standard},
		{"arm64", "nvidia", nvidia},
	} {
		leaf := "recommended"
		if release != latest {
			leaf = fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-%s", v.arch, v.name, version, release)
		}
		out = append(out, parameter{
			name:     fmt.Sprintf("/aws/service/eks/optimized-ami/%s/amazon-linux-2023/%s/%s/%s/image_id", version, v.arch, v.name, leaf),
			variants: []variant{v.variant}, mutable: release == latest,
		})
	}
	return out
}

func bottlerocket(version, release string) []parameter {
	release = strings.TrimPrefix(release, "v")
	var out []parameter
	for _, v := range []struct {
		flavor, arch string
		variants     []variant
	}{
		{"", "x86_64", []variant{standard, neuron}},
		{"", "arm64", []variant{standard}},
		{"-nvidia", "x86_64", []variant{nvidia}},
		{"-nvidia", "arm64", []variant{nvidia}},
	} {
		out = append(out, parameter{
			name:     fmt.Sprintf("/aws/service/bottlerocket/aws-k8s-%s%s/%s/%s/image_id", version, v.flavor, v.arch, release),
			variants: v.variants, mutable: release == latest,
		})
	}
	return out
}

func windows(version, year string) []parameter {
	return []parameter{{
		name: fmt.Sprintf("/aws/service/ami-windows-latest/Windows_Server-%s-English-Core-EKS_Optimized-%s/image_id", year, version),
		variants: []variant{{
			equals(corev1.LabelOSStable, string(corev1.Windows)),
			equals(corev1.LabelWindowsBuild, instancetype.FamilyOf("Windows"+year).WindowsBuild),
		}},
		mutable: true,
	}}
}
