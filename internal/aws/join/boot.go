package join

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Image is an AMI that a class launches.
type Image struct{ ID, Name string }

// BootConfig describes what an instance boots with.
type BootConfig struct {
	Cluster  Cluster
	Family   string
	Images   []Image
	UserData string
	// Class is the scope of findings about the class itself.
	Class string
}

// maxVersionSkew limits how many minor versions a kubelet may be older than its API server, by the version skew policy of
// Kubernetes.
const maxVersionSkew = 3

// CheckBoot checks whether the images of a class fit its family, its user data and the cluster.
func CheckBoot(m BootConfig) []cloudprovider.Finding {
	var out []cloudprovider.Finding
	for _, i := range m.Images {
		name := parseImageName(i.Name)
		if m.Family != awsv1.AMIFamilyCustom && name.family != "" && !sameFamily(name.family, m.Family) {
			out = append(out, misconfiguration(
				ImageFamilyMismatch,
				"image/"+i.ID,
				fmt.Sprintf(
					"image %s (%s) is of family %s, but the node class specifies %s: the image does not understand its user data",
					i.ID,
					i.Name,
					name.family,
					m.Family,
				),
				fmt.Sprintf("set spec.amiFamily: %s in the EC2NodeClass, or select images of family %s", name.family, m.Family),
			))
		}
		if f, bad := skew(m, i, name); bad {
			out = append(out, f)
		}
	}
	if len(out) > 0 && len(out) < len(m.Images) {
		for n := range out { // instances of another architecture boot another image
			out[n].Certainty = cloudprovider.Likely
		}
	}
	if message, remedy := wrongFormat(m.Family, m.UserData); message != "" {
		f := misconfiguration(UserDataWrongFormat, m.Class, message, remedy)
		f.Certainty = cloudprovider.Likely
		out = append(out, f)
	}
	return out
}

// skew finds a kubelet version that Kubernetes does not support with the API server. It mostly works, so the finding
// blocks nothing.
func skew(m BootConfig, i Image, name imageName) (cloudprovider.Finding, bool) {
	kubelet, server := minor(name.version), minor(m.Cluster.Version)
	if kubelet == 0 || server == 0 {
		return cloudprovider.Finding{}, false
	}
	cause, how := "", ""
	switch {
	case kubelet > server:
		cause, how = KubeletTooNew, "newer than the API server's "+m.Cluster.Version
	case server-kubelet > maxVersionSkew:
		cause, how = KubeletTooOld, fmt.Sprintf(
			"more than %d minor versions older than the API server's %s",
			maxVersionSkew,
			m.Cluster.Version,
		)
	default:
		return cloudprovider.Finding{}, false
	}
	f := misconfiguration(
		cause,
		"image/"+i.ID,
		fmt.Sprintf("image %s (%s) has a kubelet of version %s, %s", i.ID, i.Name, name.version, how),
		fmt.Sprintf("let amiSelectorTerms of the EC2NodeClass select an image for Kubernetes %s", m.Cluster.Version),
	)
	f.Certainty = cloudprovider.Likely
	return f, true
}

// imageName is the family and Kubernetes version in the name of a published image.
type imageName struct{ family, version string }

var imageNames = []struct {
	pattern *regexp.Regexp
	family  string // empty: the first group
}{
	{regexp.MustCompile(`^amazon-eks-node-al2023-.*-(1\.\d+)-v\d+`), awsv1.AMIFamilyAL2023},
	{regexp.MustCompile(`^amazon-eks-(?:gpu-|arm64-)?node-(1\.\d+)-v\d+`), awsv1.AMIFamilyAL2},
	{regexp.MustCompile(`^bottlerocket-aws-k8s-(1\.\d+)-`), awsv1.AMIFamilyBottlerocket},
	{regexp.MustCompile(`^Windows_Server-2019-English-.*EKS_Optimized-(1\.\d+)-`), awsv1.AMIFamilyWindows2019},
	{regexp.MustCompile(`^Windows_Server-2022-English-.*EKS_Optimized-(1\.\d+)-`), awsv1.AMIFamilyWindows2022},
	{regexp.MustCompile(`^Windows_Server-2025-English-.*EKS_Optimized-(1\.\d+)-`), awsv1.AMIFamilyWindows2025},
}

// parseImageName returns the zero value for a name that is not that of a published image.
func parseImageName(name string) imageName {
	for _, n := range imageNames {
		if match := n.pattern.FindStringSubmatch(name); match != nil {
			return imageName{n.family, match[1]}
		}
	}
	return imageName{}
}

func sameFamily(a, b string) bool { return strings.EqualFold(a, b) }

// minor returns the number after the dot; 0 if there is none.
func minor(version string) int {
	_, text, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// wrongFormat finds user data that the family does not read at boot.
func wrongFormat(family, userData string) (message, remedy string) {
	text := strings.TrimSpace(userData)
	if text == "" {
		return "", ""
	}
	mime := strings.HasPrefix(strings.ToLower(text), "mime-version:") || strings.HasPrefix(strings.ToLower(text), "content-type:")
	script := strings.HasPrefix(text, "#!")
	switch family {
	case awsv1.AMIFamilyBottlerocket:
		if mime || script {
			return "spec.userData is a script, but Bottlerocket reads TOML settings only", "write spec.userData of the EC2NodeClass as TOML, for example [settings.kubernetes]"
		}
	case awsv1.AMIFamilyAL2023:
		if strings.Contains(text, "/etc/eks/bootstrap.sh") {
			return "spec.userData calls /etc/eks/bootstrap.sh, which images of family AL2023 do not have", "remove the call from spec.userData of the EC2NodeClass; nodeadm is configured for you"
		}
	}
	return "", ""
}

// Webhook is an admission webhook for writes of nodes.
type Webhook struct {
	// Configuration is the kind and name of the object, Name that of the webhook in it.
	Configuration, Name string
	// Backend is the reason why no backend answers; empty if one may.
	Backend string
	// Selective is true if selectors or conditions exclude some nodes.
	Selective bool
}

// CheckWebhooks finds webhooks that reject every node because no backend answers.
func CheckWebhooks(hooks []Webhook, err string) []cloudprovider.Finding {
	if err != "" {
		return []cloudprovider.Finding{unchecked(WebhooksUnchecked, "admission webhooks", err)}
	}
	var out []cloudprovider.Finding
	for _, h := range hooks {
		if h.Backend == "" {
			continue
		}
		f := misconfiguration(
			WebhookBlocksNodes,
			"cluster",
			fmt.Sprintf("webhook %s of %s must approve every Node, and %s", h.Name, h.Configuration, h.Backend),
			fmt.Sprintf("repair its backend, or exclude nodes from its rules: kubectl edit %s", h.Configuration),
		)
		if h.Selective {
			f.Certainty = cloudprovider.Likely
		}
		out = append(out, f)
	}
	return out
}
