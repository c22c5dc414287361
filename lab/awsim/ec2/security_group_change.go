package ec2

import (
	"regexp"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type createGroupInput struct {
	DryRun      bool               `query:"DryRun"`
	Name        string             `query:"GroupName,required"`
	Description string             `query:"GroupDescription,required"`
	VPCID       string             `query:"VpcId"`
	Tags        []tagSpecification `query:"TagSpecification"`
}

type createGroupOutput struct {
	ID     string `xml:"groupId"`
	ARN    string `xml:"securityGroupArn"`
	Tags   []tag  `xml:"tagSet>item"`
	Return bool   `xml:"return"`
}

// groupText is what names and descriptions of security groups of a VPC are made of.
var groupText = regexp.MustCompile(`^[0-9A-Za-z ._\-:/()#,@\[\]+=&;{}!$*]{1,255}$`)

func (in *createGroupInput) check() error {
	for _, p := range []struct{ name, value string }{{"groupName", in.Name}, {"groupDescription", in.Description}} {
		if !groupText.MatchString(p.value) {
			return invalidValue("Value (%s) for parameter %s is invalid. Character sets beyond ASCII are not supported.", p.value, p.name)
		}
	}
	switch {
	case in.Name == defaultGroup:
		return invalidValue("Cannot use reserved security group name: %s", defaultGroup)
	case strings.HasPrefix(in.Name, "sg-"):
		return invalidValue("Group names may not be in the format sg-*.")
	}
	return checkSpecifications(in.Tags, "security-group")
}

// createSecurityGroup creates a group that lets everything out and nothing in, in the default VPC if none is named.
func (e *EC2) createSecurityGroup(r *protocol.Request, in *createGroupInput) (*createGroupOutput, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	vpc, err := e.network.vpcFor(in.VPCID)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(e.network.groups, func(g *SecurityGroup) bool { return g.VPCID == vpc.ID && g.Name == in.Name }) {
		return nil, protocol.Errorf("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", in.Name, vpc.ID)
	}
	tags := tagsFor("security-group", in.Tags)
	needs := append(e.making(r.Action, "security-group", tags), e.on("vpc", vpc.ID, vpc.Tags, "ec2:VpcID", vpc.ID))
	if err := r.Authorize(needs...); err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	g := &SecurityGroup{
		ID: e.newID("sg"), VPCID: vpc.ID, Name: in.Name, Description: in.Description, Tags: tags,
		Egress: []Permission{{Protocol: "-1", FromPort: -1, ToPort: -1, CIDRs: []string{"0.0.0.0/0"}}},
	}
	e.network.groups = append(e.network.groups, g)
	r.Touch(g.ID)
	return &createGroupOutput{ID: g.ID, ARN: e.cfg.arn("security-group/" + g.ID), Tags: tagList(tags), Return: true}, nil
}

// vpcFor is the VPC of an ID, the default one for an empty ID. The lock must be held.
func (n *network) vpcFor(id string) (*VPC, error) {
	if id == "" {
		if vpc := find(n.vpcs, func(v *VPC) bool { return v.Default }); vpc != nil {
			return vpc, nil
		}
		return nil, protocol.Errorf("VPCIdNotSpecified", "No default VPC for this user")
	}
	if err := vpcIDs().check(id); err != nil {
		return nil, err
	}
	if vpc := n.vpc(id); vpc != nil {
		return vpc, nil
	}
	return nil, vpcIDs().absent(id)
}

type deleteGroupInput struct {
	DryRun bool   `query:"DryRun"`
	ID     string `query:"GroupId"`
	Name   string `query:"GroupName"`
}

type deleteGroupOutput struct {
	Return bool   `xml:"return"`
	ID     string `xml:"groupId"`
}

// deleteSecurityGroup deletes a group that no network interface and no other group refers to.
func (e *EC2) deleteSecurityGroup(r *protocol.Request, in *deleteGroupInput) (*deleteGroupOutput, error) {
	e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	g, err := e.network.groupFor(in)
	if err != nil {
		return nil, err
	}
	if err := r.Authorize(e.on("security-group", g.ID, g.Tags, "ec2:SecurityGroupID", g.ID)); err != nil {
		return nil, err
	}
	switch {
	case g.Name == defaultGroup:
		return nil, protocol.Errorf("CannotDelete", "the specified group: \"%s\" name: \"default\" cannot be deleted by a user", g.ID)
	case e.groupInUse(g.ID):
		return nil, protocol.Errorf("DependencyViolation", "resource %s has a dependent object", g.ID)
	case in.DryRun:
		return nil, dryRun()
	}
	e.network.groups = slices.DeleteFunc(slices.Clone(e.network.groups), func(other *SecurityGroup) bool { return other == g })
	r.Touch(g.ID)
	return &deleteGroupOutput{Return: true, ID: g.ID}, nil
}

// groupFor is the group of an ID, or of a name in the default VPC. The lock must be held.
func (n *network) groupFor(in *deleteGroupInput) (*SecurityGroup, error) {
	if in.ID == "" && in.Name == "" {
		return nil, missing("groupName or groupId")
	}
	if in.ID == "" {
		vpc, err := n.vpcFor("")
		if err != nil {
			return nil, err
		}
		if g := find(n.groups, func(g *SecurityGroup) bool { return g.VPCID == vpc.ID && g.Name == in.Name }); g != nil {
			return g, nil
		}
		return nil, groupIDs().absent(in.Name)
	}
	if err := groupIDs().check(in.ID); err != nil {
		return nil, err
	}
	if g := n.group(in.ID); g != nil {
		return g, nil
	}
	return nil, groupIDs().absent(in.ID)
}

// groupInUse reports whether a network interface of an instance, or a rule of another group, refers to a group. The
// lock must be held.
func (e *EC2) groupInUse(id string) bool {
	for _, r := range e.fleet.list() {
		if r.State != Terminated && slices.ContainsFunc(r.nics, func(n nic) bool {
			return slices.ContainsFunc(n.groups, func(g *SecurityGroup) bool { return g.ID == id })
		}) {
			return true
		}
	}
	refers := func(p Permission) bool { return slices.Contains(p.Groups, id) }
	return slices.ContainsFunc(e.network.groups, func(g *SecurityGroup) bool {
		return g.ID != id && (slices.ContainsFunc(g.Ingress, refers) || slices.ContainsFunc(g.Egress, refers))
	})
}
