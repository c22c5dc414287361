package incumbent

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Findings are what the controller would do on its start that changes nodes, and what keeps it from doing its work. An
// empty list is a clean hand-over.
type Findings []string

func (f *Findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// Start does what the controller does when it starts: it hashes, and then looks for drift and garbage. It writes
// only the hashes. It returns what it found, and how many NodeClaims it looked at.
func (c *Controller) Start(ctx context.Context) (found Findings, claims int, err error) {
	if err := c.Rehash(ctx); err != nil {
		return nil, 0, err
	}
	all, err := c.list(ctx, coreGroup, "NodeClaim")
	if err != nil {
		return nil, 0, err
	}
	instances, err := c.ownInstances(ctx)
	if err != nil {
		return nil, 0, err
	}
	var nodes corev1.NodeList
	if err := c.Kube.List(ctx, &nodes); err != nil {
		return nil, 0, err
	}
	byID := map[string]corev1.Node{}
	for _, n := range nodes.Items {
		byID[n.Spec.ProviderID] = n
	}
	claimed := map[string]bool{}
	for i := range all {
		claim := &all[i]
		id := text(claim, "status", "providerID")
		claimed[instanceID(id)] = true
		instance, lives := instances[instanceID(id)]
		node, joined := byID[id]
		switch {
		case !lives:
			found.add("NodeClaim %s would be garbage-collected: no instance %q has the tags of cluster %s", claim.GetName(), id, c.Cluster)
		case !joined:
			found.add("NodeClaim %s has no Node with its provider ID", claim.GetName())
		default:
			c.checkClaim(&found, claim, node)
			if err := c.checkDrift(ctx, &found, claim, instance); err != nil {
				return nil, 0, err
			}
		}
	}
	for id := range instances {
		if !claimed[id] {
			found.add("instance %s would be terminated: it has the tags of cluster %s, and no NodeClaim", id, c.Cluster)
		}
	}
	if err := c.checkProfiles(ctx, &found, all, instances); err != nil {
		return nil, 0, err
	}
	slices.Sort(found)
	return found, len(all), nil
}

// ownInstances are the instances with the tags that the controller lists by, without those that terminate.
func (c *Controller) ownInstances(ctx context.Context) (map[string]ec2types.Instance, error) {
	out := map[string]ec2types.Instance{}
	pages := ec2.NewDescribeInstancesPaginator(c.EC2, &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		{Name: aws.String("tag-key"), Values: []string{nodePoolLabel}},
		{Name: aws.String("tag-key"), Values: []string{nodeClassLabel}},
		{Name: aws.String("tag:" + clusterNameTag), Values: []string{c.Cluster}},
		{Name: aws.String("instance-state-name"), Values: []string{"pending", "running", "stopping", "stopped"}},
	}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list instances: %w", err)
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out[*i.InstanceId] = i
			}
		}
	}
	return out, nil
}

// checkClaim checks that a NodeClaim and its Node are in a state that the controller continues from.
func (c *Controller) checkClaim(found *Findings, claim *object, node corev1.Node) {
	name := claim.GetName()
	for _, condition := range []string{"Launched", "Registered", "Initialized", "Ready"} {
		if !conditionTrue(claim, condition) {
			found.add("NodeClaim %s: condition %s is not True", name, condition)
		}
	}
	for _, condition := range []string{"Drifted", "DisruptionReason"} {
		if conditionTrue(claim, condition) {
			found.add("NodeClaim %s: condition %s is True", name, condition)
		}
	}
	for _, finalizer := range slices.Concat(claim.GetFinalizers(), node.Finalizers) {
		if finalizer != termination {
			found.add("NodeClaim %s or its Node has finalizer %s, which nothing would remove", name, finalizer)
		}
	}
	if !slices.Contains(claim.GetFinalizers(), termination) || !slices.Contains(node.Finalizers, termination) {
		found.add("NodeClaim %s or its Node lacks finalizer %s: its pods would not be drained", name, termination)
	}
	ofPool := func(o metav1.OwnerReference) bool {
		return o.Kind == "NodePool" && o.Name == claim.GetLabels()[nodePoolLabel]
	}
	ofClaim := func(o metav1.OwnerReference) bool { return o.Kind == "NodeClaim" && o.UID == claim.GetUID() }
	if !slices.ContainsFunc(claim.GetOwnerReferences(), ofPool) {
		found.add("NodeClaim %s is not owned by its NodePool", name)
	}
	if !slices.ContainsFunc(node.OwnerReferences, ofClaim) {
		found.add("Node %s is not owned by NodeClaim %s", node.Name, name)
	}
	if text(claim, "status", "nodeName") != node.Name {
		found.add("NodeClaim %s: status.nodeName is %q, not %s", name, text(claim, "status", "nodeName"), node.Name)
	}
	for _, label := range []string{
		nodePoolLabel, nodeClassLabel, capacityTypeLabel, corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone,
	} {
		if claim.GetLabels()[label] == "" || node.Labels[label] != claim.GetLabels()[label] {
			found.add("NodeClaim %s: label %s is %q, that of its Node %q", name, label, claim.GetLabels()[label], node.Labels[label])
		}
	}
	if node.Labels[registeredLabel] != "true" || node.Labels[initializedLabel] != "true" {
		found.add("Node %s lacks label %s or %s", node.Name, registeredLabel, initializedLabel)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == unregistered || taint.Key == disrupted {
			found.add("Node %s has taint %s", node.Name, taint.Key)
		}
	}
}

// checkDrift checks all reasons for which the controller would replace a node.
func (c *Controller) checkDrift(ctx context.Context, found *Findings, claim *object, i ec2types.Instance) error {
	name := claim.GetName()
	pool, err := c.get(ctx, coreGroup, "NodePool", claim.GetLabels()[nodePoolLabel])
	if err != nil {
		return err
	}
	class, err := c.get(ctx, awsGroup, "EC2NodeClass", text(claim, "spec", "nodeClassRef", "name"))
	if err != nil {
		return err
	}
	mine, theirs := claim.GetAnnotations(), map[string]string{}
	for key, value := range pool.GetAnnotations() {
		theirs[key] = value
	}
	for key, value := range class.GetAnnotations() {
		theirs[key] = value
	}
	for _, key := range []string{poolHash, poolHashVersion, classHash, classHashVersion} {
		if mine[key] == "" || mine[key] != theirs[key] {
			found.add("NodeClaim %s would drift: annotation %s is %q, wanted %q", name, key, mine[key], theirs[key])
		}
	}
	if err := checkRequirements(found, claim, pool); err != nil {
		return err
	}
	status, err := readStatus(class)
	if err != nil {
		return err
	}
	mapped, err := status.image()
	if err != nil {
		return fmt.Errorf("EC2NodeClass %s: %w", class.GetName(), err)
	}
	if image := text(claim, "status", "imageID"); image != aws.ToString(i.ImageId) || image != mapped {
		found.add("NodeClaim %s would drift: status.imageID is %q, the instance's image %q, that of its type now %q",
			name, image, aws.ToString(i.ImageId), mapped)
	}
	if !slices.ContainsFunc(status.Subnets, func(s subnet) bool { return s.ID == aws.ToString(i.SubnetId) }) {
		found.add("NodeClaim %s would drift: subnet %s", name, aws.ToString(i.SubnetId))
	}
	if len(i.SecurityGroups) != len(status.SecurityGroups) {
		found.add("NodeClaim %s would drift: %d security groups, wanted %d", name, len(i.SecurityGroups), len(status.SecurityGroups))
	}
	for _, g := range i.SecurityGroups {
		if !slices.ContainsFunc(status.SecurityGroups, func(one securityGroup) bool { return one.ID == aws.ToString(g.GroupId) }) {
			found.add("NodeClaim %s would drift: security group %s", name, aws.ToString(g.GroupId))
		}
	}
	if group := claim.GetLabels()["karpenter.k8s.aws/placement-group-id"]; group != "" {
		found.add("NodeClaim %s would drift: placement group %s", name, group)
	}
	return nil
}

// checkRequirements checks that the labels of a NodeClaim are compatible with the requirements of its NodePool.
func checkRequirements(found *Findings, claim, pool *object) error {
	var spec struct {
		Spec struct {
			Template struct {
				Spec struct {
					Requirements []struct {
						Key, Operator string
						Values        []string
					}
				}
			}
		}
	}
	if err := convert(pool.Object, &spec); err != nil {
		return err
	}
	for _, r := range spec.Spec.Template.Spec.Requirements {
		value, has := claim.GetLabels()[r.Key]
		var fits bool
		switch r.Operator {
		case "In":
			fits = has && slices.Contains(r.Values, value)
		case "NotIn":
			fits = !slices.Contains(r.Values, value)
		case "Exists":
			fits = has
		case "DoesNotExist":
			fits = !has
		case "Gt":
			fits = has && len(value) >= len(r.Values[0]) && (len(value) > len(r.Values[0]) || value > r.Values[0])
		default:
			return fmt.Errorf("operator %s of requirement %s is not known here", r.Operator, r.Key)
		}
		if !fits {
			found.add("NodeClaim %s would drift: label %s=%q does not satisfy %s %v", claim.GetName(), r.Key, value, r.Operator, r.Values)
		}
	}
	return nil
}

// checkProfiles checks that no instance uses a profile that would be deleted.
func (c *Controller) checkProfiles(ctx context.Context, found *Findings, claims []object, instances map[string]ec2types.Instance) error {
	used := map[string]bool{}
	for i := range claims {
		used[claims[i].GetAnnotations()[profileName]] = true
	}
	classes, err := c.list(ctx, awsGroup, "EC2NodeClass")
	if err != nil {
		return err
	}
	for i := range classes {
		used[text(&classes[i], "status", "instanceProfile")] = true
		if f := classes[i].GetFinalizers(); len(f) != 1 || f[0] != classTermination {
			found.add("EC2NodeClass %s has finalizers %v, wanted %s", classes[i].GetName(), f, classTermination)
		}
	}
	prefix := c.profilePath()
	out, err := c.IAM.ListInstanceProfiles(ctx, &iam.ListInstanceProfilesInput{PathPrefix: &prefix})
	if err != nil {
		return fmt.Errorf("list instance profiles: %w", err)
	}
	for _, p := range out.InstanceProfiles {
		if used[aws.ToString(p.InstanceProfileName)] {
			continue
		}
		for id, i := range instances {
			if strings.HasSuffix(aws.ToString(i.IamInstanceProfile.Arn), "/"+aws.ToString(p.InstanceProfileName)) {
				found.add("instance profile %s would be deleted, and instance %s uses it", aws.ToString(p.InstanceProfileName), id)
			}
		}
	}
	return nil
}
