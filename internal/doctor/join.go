package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/aws/join"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// The causes by check. Causes in no list are about the image or its boot.
var (
	roleCauses = []string{
		join.NodeRoleNotMapped, join.NodeRoleOfOtherAccount, join.ControllerRoleMapped, join.AccessEntryWrongType, join.AuthMapMalformed,
		join.AuthModeIgnoresMapping, join.RoleMappingUnchecked,
	}
	windowsCauses = []string{join.WindowsKubeProxyDenied}
	profileCauses = []string{join.InstanceProfileWrongRole, join.InstanceProfileNotFound}
	networkCauses = []string{
		join.NetworkUnchecked, join.GroupsOfOtherVPC, join.NoEgress, join.ClusterRejectsNodes, join.SubnetWithoutRoute,
		join.SubnetWithoutPublicIP, join.PublicAccessRestricted,
	}
	webhookCauses = []string{join.WebhookBlocksNodes, join.WebhooksUnchecked}
	imageCauses   = []string{join.ImageFamilyMismatch, join.KubeletTooNew, join.KubeletTooOld, join.UserDataWrongFormat}
)

func joinChecks() []Check {
	about := func(id, area, title string, causes []string) Check {
		return Check{
			ID: id, Area: area, Severity: Error, Title: title, Why: "instances of the class are launched and never become nodes",
			needs: []Fact{NodeClasses, Joining},
			run:   func(f *Facts) []Finding { return f.joining(causes) },
		}
	}
	return []Check{
		about("auth-node-role", "auth", "the cluster does not know the role of the nodes", roleCauses),
		{
			ID: "auth-windows-kube-proxy", Area: "auth", Severity: Warning, Title: "kube-proxy of Windows nodes may not read Services",
			Why: "nodes of the class join, and pods on them reach neither Services nor DNS", needs: []Fact{NodeClasses, Joining},
			run: func(f *Facts) []Finding { return f.joining(windowsCauses) },
		},
		about("auth-instance-profile", "auth", "an instance profile is missing or holds another role", profileCauses),
		about("network-path", "network", "instances cannot reach the API server", networkCauses),
		{
			ID: "network-selectors", Area: "network", Severity: Error, Title: "selectors of an EC2NodeClass match nothing",
			Why: "nothing can be launched from the class", needs: []Fact{NodeClasses}, run: selectorsMatchNothing,
		},
		{
			ID: "network-one-zone", Area: "network", Severity: Info, Title: "the subnets of a class are all in one zone",
			Why: "when the zone fails, or has no capacity, no node can be launched", needs: []Fact{NodeClasses}, run: oneZone,
		},
		about("image-boot", "image", "an image does not suit its family, its user data or the cluster", imageCauses),
		{
			ID: "image-deprecated", Area: "image", Severity: Warning, Title: "all images of a class are deprecated",
			Why: "a deprecated image is withdrawn one day, and gets no more fixes", needs: []Fact{NodeClasses}, run: deprecatedImages,
		},
		{
			ID: "image-latest", Area: "image", Severity: Info, Title: "an image is chosen by @latest",
			Why: "each image that AWS publishes replaces all nodes of the class, untested", needs: []Fact{NodeClasses}, run: latestAlias,
		},
		about("nodes-webhook", "nodes", "a webhook without a running backend rejects every Node", webhookCauses),
	}
}

// joining returns the findings with one of the causes, of all classes.
func (f *Facts) joining(causes []string) []Finding {
	var out []Finding
	for _, class := range slices.Sorted(maps.Keys(f.Joining)) {
		for _, j := range f.Joining[class] {
			if !slices.Contains(causes, j.Cause) {
				continue
			}
			finding := Finding{Object: "EC2NodeClass " + class, Seen: j.Cause + ": " + j.Message, Remedy: j.Remedy, Manifest: j.Manifest}
			if j.Deletes {
				finding.Remedy, finding.deletes = "replace it", ": "+j.Remedy
			}
			switch j.Certainty {
			case cloudprovider.Likely:
				finding.Severity = Warning
			case cloudprovider.Unchecked:
				finding.Severity = unchecked
				finding.Seen = j.Message
			}
			out = append(out, finding)
		}
	}
	return out
}

func selectorsMatchNothing(f *Facts) (out []Finding) {
	for i := range f.NodeClasses {
		c := &f.NodeClasses[i]
		for _, condition := range c.Status.Conditions {
			if condition.Status != "False" ||
				!slices.Contains([]string{"SubnetsNotFound", "SecurityGroupsNotFound", "AMINotFound"}, condition.Reason) {
				continue
			}
			terms := map[string]string{
				"SubnetsNotFound": "subnetSelectorTerms", "SecurityGroupsNotFound": "securityGroupSelectorTerms",
				"AMINotFound": "amiSelectorTerms",
			}[condition.Reason]
			out = append(out, Finding{
				Object: "EC2NodeClass " + c.Name, Seen: condition.Message,
				Remedy: fmt.Sprintf(
					"kubectl edit ec2nodeclass %s, and correct spec.%s; or tag the resources that they should select",
					c.Name,
					terms,
				),
			})
		}
	}
	return out
}

func oneZone(f *Facts) (out []Finding) {
	for i := range f.NodeClasses {
		c := &f.NodeClasses[i]
		zones := map[string]bool{}
		for _, s := range c.Status.Subnets {
			zones[s.Zone] = true
		}
		if len(zones) == 1 {
			out = append(out, Finding{
				Object: "EC2NodeClass " + c.Name, Seen: "all its subnets are in zone " + slices.Collect(maps.Keys(zones))[0],
				Remedy: "extend spec.subnetSelectorTerms to subnets in other zones",
			})
		}
	}
	return out
}

func deprecatedImages(f *Facts) (out []Finding) {
	for i := range f.NodeClasses {
		c := &f.NodeClasses[i]
		var names []string
		for _, ami := range c.Status.AMIs {
			if !ami.Deprecated {
				names = nil
				break
			}
			names = append(names, ami.ID)
		}
		if len(names) > 0 {
			out = append(out, Finding{
				Object: "EC2NodeClass " + c.Name, Seen: "deprecated: " + strings.Join(names, ", "),
				Remedy: "change spec.amiSelectorTerms to newer images, for example a newer version of the alias",
			})
		}
	}
	return out
}

func latestAlias(f *Facts) (out []Finding) {
	for i := range f.NodeClasses {
		c := &f.NodeClasses[i]
		for _, term := range c.Spec.AMISelectorTerms {
			if !strings.HasSuffix(term.Alias, "@latest") {
				continue
			}
			out = append(out, Finding{
				Object: "EC2NodeClass " + c.Name, Seen: "alias " + term.Alias,
				Remedy: "pin the version that you have tested, in place of latest: alias: " + strings.TrimSuffix(term.Alias, "latest") + "vVERSION",
			})
		}
	}
	return out
}
