// Package nodeclass resolves EC2NodeClasses: it finds the images, subnets, security groups, reservations and placement group that
// a class selects, creates its instance profile, and validates that nodes can be launched from it and join.
//
// It also owns what is created in AWS for a class and deleted with it.
package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/dryrun"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instanceprofile"
	"github.com/dovetail-k8s/dovetail/internal/aws/inventory"
	"github.com/dovetail-k8s/dovetail/internal/aws/joincheck"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/aws/reservation"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// When a node class is resolved again, by what is most likely to change next. The status controller takes the earliest.
const (
	// retryAfter is for what somebody may correct at any time, and for what changes without an edit of the class, such as subnets.
	retryAfter = time.Minute
	// imagesAfter and groupsAfter match how often new images are published and security groups edited: minutes do not matter.
	imagesAfter = 5 * time.Minute
	groupsAfter = 5 * time.Minute
	// validatedAfter is for what only an edit of the class changes, which itself triggers a resolution.
	validatedAfter = 10 * time.Minute
)

// Config describes what a Resolver is made of. All but Reservations and NodePools is needed.
type Config struct {
	EC2     *ec2.Client
	Cluster *ekscluster.Cluster
	Network *network.Finder
	Images  *image.Finder
	Groups  *placement.Finder
	// Reservations is nil while the feature gate ReservedCapacity is off.
	Reservations *reservation.Finder
	Profiles     *instanceprofile.Profiles
	Offerings    *offerings.Source
	Inventory    *inventory.Source
	Joins        *joincheck.Checker
	Launcher     *launch.Launcher
	DryRuns      *dryrun.Cache
	// NodePools are all of the cluster: they decide what is launched from a class. Nil has none.
	NodePools func(ctx context.Context) ([]karpv1.NodePool, error)
	// DisableDryRun skips the dry run of a launch.
	DisableDryRun bool
	// KubeletExpressions is the feature gate NodeClassCEL.
	KubeletExpressions bool
	// NVIDIADevices is the feature gate DRANVIDIAGPU.
	NVIDIADevices bool
	Now           func() time.Time
}

// Resolver resolves node classes. It is safe for concurrent use.
type Resolver struct{ cfg Config }

// NewResolver returns a Resolver. It makes no calls.
func NewResolver(cfg Config) *Resolver { return &Resolver{cfg: cfg} }

// ResolveNodeClass finds what the selectors of a class select, and validates that nodes can be launched. It creates the instance
// profile for a role. class is not changed.
func (r *Resolver) ResolveNodeClass(ctx context.Context, class *awsv1.EC2NodeClass) cloudprovider.Resolution {
	run := &resolution{Config: r.cfg, class: class, out: cloudprovider.Resolution{Status: *class.Status.DeepCopy(), Next: validatedAfter}}
	run.out.Status.Conditions = nil
	for _, step := range []func(context.Context){
		run.images, run.reservations, run.placementGroup, run.subnets, run.securityGroups, run.instanceProfile, run.validate, run.joining,
	} {
		step(ctx)
	}
	return run.out
}

// Select finds what the selectors of a class select. It only reads: it creates no instance profile, and makes no dry run of a launch,
// so the conditions for these are missing. class is not changed.
func (r *Resolver) Select(ctx context.Context, class *awsv1.EC2NodeClass) cloudprovider.Resolution {
	run := &resolution{Config: r.cfg, class: class, out: cloudprovider.Resolution{Status: *class.Status.DeepCopy(), Next: validatedAfter}}
	run.out.Status.Conditions = nil
	for _, step := range []func(context.Context){run.images, run.reservations, run.placementGroup, run.subnets, run.securityGroups} {
		step(ctx)
	}
	return run.out
}

// NodeClassHash is the hash of a class and the version of the way it is computed.
func (r *Resolver) NodeClassHash(class *awsv1.EC2NodeClass) (hash, version string, err error) {
	hash, err = Hash(class, r.cfg.Cluster.Bootstrap())
	return hash, awsv1.NodeClassHashVersion, err
}

// Hash covers the fields of a class that make nodes drift when they change.
func Hash(class *awsv1.EC2NodeClass, cluster bootstrap.Cluster) (string, error) {
	return class.Hash(awsv1.HashInput{AMIFamily: image.Family(class), ClusterCABundle: cluster.CABundle})
}

// resolution is one run of ResolveNodeClass. Every step runs, also after another has failed.
type resolution struct {
	Config

	class *awsv1.EC2NodeClass
	out   cloudprovider.Resolution
}

// key is the key under which answers about the class are cached.
func (r *resolution) key() string { return offerings.ClassKey(r.class) }

func (r *resolution) ready(condition string, again time.Duration) {
	r.set(cloudprovider.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition, Message: ""}, again)
}

// set adds a condition, and has the class resolved again after that time at the latest.
func (r *resolution) set(c cloudprovider.Condition, again time.Duration) {
	r.out.Conditions = append(r.out.Conditions, c)
	r.out.Next = min(r.out.Next, again)
}

func (r *resolution) failed(err error) {
	r.out.Err = errors.Join(r.out.Err, fmt.Errorf("node class %s: %w", r.class.Name, err))
}

// unread records that what a condition is about cannot be read. What was found before stays in use, if AWS fails and it was.
func (r *resolution) unread(condition, what string, err error) {
	if awserrors.IsRetryable(err) && r.found(condition) {
		r.out.Unread = append(r.out.Unread, what+" ("+awserrors.Brief(err)+")")
	}
	r.failed(err)
}

// found reports whether an earlier resolution has set a condition to true.
func (r *resolution) found(condition string) bool {
	for _, c := range r.class.Status.Conditions {
		if c.Type == condition {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

func (r *resolution) images(ctx context.Context) {
	version := r.Cluster.KubernetesVersion()
	found, err := r.Images.Images(ctx, r.key()+"-"+version, r.class.Spec.AMISelectorTerms, version)
	var unsupported *image.UnsupportedAliasError
	switch {
	case errors.As(err, &unsupported):
		r.out.Status.AMIs = nil
		r.set(
			cloudprovider.Condition{
				Type:    awsv1.ConditionAMIsReady,
				Status:  metav1.ConditionFalse,
				Reason:  "UnsupportedAlias",
				Message: err.Error(),
			},
			validatedAfter,
		)
		return
	case err != nil:
		r.unread(awsv1.ConditionAMIsReady, "images", err)
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
	if good := r.class.RolledBack(r.out.Status.AMIs); good != nil {
		r.rollBack(ctx, good)
	}
	if len(found) == 0 {
		r.set(
			cloudprovider.Condition{
				Type:    awsv1.ConditionAMIsReady,
				Status:  metav1.ConditionFalse,
				Reason:  "AMINotFound",
				Message: "amiSelectorTerms select no image",
			},
			retryAfter,
		)
		return
	}
	r.ready(awsv1.ConditionAMIsReady, imagesAfter)
}

// rollBack uses images that are known to be good in place of those that the class selects, if EC2 has all of them. While EC2 does not
// answer, the class uses what it has used.
func (r *resolution) rollBack(ctx context.Context, good []awsv1.AMI) {
	for _, id := range awsv1.ImageIDs(good) { // one by one: of equal hardware, a query returns only the newest image
		found, err := r.Images.Images(ctx, "known good "+id, []awsv1.AMISelectorTerm{{ID: id}}, r.Cluster.KubernetesVersion())
		if err != nil {
			r.out.Status.AMIs = r.class.DeepCopy().Status.AMIs
			r.failed(err)
			return
		}
		if len(found) == 0 {
			return
		}
	}
	r.out.Status.AMIs = good
}

// reservations are read every time, without a cache: what a class may use changes with the free instances of its reservations.
func (r *resolution) reservations(ctx context.Context) {
	if r.Reservations == nil {
		return
	}
	found, err := r.Reservations.Reservations(ctx, r.key(), r.class.Spec.CapacityReservationSelectorTerms)
	if err != nil {
		r.unread(awsv1.ConditionCapacityReservationsReady, "capacity reservations", err)
		return
	}
	r.out.Status.CapacityReservations = found
	again := validatedAfter
	if len(r.class.Spec.CapacityReservationSelectorTerms) > 0 {
		again = retryAfter
	}
	for _, f := range found {
		if f.EndTime != nil {
			again = min(again, max(time.Second, f.EndTime.Sub(r.Now())))
		}
	}
	r.ready(awsv1.ConditionCapacityReservationsReady, again)
}

func (r *resolution) subnets(ctx context.Context) {
	found, err := r.Network.Subnets(ctx, r.key(), r.class.Spec.SubnetSelectorTerms)
	if err != nil {
		r.unread(awsv1.ConditionSubnetsReady, "subnets", err)
		return
	}
	r.out.Status.Subnets = nil
	for _, s := range found {
		r.out.Status.Subnets = append(r.out.Status.Subnets, awsv1.Subnet{ID: s.ID, Zone: s.Zone, ZoneID: s.ZoneID})
	}
	if len(found) == 0 {
		r.set(
			cloudprovider.Condition{
				Type:    awsv1.ConditionSubnetsReady,
				Status:  metav1.ConditionFalse,
				Reason:  "SubnetsNotFound",
				Message: "SubnetSelector did not match any Subnets",
			},
			retryAfter,
		)
		return
	}
	r.ready(awsv1.ConditionSubnetsReady, retryAfter)
}

func (r *resolution) securityGroups(ctx context.Context) {
	found, err := r.Network.SecurityGroups(ctx, r.key(), r.class.Spec.SecurityGroupSelectorTerms)
	if err != nil {
		r.unread(awsv1.ConditionSecurityGroupsReady, "security groups", err)
		return
	}
	r.out.Status.SecurityGroups = nil
	for _, g := range found {
		r.out.Status.SecurityGroups = append(r.out.Status.SecurityGroups, awsv1.SecurityGroup{ID: g.ID, Name: g.Name})
	}
	if len(found) == 0 {
		r.set(
			cloudprovider.Condition{
				Type:    awsv1.ConditionSecurityGroupsReady,
				Status:  metav1.ConditionFalse,
				Reason:  "SecurityGroupsNotFound",
				Message: "SecurityGroupSelector did not match any SecurityGroups",
			},
			retryAfter,
		)
		return
	}
	r.ready(awsv1.ConditionSecurityGroupsReady, groupsAfter)
}

func (r *resolution) instanceProfile(ctx context.Context) {
	if own := r.class.Spec.InstanceProfile; own != "" {
		r.out.Status.InstanceProfile = own
		r.ready(awsv1.ConditionInstanceProfileReady, validatedAfter)
		return
	}
	name, err := r.Profiles.Ensure(ctx, instanceprofile.NodeClass{
		Name: r.class.Name, UID: string(r.class.UID), Role: r.class.Spec.Role, Tags: r.class.Spec.Tags, Current: r.class.Status.InstanceProfile,
	})
	var missing *instanceprofile.RoleNotFoundError
	switch {
	case errors.As(err, &missing):
		r.set(
			cloudprovider.Condition{
				Type:    awsv1.ConditionInstanceProfileReady,
				Status:  metav1.ConditionFalse,
				Reason:  "RoleNotFound",
				Message: fmt.Sprintf("IAM has no role %q; create it or correct spec.role", missing.Role),
			},
			retryAfter,
		)
	case awserrors.Is(err, awserrors.Unauthorized):
		r.set(
			cloudprovider.Condition{
				Type:    awsv1.ConditionInstanceProfileReady,
				Status:  metav1.ConditionUnknown,
				Reason:  "Unauthorized",
				Message: awserrors.WithoutRequestIDs(err).Error(),
			},
			retryAfter,
		)
		r.failed(err)
	case err != nil:
		r.unread(awsv1.ConditionInstanceProfileReady, "the instance profile", err)
	default:
		r.out.Status.InstanceProfile = name
		r.ready(awsv1.ConditionInstanceProfileReady, validatedAfter)
	}
}

// status is the status of a condition after the steps so far.
func (r *resolution) status(condition string) metav1.ConditionStatus {
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

// dependencies are the conditions that validation needs to be true.
var dependencies = []string{
	awsv1.ConditionAMIsReady, awsv1.ConditionInstanceProfileReady, awsv1.ConditionPlacementGroupReady, awsv1.ConditionSecurityGroupsReady,
	awsv1.ConditionSubnetsReady,
}

// validate checks an ordered list of rules; the first broken one decides.
func (r *resolution) validate(ctx context.Context) {
	condition := awsv1.ConditionValidationSucceeded
	refuse := func(reason, message string) {
		r.set(cloudprovider.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason, Message: message}, validatedAfter)
	}
	family := image.Family(r.class)
	if family == awsv1.AMIFamilyAL2023 && r.Cluster.Bootstrap().ServiceCIDR == "" {
		r.set(r.withoutServiceCIDR(), retryAfter)
		return
	}
	if problem := CheckKubelet(r.class, r.KubeletExpressions); problem.Reason != "" {
		refuse(problem.Reason, problem.Message)
		return
	}
	problem, note, err := r.checkExpressions(ctx, r.class)
	if err != nil {
		r.failed(err)
		return
	}
	if problem.Reason != "" {
		refuse(problem.Reason, problem.Message)
		return
	}
	if problem := CheckGPUSharing(r.class, r.NVIDIADevices); problem.Reason != "" {
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
			r.set(
				cloudprovider.Condition{
					Type:    condition,
					Status:  wanted,
					Reason:  "DependenciesNotReady",
					Message: "not ready: " + strings.Join(pending, ", "),
				},
				validatedAfter,
			)
			return
		}
	}
	if key := RestrictedTag(r.class.Spec.Tags); key != "" {
		refuse("TagValidationFailed", fmt.Sprintf("the tag %s is reserved: remove it from spec.tags", key))
		return
	}
	notes := slices.DeleteFunc([]string{ignoredFields(r.class), note}, func(s string) bool { return s == "" })
	r.dryRun(ctx, strings.Join(notes, "; "))
}

// withoutServiceCIDR is the condition of a class with nodes that need the service CIDR, while it is not known. While EKS does not answer it
// is Unknown: nothing is wrong with the class, and its NodeClaims wait.
func (r *resolution) withoutServiceCIDR() cloudprovider.Condition {
	out := cloudprovider.Condition{
		Type: awsv1.ConditionValidationSucceeded, Status: metav1.ConditionFalse, Reason: "ClusterCIDRResolutionFailed",
		Message: "the cluster's service CIDR is not known, and AL2023 needs it: allow eks:DescribeCluster",
	}
	if cause := r.Cluster.Undescribed(); cause != nil && !awserrors.Is(cause, awserrors.Unauthorized) {
		out.Status = metav1.ConditionUnknown
		out.Message = "waiting for the cluster's service CIDR, which AL2023 needs: " + awserrors.WithoutRequestIDs(cause).Error() +
			"; EKS is called again every 30 seconds at least"
	}
	return out
}

var clusterTag = regexp.MustCompile(`^kubernetes\.io/cluster/[0-9A-Za-z][A-Za-z0-9\-_]*$`)

// RestrictedTag returns the first tag key, by name, that users may not set, or "".
func RestrictedTag(tags map[string]string) string {
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
