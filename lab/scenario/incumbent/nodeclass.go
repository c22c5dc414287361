package incumbent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Prepare resolves a NodePool and its EC2NodeClass with the image of this ID: hashes, finalizer, instance profile, status.
func (c *Controller) Prepare(ctx context.Context, pool, image string) error {
	p, class, err := c.poolAndClass(ctx, pool)
	if err != nil {
		return err
	}
	if err := c.Rehash(ctx); err != nil {
		return err
	}
	status, err := c.resolve(ctx, class, image)
	if err != nil {
		return err
	}
	if err := c.change(ctx, class, map[string]any{"metadata": map[string]any{"finalizers": []string{classTermination}}}); err != nil {
		return err
	}
	if err := c.change(ctx, class, map[string]any{"status": status}); err != nil {
		return err
	}
	return c.change(ctx, p, map[string]any{"status": map[string]any{
		"conditions": conditions(p, "ValidationSucceeded", "NodeClassReady", "Ready"),
	}})
}

// poolAndClass are a NodePool and its EC2NodeClass.
func (c *Controller) poolAndClass(ctx context.Context, name string) (pool, class *object, err error) {
	if pool, err = c.get(ctx, coreGroup, "NodePool", name); err != nil {
		return nil, nil, err
	}
	class, err = c.get(ctx, awsGroup, "EC2NodeClass", text(pool, "spec", "template", "spec", "nodeClassRef", "name"))
	return pool, class, err
}

// conditions are those that are True.
func conditions(of *object, types ...string) []any {
	var out []any
	for _, t := range types {
		out = append(out, map[string]any{
			"type": t, "status": "True", "reason": t, "message": "", "observedGeneration": of.GetGeneration(),
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		})
	}
	return out
}

// resolve finds subnets, security groups, image and instance profile of a class.
func (c *Controller) resolve(ctx context.Context, class *object, image string) (map[string]any, error) {
	discovered := []ec2types.Filter{{Name: aws.String("tag:karpenter.sh/discovery"), Values: []string{c.Cluster}}}
	subnets, err := c.EC2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: discovered})
	if err != nil {
		return nil, fmt.Errorf("resolve the subnets of EC2NodeClass %s: %w", class.GetName(), err)
	}
	groups, err := c.EC2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{Filters: discovered})
	if err != nil {
		return nil, fmt.Errorf("resolve the security groups of EC2NodeClass %s: %w", class.GetName(), err)
	}
	profile, err := c.createProfile(ctx, class)
	if err != nil {
		return nil, err
	}
	var inStatus, groupsInStatus []any
	for _, s := range subnets.Subnets {
		inStatus = append(inStatus, map[string]any{"id": *s.SubnetId, "zone": *s.AvailabilityZone, "zoneID": *s.AvailabilityZoneId})
	}
	for _, g := range groups.SecurityGroups {
		groupsInStatus = append(groupsInStatus, map[string]any{"id": *g.GroupId, "name": *g.GroupName})
	}
	return map[string]any{
		"subnets": inStatus, "securityGroups": groupsInStatus, "instanceProfile": profile,
		"amis": []any{map[string]any{"id": image, "name": "al2023", "requirements": []any{
			map[string]any{"key": "kubernetes.io/arch", "operator": "In", "values": []any{"amd64"}},
		}}},
		"conditions": conditions(class, "AMIsReady", "SubnetsReady", "SecurityGroupsReady", "InstanceProfileReady",
			"ValidationSucceeded", "CapacityReservationsReady", "PlacementGroupReady", "Ready"),
	}, nil
}

// createProfile creates the instance profile of a class: its name has a hash of the region, the class and random bits, its
// path the UID of the class.
func (c *Controller) createProfile(ctx context.Context, class *object) (string, error) {
	sum, err := hash([]any{c.Region, class.GetName(), "0d3f9b0e-6f0b-4a49-9d1c-0f6f0a7f7f11"})
	if err != nil {
		return "", err
	}
	tags := c.tags(class)
	tags[regionTag] = c.Region
	in := &iam.CreateInstanceProfileInput{
		InstanceProfileName: aws.String(c.Cluster + "_" + sum), Path: aws.String(c.profilePath() + string(class.GetUID()) + "/"),
	}
	for key, value := range tags {
		in.Tags = append(in.Tags, iamtypes.Tag{Key: aws.String(key), Value: aws.String(value)})
	}
	if _, err := c.IAM.CreateInstanceProfile(ctx, in); err != nil {
		return "", fmt.Errorf("create the instance profile of EC2NodeClass %s: %w", class.GetName(), err)
	}
	role := text(class, "spec", "role")
	if _, err := c.IAM.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{
		InstanceProfileName: in.InstanceProfileName, RoleName: &role,
	}); err != nil {
		return "", fmt.Errorf("add role %s to instance profile %s: %w", role, *in.InstanceProfileName, err)
	}
	return *in.InstanceProfileName, nil
}

// profilePath is the beginning of the paths of all instance profiles.
func (c *Controller) profilePath() string { return "/karpenter/" + c.Region + "/" + c.Cluster + "/" }

// Rehash writes the hashes of all NodePools and EC2NodeClasses. Where an object has a hash of another version, it first gives
// the new one to the NodeClaims of the object that have not drifted.
func (c *Controller) Rehash(ctx context.Context) error {
	claims, err := c.list(ctx, coreGroup, "NodeClaim")
	if err != nil {
		return err
	}
	for _, kind := range c.hashed() {
		objects, err := c.list(ctx, kind.group, kind.name)
		if err != nil {
			return err
		}
		for i := range objects {
			if err := c.rehash(ctx, kind, &objects[i], claims); err != nil {
				return err
			}
		}
	}
	return nil
}

// hashedKind is a kind with a hash of its own.
type hashedKind struct {
	group, name             string
	hash, version, expected string
	of                      func(*object) (string, error)
	owns                    func(claim, owner *object) bool
}

func (c *Controller) hashed() []hashedKind {
	return []hashedKind{
		{coreGroup, "NodePool", poolHash, poolHashVersion, PoolHashVersion, poolHashOf, func(claim, pool *object) bool {
			return claim.GetLabels()[nodePoolLabel] == pool.GetName()
		}},
		{awsGroup, "EC2NodeClass", classHash, classHashVersion, ClassHashVersion, c.classHashOf, func(claim, class *object) bool {
			return text(claim, "spec", "nodeClassRef", "name") == class.GetName()
		}},
	}
}

func (c *Controller) rehash(ctx context.Context, kind hashedKind, owner *object, claims []object) error {
	sum, err := kind.of(owner)
	if err != nil {
		return err
	}
	if owner.GetAnnotations()[kind.version] != kind.expected {
		for i := range claims {
			claim := &claims[i]
			if !kind.owns(claim, owner) || claim.GetAnnotations()[kind.version] == kind.expected {
				continue
			}
			annotations := map[string]any{kind.version: kind.expected}
			if !conditionTrue(claim, "Drifted") {
				annotations[kind.hash] = sum
			}
			if err := c.change(ctx, claim, annotate(annotations)); err != nil {
				return err
			}
		}
	}
	return c.change(ctx, owner, annotate(map[string]any{kind.hash: sum, kind.version: kind.expected}))
}

func annotate(annotations map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": annotations}}
}

// conditionTrue reports whether an object has a condition that is True.
func conditionTrue(o *object, name string) bool {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(all, func(c any) bool {
		one, ok := c.(map[string]any)
		return ok && one["type"] == name && one["status"] == "True"
	})
}

// classStatus is what an EC2NodeClass resolves to.
type classStatus struct {
	Subnets        []subnet
	SecurityGroups []securityGroup
	AMIs           []struct {
		ID           string
		Requirements []struct {
			Key, Operator string
			Values        []string
		}
	}
	InstanceProfile string
}

type (
	subnet        struct{ ID, Zone, ZoneID string }
	securityGroup struct{ ID string }
)

func readStatus(class *object) (out classStatus, err error) {
	return out, convert(class.Object["status"], &out)
}

// groups are the IDs of the security groups.
func (s classStatus) groups() (ids []string) {
	for _, g := range s.SecurityGroups {
		ids = append(ids, g.ID)
	}
	return ids
}

// image is that of amd64 types without accelerators: the first with requirements that such a type fulfills.
func (s classStatus) image() (string, error) {
images:
	for _, ami := range s.AMIs {
		for _, r := range ami.Requirements {
			amd64 := r.Key == "kubernetes.io/arch" && slices.Contains(r.Values, "amd64")
			if r.Operator != "DoesNotExist" && !amd64 {
				continue images
			}
		}
		return ami.ID, nil
	}
	return "", fmt.Errorf("status.amis: none of %d is for amd64", len(s.AMIs))
}
