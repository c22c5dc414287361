package policy

import (
	"maps"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
)

// Condition keys of tags: those of a resource, and those of a request.
const (
	resourceTag = "aws:ResourceTag/"
	requestTag  = "aws:RequestTag/"
)

// statements is the table. The parameters are complete.
func statements(p Params) []Statement {
	created := p.ec2("*", "fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
	out := []Statement{
		{
			Sid:       "AllowScopedEC2InstanceAccessActions",
			Grants:    []Grant{{"ec2:RunInstances", launches + "; dry runs"}, {"ec2:CreateFleet", launches}},
			Resources: append(p.ec2("", "image", "snapshot"), p.ec2("*", "security-group", "subnet", "capacity-reservation", "placement-group")...),
		},
		{
			Sid:        "AllowScopedEC2LaunchTemplateAccessActions",
			Grants:     []Grant{{"ec2:RunInstances", launches + "; dry runs"}, {"ec2:CreateFleet", launches}},
			Resources:  p.ec2("*", "launch-template"),
			Conditions: p.owned(),
		},
		{
			Sid: "AllowScopedEC2InstanceActionsWithTags",
			Grants: []Grant{
				{"ec2:RunInstances", launches + "; dry runs"},
				{"ec2:CreateFleet", launches},
				{"ec2:CreateLaunchTemplate", "a launch template per image, user data and kind of capacity"},
			},
			Resources:  created,
			Conditions: p.tagged(),
		},
		{
			Sid:       "AllowScopedResourceCreationTagging",
			Grants:    []Grant{{"ec2:CreateTags", "tags on what CreateFleet, RunInstances and CreateLaunchTemplate make"}},
			Resources: created,
			Conditions: all(p.tagged(), Conditions{
				"StringEquals": {"ec2:CreateAction": {"RunInstances", "CreateFleet", "CreateLaunchTemplate"}},
			}),
		},
		{
			Sid:       "AllowScopedResourceTagging",
			Grants:    []Grant{{"ec2:CreateTags", "the names by which people find an instance, once its node has joined"}},
			Resources: p.ec2("*", "instance"),
			Conditions: all(p.owned(), Conditions{
				"StringEqualsIfExists":      {requestTag + awsv1.TagClusterName: {p.Cluster}},
				"ForAllValues:StringEquals": {"aws:TagKeys": {awsv1.TagClusterName, awsv1.TagNodeClaim, awsv1.TagName}},
			}),
		},
		{
			Sid:       "AllowAdoptionOfInstances",
			Grants:    []Grant{{"ec2:CreateTags", "this cluster's identity on instances of an earlier autoscaler, which have none"}},
			Resources: p.ec2("*", "instance"),
			Conditions: all(p.ownedByName(), p.identified(), Conditions{
				"Null":                      {resourceTag + awsv1.TagClusterUID: {"true"}},
				"ForAllValues:StringEquals": {"aws:TagKeys": {awsv1.TagClusterUID, identity.TagNodeClaimUID, awsv1.TagNodeClaim}},
			}),
		},
		{
			Sid: "AllowScopedDeletion",
			Grants: []Grant{
				{"ec2:TerminateInstances", "the end of a node, and of an instance without NodeClaim"},
				{"ec2:DeleteLaunchTemplate", "launch templates of deleted node classes, and unused ones"},
			},
			Resources:  p.ec2("*", "instance", "launch-template"),
			Conditions: p.owned(),
		},
		{
			Sid:        "AllowScopedConsoleOutput",
			Grants:     []Grant{{"ec2:GetConsoleOutput", "why an instance does not join"}},
			Resources:  p.ec2("*", "instance"),
			Conditions: p.owned(),
		},
	}
	if p.Reboots {
		out = append(out, Statement{
			Sid:        "AllowScopedReboot",
			Grants:     []Grant{{"ec2:RebootInstances", "the repair of instances with a fault that a reboot may clear"}},
			Resources:  p.ec2("*", "instance"),
			Conditions: p.owned(),
		})
	}
	return append(append(out, profileStatements(p)...), readStatements(p)...)
}

const launches = "CreateFleet of type instant, which launches in the caller's name"

// profileStatements are about IAM.
func profileStatements(p Params) []Statement {
	profiles := []string{p.arn("iam", "", p.Account, "instance-profile/*")}
	var roles []string
	for _, role := range p.NodeRoles {
		if !arn.IsARN(role) {
			role = p.arn("iam", "", p.Account, "role/"+strings.TrimPrefix(role, "/"))
		}
		roles = append(roles, role)
	}
	// As in Karpenter's policy, the cluster's name is only required of requests: old profiles have no such tag.
	requested, of := p.profileTags(requestTag), p.profileTags(resourceTag)
	delete(of["StringEquals"], resourceTag+awsv1.TagClusterName)
	anonymous := p
	anonymous.Identity = ""
	adoptable := anonymous.profileTags(resourceTag)
	delete(adoptable["StringEquals"], resourceTag+awsv1.TagClusterName)
	return []Statement{
		{
			Sid:       "AllowPassingInstanceRole",
			Grants:    []Grant{{"iam:PassRole", "AddRoleToInstanceProfile, and launches with the profile"}},
			Resources: roles,
			Conditions: Conditions{
				"StringEquals": {"iam:PassedToService": {"ec2.amazonaws.com", "ec2.amazonaws.com.cn"}},
			},
		},
		{
			Sid:        "AllowScopedInstanceProfileCreationActions",
			Grants:     []Grant{{"iam:CreateInstanceProfile", "a profile per node class and role"}},
			Resources:  profiles,
			Conditions: requested,
		},
		{
			Sid:        "AllowScopedInstanceProfileTagActions",
			Grants:     []Grant{{"iam:TagInstanceProfile", "tags on a profile that is created"}},
			Resources:  profiles,
			Conditions: all(of, requested),
		},
		{
			Sid:       "AllowAdoptionOfInstanceProfiles",
			Grants:    []Grant{{"iam:TagInstanceProfile", "this cluster's identity on profiles of an earlier autoscaler, which have none"}},
			Resources: profiles,
			Conditions: all(adoptable, p.identified(), Conditions{
				"Null":                      {resourceTag + awsv1.TagClusterUID: {"true"}},
				"ForAllValues:StringEquals": {"aws:TagKeys": {awsv1.TagClusterUID}},
			}),
		},
		{
			Sid: "AllowScopedInstanceProfileActions",
			Grants: []Grant{
				{"iam:AddRoleToInstanceProfile", "a node class with spec.role"},
				{"iam:RemoveRoleFromInstanceProfile", "deletion of a node class, or a change of its role"},
				{"iam:DeleteInstanceProfile", "deletion of a node class, and unused profiles"},
			},
			Resources:  profiles,
			Conditions: of,
		},
		{
			Sid:       "AllowInstanceProfileReadActions",
			Grants:    []Grant{{"iam:GetInstanceProfile", "whether a profile exists, and its role"}},
			Resources: profiles,
		},
		{
			Sid:       "AllowUnscopedInstanceProfileListAction",
			Grants:    []Grant{{"iam:ListInstanceProfiles", "profiles of node classes that are deleted"}},
			Resources: []string{"*"},
		},
		{
			Sid:       "AllowNodeRoleRead",
			Grants:    []Grant{{"iam:GetRole", "the ARN of spec.role, which must be mapped in the cluster for nodes to join"}},
			Resources: roles,
		},
	}
}

// readStatements are about what is only read, and the queue.
func readStatements(p Params) []Statement {
	cluster := p.arn("eks", p.Region, p.Account, "cluster/"+p.Cluster)
	parameters := []string{p.arn("ssm", p.Region, "", "parameter/aws/service/*")}
	for _, name := range p.Parameters {
		if !arn.IsARN(name) {
			name = p.arn("ssm", p.Region, p.Account, "parameter/"+strings.TrimPrefix(name, "/"))
		}
		parameters = append(parameters, name)
	}
	out := []Statement{
		{
			Sid:       "AllowAPIServerEndpointDiscovery",
			Grants:    []Grant{{"eks:DescribeCluster", "endpoint, CA, version and service CIDR; that this API server is the cluster's"}},
			Resources: []string{cluster},
		},
		{
			Sid: "AllowAccessEntryRead",
			Grants: []Grant{
				{"eks:ListAccessEntries", "whether the node role may join"},
				{"eks:DescribeAccessEntry", "whether the node role may join as what its nodes are"},
			},
			Resources: []string{cluster, p.arn("eks", p.Region, p.Account, "access-entry/"+p.Cluster+"/*")},
		},
	}
	if len(p.Queues) > 0 {
		var queues []string
		for _, name := range p.Queues {
			if !arn.IsARN(name) {
				name = p.arn("sqs", p.Region, p.Account, name)
			}
			queues = append(queues, name)
		}
		out = append(out, Statement{
			Sid: "AllowInterruptionQueueActions",
			Grants: []Grant{
				{"sqs:GetQueueUrl", "the interruption queue, by its name"},
				{"sqs:ReceiveMessage", "warnings of interruptions, health events, changes of state"},
				{"sqs:DeleteMessage", "messages that are handled"},
			},
			Resources: queues,
		})
	}
	return append(out,
		Statement{
			Sid:        "AllowZonalShiftStatusReadOnly",
			Grants:     []Grant{{"arc-zonal-shift:GetManagedResource", "zones that traffic is shifted away from"}},
			Resources:  []string{"*"},
			Conditions: equals("arc-zonal-shift:ResourceIdentifier", cluster),
		},
		Statement{
			Sid: "AllowRegionalReadActions",
			Grants: []Grant{
				{"ec2:DescribeCapacityReservations", "capacityReservationSelectorTerms"},
				{"ec2:DescribeImages", "amiSelectorTerms"},
				{"ec2:DescribeInstances", "instances, and which cluster they belong to"},
				{"ec2:DescribeInstanceStatus", "impaired instances and scheduled events"},
				{"ec2:DescribeInstanceTypeOfferings", "which zones offer which types"},
				{"ec2:DescribeInstanceTypes", "instance types; at start, whether EC2 can be called"},
				{"ec2:DescribeLaunchTemplates", "existing launch templates"},
				{"ec2:DescribePlacementGroups", "placementGroupSelector"},
				{"ec2:DescribeRouteTables", "whether nodes can reach the API server"},
				{"ec2:DescribeSecurityGroups", "securityGroupSelectorTerms; whether nodes can reach the API server"},
				{"ec2:DescribeSpotPriceHistory", "spot prices"},
				{"ec2:DescribeSubnets", "subnetSelectorTerms; free addresses"},
			},
			Resources:  []string{"*"},
			Conditions: equals("aws:RequestedRegion", p.Region),
		},
		Statement{
			Sid:       "AllowSSMReadActions",
			Grants:    []Grant{{"ssm:GetParameter", "images by alias, and by ssmParameter"}},
			Resources: parameters,
		},
		Statement{
			Sid:       "AllowPricingReadActions",
			Grants:    []Grant{{"pricing:GetProducts", "on-demand prices"}},
			Resources: []string{"*"},
		},
	)
}

func (p Params) arn(service, region, account, resource string) string {
	return arn.ARN{Partition: p.Partition, Service: service, Region: region, AccountID: account, Resource: resource}.String()
}

// ec2 are the ARNs of all resources of some kinds. Account * covers what other accounts share with this one.
func (p Params) ec2(account string, kinds ...string) []string {
	var out []string
	for _, kind := range kinds {
		out = append(out, p.arn("ec2", p.Region, account, kind+"/*"))
	}
	return out
}

// ownedByName is true of resources that have the cluster's name and were made for a NodePool.
func (p Params) ownedByName() Conditions {
	return all(equals(resourceTag+awsv1.TagClusterPrefix+p.Cluster, awsv1.TagOwned), equals(resourceTag+awsv1.TagNodePool, "*"))
}

// owned is ownedByName, and of this very cluster where its identity is known.
func (p Params) owned() Conditions {
	return all(p.ownedByName(), p.identity(resourceTag))
}

// tagged is true of requests that make resources of the cluster for a NodePool.
func (p Params) tagged() Conditions {
	return all(
		equals(requestTag+awsv1.TagClusterPrefix+p.Cluster, awsv1.TagOwned), equals(requestTag+awsv1.TagClusterName, p.Cluster),
		equals(requestTag+awsv1.TagNodePool, "*"), p.identity(requestTag))
}

// profileTags returns those of an instance profile: kind is of the resource or of the request.
func (p Params) profileTags(kind string) Conditions {
	return all(
		equals(kind+awsv1.TagClusterPrefix+p.Cluster, awsv1.TagOwned), equals(kind+awsv1.TagClusterName, p.Cluster),
		equals(kind+awsv1.TagRegion, p.Region), equals(kind+awsv1.TagNodeClass, "*"), p.identity(kind))
}

// identity is true for resources with the cluster's identity; if that is not known, for all.
func (p Params) identity(kind string) Conditions {
	if p.Identity == "" {
		return nil
	}
	return equals(kind+awsv1.TagClusterUID, p.Identity)
}

// identified is true for requests that set the cluster's identity; if that is not known, for all.
func (p Params) identified() Conditions {
	if p.Identity == "" {
		return equals(requestTag+awsv1.TagClusterUID, "*")
	}
	return p.identity(requestTag)
}

// equals tests a key for a value, in which a star stands for anything.
func equals(key, value string) Conditions {
	operator := "StringEquals"
	if strings.Contains(value, "*") {
		operator = "StringLike"
	}
	return Conditions{operator: {key: {value}}}
}

// all is true where all of the conditions are.
func all(conditions ...Conditions) Conditions {
	out := Conditions{}
	for _, c := range conditions {
		for operator, tests := range c {
			if out[operator] == nil {
				out[operator] = map[string][]string{}
			}
			maps.Copy(out[operator], tests)
		}
	}
	return out
}
