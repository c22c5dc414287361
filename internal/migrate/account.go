package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

func accountChecks() []Check {
	return []Check{
		{ID: "cluster-name", Title: "the API server is not that of the named cluster", needs: []doctor.Fact{doctor.Identity}, run: checkIdentity},
		{ID: "permissions", Title: "the role lacks rights of our policy", needs: []doctor.Fact{Role, Identity}, run: checkPermissions},
		{
			ID: "foreign-instances", Title: "instances with this cluster's name belong to another cluster",
			needs: []doctor.Fact{doctor.Instances}, run: checkForeign,
		},
		{
			ID: "adoption", Title: "instances that are not adopted", needs: []doctor.Fact{doctor.Instances, doctor.NodeClaims},
			run: checkAdoption,
		},
	}
}

func checkIdentity(f *Facts) ([]Result, string) {
	return f.fromDoctor(Obstacle, "identity-cluster"), fmt.Sprintf("the API server is that of the EKS cluster %s", f.Cluster.ClusterName)
}

// fromDoctor are the findings of some checks of the doctor.
func (f *Facts) fromDoctor(status Status, checks ...string) (out []Result) {
	for _, found := range doctor.Run(f.Cluster).Findings {
		if slices.Contains(checks, found.Check) {
			out = append(out, Result{Status: status, Object: found.Object, Seen: found.Seen, Remedy: found.Remedy})
		}
	}
	return out
}

// partial are the statements without which a part of the controller fails, but no node. All others are needed to launch, adopt and
// terminate.
var partial = []string{
	"AllowScopedConsoleOutput", "AllowAdoptionOfInstanceProfiles", "AllowNodeRoleRead", "AllowAccessEntryRead",
	"AllowZonalShiftStatusReadOnly", "AllowPricingReadActions", "AllowScopedResourceTagging", "AllowUnscopedInstanceProfileListAction",
}

// partialActions are actions of which the same is true, in other statements.
var partialActions = []string{"ec2:DescribeRouteTables", "ec2:DescribePlacementGroups", "ec2:DescribeCapacityReservations"}

// PolicyParams returns those of the policy that the controller needs in this cluster.
func (f *Facts) PolicyParams() policy.Params {
	p := policy.Params{Cluster: f.Cluster.ClusterName, Identity: f.ClusterUID, Region: f.Region, Account: f.Account}
	for i := range f.Cluster.NodeClasses {
		c := &f.Cluster.NodeClasses[i]
		if role := c.Spec.Role; role != "" && !slices.Contains(p.NodeRoles, role) {
			p.NodeRoles = append(p.NodeRoles, role)
		}
		for _, term := range c.Spec.AMISelectorTerms {
			if name := term.SSMParameter; name != "" && !strings.Contains(name, "/aws/service/") && !slices.Contains(p.Parameters, name) {
				p.Parameters = append(p.Parameters, name)
			}
		}
	}
	slices.Sort(p.NodeRoles)
	slices.Sort(p.Parameters)
	if k := f.Karpenter(); k != nil {
		a := f.apply(k)
		if a.InterruptionQueue != "" {
			p.Queues = []string{a.InterruptionQueue}
		}
		p.Reboots = a.AWSGate(settings.GateRebootForRepair)
	}
	return p
}

// policyCommand prints the policy for these parameters.
func policyCommand(p policy.Params) string {
	out := []string{"dovetail iam-policy --cluster-name " + word(p.Cluster)}
	add := func(flag string, values ...string) {
		for _, v := range values {
			if v != "" {
				out = append(out, "--"+flag+" "+word(v))
			}
		}
	}
	add("identity", p.Identity)
	add("region", p.Region)
	add("account", p.Account)
	add("node-role", p.NodeRoles...)
	add("interruption-queue", p.Queues...)
	add("ssm-parameter", p.Parameters...)
	if p.Reboots {
		out = append(out, "--reboot-for-repair")
	}
	return strings.Join(out, " ")
}

// policyName is the inline policy that gives a role what Karpenter's policy does not.
const policyName = "Dovetail"

// attachCommand gives the policy to the role.
func attachCommand(roleARN string, p policy.Params) string {
	return fmt.Sprintf(`aws iam put-role-policy --role-name %s --policy-name %s --policy-document "$(%s)"`,
		word(roleName(roleARN)), policyName, policyCommand(p))
}

// roleName is the name of a role without its path.
func roleName(arn string) string { return arn[strings.LastIndexByte(arn, '/')+1:] }

func checkPermissions(f *Facts) (out []Result, _ string) {
	for _, d := range f.Denied {
		needed, other := []string{}, []string{}
		for _, g := range d.Grants {
			text, kinds := fmt.Sprintf("%s (%s)", g.Action, g.For), d.Kinds[g.Action]
			if len(kinds) > 0 {
				text = fmt.Sprintf("%s on %s (%s)", g.Action, strings.Join(kinds, ", "), g.For)
			}
			if slices.Contains(partial, d.Sid) || slices.Contains(partialActions, g.Action) || f.usesNone(kinds) {
				other = append(other, text)
			} else {
				needed = append(needed, text)
			}
		}
		for _, list := range []struct {
			status  Status
			actions []string
		}{{Obstacle, needed}, {Warning, other}} {
			if len(list.actions) == 0 {
				continue
			}
			out = append(out, Result{
				Status: list.status, Object: "IAM role " + roleName(f.RoleARN), Field: "statement " + d.Sid,
				Seen:   "may not call " + strings.Join(list.actions, ", "),
				Remedy: "give it our policy, beside Karpenter's: " + attachCommand(f.RoleARN, f.PolicyParams()),
			})
		}
	}
	return out, fmt.Sprintf("IAM role %s has each right of our policy", roleName(f.RoleARN))
}

// usesNone reports whether all of some kinds of resources are those of features that no EC2NodeClass uses.
func (f *Facts) usesNone(kinds []string) bool {
	unused := map[string]bool{"capacity-reservation": true, "placement-group": true}
	for i := range f.Cluster.NodeClasses {
		spec := &f.Cluster.NodeClasses[i].Spec
		unused["capacity-reservation"] = unused["capacity-reservation"] && len(spec.CapacityReservationSelectorTerms) == 0
		unused["placement-group"] = unused["placement-group"] && spec.PlacementGroupSelector == nil
	}
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(kind string) bool { return !unused[kind] })
}

func checkForeign(f *Facts) ([]Result, string) {
	return f.fromDoctor(Obstacle, "identity-foreign-instance"),
		fmt.Sprintf("instances with this cluster's name: %d, and none belongs to another cluster", len(f.Cluster.Instances))
}

// checkAdoption: an instance is adopted if a Node and a NodeClaim have it.
func checkAdoption(f *Facts) (out []Result, _ string) {
	owners := map[cloudprovider.Ownership]int{}
	for _, i := range f.Cluster.Instances {
		owners[i.Owner]++
	}
	out = f.fromDoctor(Warning, "identity-unknown-instance", "nodes-without-instance")
	return out, fmt.Sprintf("instances that would be adopted, by the tag dovetail.sh/cluster-uid: %d; that have it already: %d",
		owners[cloudprovider.Adoptable], owners[cloudprovider.Ours])
}
