package nodeclass

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/joincheck"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// When joining is checked again. A fault holds back every launch from the class, so that its repair has to be noticed at once;
// where nodes can join, a check only finds what somebody breaks later.
const (
	faultyAfter = 5 * time.Second
	joinsAfter  = 5 * time.Minute
)

// joining checks, from the configuration alone, whether the class's instances can become nodes. Only a certain fault counts
// against the class: what could not be checked is reported, and does not prevent launches.
func (r *resolution) joining(ctx context.Context) {
	if r.out.Status.InstanceProfile == "" {
		return // there is nothing to check yet
	}
	const condition = awsv1.ConditionNodesCanJoin
	found := r.Joins.CheckNodeClass(ctx, r.joinKey(), joinClass(r.class, r.out.Status))
	first, faulty := cloudprovider.First(found)
	switch {
	case faulty && first.Certainty == cloudprovider.Certain:
		r.set(
			cloudprovider.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: first.Cause, Message: first.Text()},
			faultyAfter,
		)
	case faulty:
		r.set(
			cloudprovider.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: first.Cause, Message: "likely: " + first.Text()},
			joinsAfter,
		)
	case len(unchecked(found)) > 0:
		var messages []string
		for _, f := range unchecked(found) {
			messages = append(messages, f.Message)
		}
		r.set(
			cloudprovider.Condition{
				Type:    condition,
				Status:  metav1.ConditionUnknown,
				Reason:  unchecked(found)[0].Cause,
				Message: strings.Join(messages, "; "),
			},
			joinsAfter,
		)
	case len(found) > 0: // nodes join, but do not work as they should
		r.set(
			cloudprovider.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: found[0].Cause, Message: found[0].Text()},
			joinsAfter,
		)
	default:
		r.ready(condition, joinsAfter)
	}
}

// unchecked are the findings on what could not be read.
func unchecked(found []cloudprovider.Finding) []cloudprovider.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f cloudprovider.Finding) bool { return f.Certainty != cloudprovider.Unchecked })
}

// joinKey changes with everything that the result depends on and that the controller itself decides.
func (r *resolution) joinKey() string {
	parts := []string{r.key(), r.out.Status.InstanceProfile, r.Cluster.KubernetesVersion()}
	for _, s := range r.out.Status.Subnets {
		parts = append(parts, s.ID)
	}
	for _, g := range r.out.Status.SecurityGroups {
		parts = append(parts, g.ID)
	}
	for _, i := range r.out.Status.AMIs {
		parts = append(parts, i.ID)
	}
	return strings.Join(parts, " ")
}

func joinClass(class *awsv1.EC2NodeClass, status awsv1.EC2NodeClassStatus) joincheck.Class {
	return joincheck.Class{EC2NodeClass: class, Family: image.Family(class), Status: status}
}

// JoinChecks finds what keeps instances from joining the cluster. It is safe for concurrent use.
type JoinChecks struct{ checker *joincheck.Checker }

// NewJoinChecks returns the checks of a checker.
func NewJoinChecks(checker *joincheck.Checker) *JoinChecks { return &JoinChecks{checker: checker} }

// ExplainJoin finds out why the instance of a claim has not become a node, from everything that can be read.
func (j *JoinChecks) ExplainJoin(
	ctx context.Context,
	claim *karpv1.NodeClaim,
	class *awsv1.EC2NodeClass,
) ([]cloudprovider.Finding, error) {
	id, err := instance.ParseProviderID(claim.Status.ProviderID)
	if err != nil {
		return nil, err
	}
	return j.checker.CheckInstance(ctx, id, joinClass(class, class.Status)), nil
}

// CheckNodeClass finds, without a cache, what keeps the instances of a class from joining.
func (j *JoinChecks) CheckNodeClass(ctx context.Context, class *awsv1.EC2NodeClass) []cloudprovider.Finding {
	return j.checker.CheckNow(ctx, joinClass(class, class.Status))
}

// JoinScopes returns what the instances of a class have in common with those of other classes, such as their role: a fault in one of
// them is a fault of all these classes.
func (j *JoinChecks) JoinScopes(class *awsv1.EC2NodeClass) []string { return j.checker.Scopes(class) }

// RecheckJoins makes the next resolution of every class check joining again.
func (j *JoinChecks) RecheckJoins() { j.checker.InvalidateAll() }
