package nodeclass

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/dryrun"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// profileAfter is the time when a class is resolved again while EC2 does not know its new instance profile yet. IAM needs seconds to
// propagate a profile, and nothing can be launched before.
const profileAfter = 5 * time.Second

// dryRun validates with EC2 whether instances of the class may be launched. All that they are made of has been found before. note
// is the message of the condition if the class is valid.
func (r *resolution) dryRun(ctx context.Context, note string) {
	const condition = awsv1.ConditionValidationSucceeded
	if r.DisableDryRun {
		r.set(cloudprovider.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition, Message: note}, validatedAfter)
		return
	}
	pools, err := r.pools(ctx)
	if err != nil {
		r.failed(fmt.Errorf("read the node pools: %w", err))
		return
	}
	uid, input := string(r.class.UID), r.dryRunInput(pools)
	verdict, left, known := r.DryRuns.Get(uid, input)
	if !known {
		verdict, err = dryrun.Validate(ctx, r.EC2, dryrun.Validation{
			Prepare:            func(ctx context.Context) (dryrun.Requests, error) { return r.prepare(ctx, pools) },
			UserManagedProfile: r.class.Spec.InstanceProfile != "",
		})
		if err != nil {
			r.noVerdict(err)
			return
		}
		left = r.DryRuns.Put(uid, input, verdict)
	}
	if verdict.Reason != "" {
		r.set(cloudprovider.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: verdict.Reason, Message: verdict.Message}, left)
		return
	}
	r.set(
		cloudprovider.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: condition, Message: note},
		min(left, validatedAfter),
	)
}

// undecided reports whether a condition of this generation of the class is unknown.
func (r *resolution) undecided(condition string) bool {
	for _, c := range r.class.Status.Conditions {
		if c.Type == condition {
			return c.Status == metav1.ConditionUnknown || c.ObservedGeneration != r.class.Generation
		}
	}
	return true
}

// noVerdict leaves the condition as it is. If it is unknown so far, its message is the error.
func (r *resolution) noVerdict(err error) {
	const condition = awsv1.ConditionValidationSucceeded
	message := awserrors.WithoutRequestIDs(err).Error()
	switch unknown := r.undecided(condition); {
	case errors.Is(err, dryrun.ErrProfileNotSeen):
		r.out.Next = min(r.out.Next, profileAfter)
		if unknown {
			r.set(
				cloudprovider.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: "InstanceProfileNotVisible", Message: message},
				profileAfter,
			)
		}
	case unknown && !awserrors.IsRetryable(err):
		r.set(cloudprovider.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: "DryRunFailed", Message: message}, retryAfter)
		r.failed(err)
	default:
		r.failed(err)
	}
}

// pool describes what a dry run depends on in a NodePool.
type pool struct {
	name         string
	requirements requirement.Set
}

// pools are the NodePools that launch from the class. A pool with requirements that cannot be read launches nothing.
func (r *resolution) pools(ctx context.Context) ([]pool, error) {
	if r.NodePools == nil {
		return nil, nil
	}
	all, err := r.NodePools(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b karpv1.NodePool) int { return strings.Compare(a.Name, b.Name) })
	labels := requirement.Labels{Vocabulary: awsv1.Vocabulary()}
	var out []pool
	for i := range all {
		ref := all[i].Spec.Template.Spec.NodeClassRef
		if !awsv1.IsEC2NodeClass(ref) || ref.Name != r.class.Name || all[i].DeletionTimestamp != nil {
			continue
		}
		if reqs, err := labels.FromPool(&all[i], [2]string{}); err == nil {
			out = append(out, pool{all[i].Name, reqs})
		}
	}
	return out, nil
}

func requirementsOf(pools []pool) []requirement.Set {
	out := make([]requirement.Set, len(pools))
	for i, p := range pools {
		out[i] = p.requirements
	}
	return out
}

// prepare chooses an instance type to launch, and composes the calls.
func (r *resolution) prepare(ctx context.Context, pools []pool) (dryrun.Requests, error) {
	class := r.class.DeepCopy()
	class.Status = r.out.Status
	types, err := r.Offerings.InstanceTypes(ctx, class)
	if err != nil {
		return dryrun.Requests{}, err
	}
	wanted := requirementsOf(pools)
	if strings.HasPrefix(image.Family(class), "Windows") {
		wanted = nil // many types that a pool allows do not run Windows, and EC2 does not report which
	}
	chosen, ok := dryrun.ChooseInstanceType(types, wanted, func(t *catalog.InstanceType) bool { return bootsStandardImage(class, t) })
	if !ok {
		return dryrun.Requests{}, errors.New("no instance type is available for a dry run")
	}
	kubelets, err := r.Inventory.Kubelets(ctx, class)
	if err != nil {
		return dryrun.Requests{}, err
	}
	group, err := r.Groups.ForLaunch(ctx, class)
	if err != nil {
		return dryrun.Requests{}, err
	}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{karpv1.LabelNodePool: ""}}}
	if len(pools) > 0 {
		claim.Labels[karpv1.LabelNodePool] = pools[0].name
	}
	return r.Launcher.DryRunRequests(
		ctx,
		launch.Request{Claim: claim, Class: class, Group: group, Kubelet: kubelets},
		chosen,
		dryrun.Tenancy(requirementsOf(pools)),
	)
}

// bootsStandardImage reports whether the image of a type is one for instances without accelerators.
func bootsStandardImage(class *awsv1.EC2NodeClass, t *catalog.InstanceType) bool {
	id, err := launch.ImageFor(class, t)
	if err != nil || id == "" {
		return false
	}
	for _, ami := range class.Status.AMIs {
		if ami.ID != id {
			continue
		}
		return !slices.ContainsFunc(ami.Requirements, func(q awsv1.AMIRequirement) bool {
			return (q.Key == awsv1.LabelInstanceGPUCount || q.Key == awsv1.LabelInstanceAcceleratorCount) && q.Operator == "Exists"
		})
	}
	return false
}

// dryRunInput is a hash of everything that a verdict depends on. Metadata of the class, and the order in which EC2 lists resources,
// are not part of it.
func (r *resolution) dryRunInput(pools []pool) string {
	var ids []string
	for _, s := range r.out.Status.Subnets {
		ids = append(ids, s.ID)
	}
	for _, g := range r.out.Status.SecurityGroups {
		ids = append(ids, g.ID)
	}
	for _, a := range r.out.Status.AMIs {
		ids = append(ids, a.ID)
	}
	slices.Sort(ids)
	text, err := json.Marshal(struct {
		Spec             awsv1.EC2NodeClassSpec
		IDs              []string
		Profile, Tenancy string
		Cluster          bootstrap.Cluster
	}{r.class.Spec, ids, r.out.Status.InstanceProfile, dryrun.Tenancy(requirementsOf(pools)), r.Cluster.Bootstrap()})
	if err != nil {
		return "" // never: all of it was decoded from JSON
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}
