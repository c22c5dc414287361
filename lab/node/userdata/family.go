package userdata

import (
	"regexp"
	"strings"
)

// Family is the kind of operating system image, which decides how user data is read.
type Family string

// The image families with a known bootstrap. Unknown is any image that EKS did not publish.
const (
	AL2          Family = "AL2"
	AL2023       Family = "AL2023"
	Bottlerocket Family = "Bottlerocket"
	Windows      Family = "Windows"
	Unknown      Family = ""
)

// Image is the information in the name of a published image.
type Image struct {
	Family Family
	// Kubernetes is the minor version that its kubelet has, such as "1.31"; empty if the name does not state.
	Kubernetes string
	// Release is the version of the image itself, such as "v20250123" or "v1.32.0-cacc4ce9".
	Release string
	// Server is the version of Windows Server, such as "2022"; empty for other families.
	Server string
}

// imageNames are the names under which EKS optimized images are published, for example
//
//	amazon-eks-node-1.31-v20250123                         amazon-eks-gpu-node-1.31-v20250123
//	amazon-eks-node-al2023-x86_64-standard-1.31-v20250123  amazon-eks-node-al2023-arm64-nvidia-1.31-v20250123
//	bottlerocket-aws-k8s-1.31-x86_64-v1.32.0-cacc4ce9      bottlerocket-aws-k8s-1.31-nvidia-aarch64-v1.32.0-cacc4ce9
//	Windows_Server-2022-English-Core-EKS_Optimized-1.31-2025.01.15
//
// The order matters: the pattern of AL2023 is the narrower one.
var imageNames = []struct {
	family  Family
	pattern *regexp.Regexp
}{
	{AL2023, regexp.MustCompile(`^amazon-eks-node-al2023-[a-z0-9_]+-[a-z0-9_-]+-(?P<kubernetes>\d+\.\d+)-(?P<release>v.+)$`)},
	{AL2, regexp.MustCompile(`^amazon-eks-(?:node|gpu-node|arm64-node)-(?P<kubernetes>\d+\.\d+)-(?P<release>v.+)$`)},
	{
		Bottlerocket,
		regexp.MustCompile(`^bottlerocket-aws-k8s-(?P<kubernetes>\d+\.\d+)-(?:[a-z]+-)*(?:x86_64|aarch64|arm64)-(?P<release>v.+)$`),
	},
	{Windows, regexp.MustCompile(`^Windows_Server-(?P<server>\d+)-.+-EKS_Optimized-(?P<kubernetes>\d+\.\d+)-(?P<release>.+)$`)},
}

// ParseImage reads the name of an image. A name that EKS does not publish gives the family [Unknown].
func ParseImage(name string) Image {
	for _, n := range imageNames {
		m := n.pattern.FindStringSubmatch(strings.TrimSpace(name))
		if m == nil {
			continue
		}
		image := Image{Family: n.family, Kubernetes: m[n.pattern.SubexpIndex("kubernetes")], Release: m[n.pattern.SubexpIndex("release")]}
		if at := n.pattern.SubexpIndex("server"); at >= 0 {
			image.Server = m[at]
		}
		return image
	}
	return Image{}
}
