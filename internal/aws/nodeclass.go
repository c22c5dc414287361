package aws

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instanceprofile"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// How soon a node class is looked at again.
const (
	soon           = time.Minute
	imagesAgain    = 5 * time.Minute
	groupsAgain    = 5 * time.Minute
	validatedAgain = 10 * time.Minute
)

// ResolveNodeClass finds what the selectors of a class select, and judges whether nodes can be launched.
// It makes the instance profile for a role. class is not changed.
func (c *Cloud) ResolveNodeClass(ctx context.Context, class *awsv1.EC2NodeClass) cloudprovider.Resolution {
	r := &resolver{cloud: c, class: class, out: cloudprovider.Resolution{Status: *class.Status.DeepCopy(), Next: validatedAgain}}
	r.out.Status.Conditions = nil
	for _, step := range []func(context.Context){r.images, r.reservations, r.placementGroup, r.subnets, r.securityGroups, r.instanceProfile, r.validate, r.joining} {
		step(ctx)
	}
	return r.out
}

// resolver is one run of ResolveNodeClass. Each step runs whatever became of those before.
type resolver struct {
	cloud *Cloud
	class *awsv1.EC2NodeClass
	out   cloudprovider.Resolution
}

// key is under which answers about a class are kept: an edit asks anew.
func (r *resolver) key() string { return classKey(r.class) }

func classKey(class *awsv1.EC2NodeClass) string {
	return fmt.Sprintf("%s-%d", class.UID, class.Generation)
}

func (r *resolver) ready(condition string, again time.Duration) {
	r.set(condition, metav1.ConditionTrue, condition, "", again)
}

func (r *resolver) set(condition string, status metav1.ConditionStatus, reason, message string, again time.Duration) {
	r.out.Conditions = append(r.out.Conditions, cloudprovider.Condition{Type: condition, Status: status, Reason: reason, Message: message})
	r.out.Next = min(r.out.Next, again)
}

func (r *resolver) failed(err error) {
	r.out.Err = errors.Join(r.out.Err, fmt.Errorf("node class %s: %w", r.class.Name, err))
}

func (r *resolver) images(ctx context.Context) {
	version := r.cloud.KubernetesVersion()
	found, err := r.cloud.images.Images(ctx, r.key()+"-"+version, r.class.Spec.AMISelectorTerms, version)
	var unsupported *image.UnsupportedAliasError
	switch {
	case errors.As(err, &unsupported):
		r.out.Status.AMIs = nil
		r.set(awsv1.ConditionAMIsReady, metav1.ConditionFalse, "UnsupportedAlias", err.Error(), validatedAgain)
		return
	case err != nil:
		r.failed(err)
		return
	}
	r.out.Status.AMIs = nil
	for _, i := range found {
		ami := awsv1.AMI{ID: i.ID, Name: i.Name, Deprecated: i.Deprecated}
		for _, q := range i.Requirements {
			ami.Requirements = append(ami.Requirements, awsv1.AMIRequirement{Key: q.Key, Operator: string(q.Operator), Values: q.Values})
		}
		r.out.Status.AMIs = append(r.out.Status.AMIs, ami)
	}
	if len(found) == 0 {
		r.set(awsv1.ConditionAMIsReady, metav1.ConditionFalse, "AMINotFound", "amiSelectorTerms select no image", soon)
		return
	}
	r.ready(awsv1.ConditionAMIsReady, imagesAgain)
}

// reservations are found anew each time, so that their counts are: what a class may use changes with them.
func (r *resolver) reservations(ctx context.Context) {
	if r.cloud.reservations == nil {
		return
	}
	found, err := r.cloud.reservations.Reservations(ctx, r.key(), r.class.Spec.CapacityReservationSelectorTerms)
	if err != nil {
		r.failed(err)
		return
	}
	r.out.Status.CapacityReservations = found
	again := validatedAgain
	if len(r.class.Spec.CapacityReservationSelectorTerms) > 0 {
		again = soon
	}
	for _, f := range found {
		if f.EndTime != nil {
			again = min(again, max(time.Second, f.EndTime.Sub(r.cloud.cfg.Now())))
		}
	}
	r.ready(awsv1.ConditionCapacityReservationsReady, again)
}

func (r *resolver) subnets(ctx context.Context) {
	found, err := r.cloud.network.Subnets(ctx, r.key(), r.class.Spec.SubnetSelectorTerms)
	if err != nil {
		r.failed(err)
		return
	}
	r.out.Status.Subnets = nil
	for _, s := range found {
		r.out.Status.Subnets = append(r.out.Status.Subnets, awsv1.Subnet{ID: s.ID, Zone: s.Zone, ZoneID: s.ZoneID})
	}
	if len(found) == 0 {
		r.set(awsv1.ConditionSubnetsReady, metav1.ConditionFalse, "SubnetsNotFound", "SubnetSelector did not match any Subnets", soon)
		return
	}
	r.ready(awsv1.ConditionSubnetsReady, soon)
}

func (r *resolver) securityGroups(ctx context.Context) {
	found, err := r.cloud.network.SecurityGroups(ctx, r.key(), r.class.Spec.SecurityGroupSelectorTerms)
	if err != nil {
		r.failed(err)
		return
	}
	r.out.Status.SecurityGroups = nil
	for _, g := range found {
		r.out.Status.SecurityGroups = append(r.out.Status.SecurityGroups, awsv1.SecurityGroup{ID: g.ID, Name: g.Name})
	}
	if len(found) == 0 {
		r.set(awsv1.ConditionSecurityGroupsReady, metav1.ConditionFalse, "SecurityGroupsNotFound",
			"SecurityGroupSelector did not match any SecurityGroups", soon)
		return
	}
	r.ready(awsv1.ConditionSecurityGroupsReady, groupsAgain)
}

func (r *resolver) instanceProfile(ctx context.Context) {
	if own := r.class.Spec.InstanceProfile; own != "" {
		r.out.Status.InstanceProfile = own
		r.ready(awsv1.ConditionInstanceProfileReady, validatedAgain)
		return
	}
	name, err := r.cloud.profiles.Ensure(ctx, instanceprofile.NodeClass{
		Name: r.class.Name, UID: string(r.class.UID), Role: r.class.Spec.Role, Tags: r.class.Spec.Tags, Current: r.class.Status.InstanceProfile,
	})
	var missing *instanceprofile.RoleNotFoundError
	switch {
	case errors.As(err, &missing):
		r.set(awsv1.ConditionInstanceProfileReady, metav1.ConditionFalse, "RoleNotFound",
			fmt.Sprintf("IAM has no role %q; create it or correct spec.role", missing.Role), soon)
	case awserrors.Is(err, awserrors.Unauthorized):
		r.set(awsv1.ConditionInstanceProfileReady, metav1.ConditionUnknown, "Unauthorized", awserrors.Plain(err).Error(), soon)
		r.failed(err)
	case err != nil:
		r.failed(err)
	default:
		r.out.Status.InstanceProfile = name
		r.ready(awsv1.ConditionInstanceProfileReady, validatedAgain)
	}
}

// status is that of a condition once the steps so far are written down.
func (r *resolver) status(condition string) metav1.ConditionStatus {
	for _, c := range r.out.Conditions {
		if c.Type == condition {
			return c.Status
		}
	}
	for _, c := range r.class.Status.Conditions {
		if c.Type == condition {
			return c.Status
		}
	}
	return metav1.ConditionUnknown
}

// dependencies are the conditions without which validation is pointless.
var dependencies = []string{
	awsv1.ConditionAMIsReady, awsv1.ConditionInstanceProfileReady, awsv1.ConditionPlacementGroupReady, awsv1.ConditionSecurityGroupsReady,
	awsv1.ConditionSubnetsReady,
}

// validate is an ordered list of rules; the first that is broken decides.
func (r *resolver) validate(ctx context.Context) {
	condition := awsv1.ConditionValidationSucceeded
	refuse := func(reason, message string) {
		r.set(condition, metav1.ConditionFalse, reason, message, validatedAgain)
	}
	family := image.Family(r.class)
	if family == awsv1.AMIFamilyAL2023 && r.cloud.Cluster().ServiceCIDR == "" {
		r.set(condition, metav1.ConditionFalse, "ClusterCIDRResolutionFailed", "the cluster's service CIDR is not known; AL2023 needs it", soon)
		return
	}
	if problem := CheckKubelet(r.class, r.cloud.cfg.KubeletExpressions); problem.Reason != "" {
		refuse(problem.Reason, problem.Message)
		return
	}
	problem, remark, err := r.cloud.checkExpressions(ctx, r.class)
	if err != nil {
		r.failed(err)
		return
	}
	if problem.Reason != "" {
		refuse(problem.Reason, problem.Message)
		return
	}
	for _, wanted := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown} {
		var pending []string
		for _, d := range dependencies {
			if r.status(d) == wanted {
				pending = append(pending, d)
			}
		}
		if len(pending) > 0 {
			r.set(condition, wanted, "DependenciesNotReady", "not ready: "+strings.Join(pending, ", "), validatedAgain)
			return
		}
	}
	if key := restrictedTag(r.class.Spec.Tags); key != "" {
		refuse("TagValidationFailed", fmt.Sprintf("the tag %s is not the user's to set", key))
		return
	}
	remarks := slices.DeleteFunc([]string{ignoredFields(r.class), remark}, func(s string) bool { return s == "" })
	r.rehearse(ctx, strings.Join(remarks, "; "))
}

var clusterTag = regexp.MustCompile(`^kubernetes\.io/cluster/[0-9A-Za-z][A-Za-z0-9\-_]*$`)

// restrictedTag returns the first key that users may not set, or "".
func restrictedTag(tags map[string]string) string {
	var found []string
	for key := range tags {
		switch {
		case clusterTag.MatchString(key), strings.HasPrefix(key, "dovetail.sh/"),
			key == awsv1.TagNodePool, key == awsv1.TagClusterName, key == awsv1.TagNodeClass, key == awsv1.TagNodeClaim:
			found = append(found, key)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}
