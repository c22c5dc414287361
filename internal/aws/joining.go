package aws

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

// How soon a class is looked at again whose nodes cannot join, and one whose nodes can.
const (
	brokenAgain = 5 * time.Second
	joinsAgain  = 5 * time.Minute
)

// joining judges, from outside, whether the class's instances will become nodes. Only a certain fault counts
// against the class: what could not be checked is said, and keeps nothing from being launched.
func (r *resolver) joining(ctx context.Context) {
	if r.out.Status.InstanceProfile == "" {
		return // there is nothing to look at yet
	}
	const condition = awsv1.ConditionNodesCanJoin
	found := r.cloud.joins.NodeClass(ctx, r.joinKey(), r.cloud.joinClass(r.class, r.out.Status))
	first, any := cloudprovider.First(found)
	switch {
	case any && first.Certainty == cloudprovider.Certain:
		r.set(condition, metav1.ConditionFalse, first.Cause, first.Text(), brokenAgain)
	case any:
		r.set(condition, metav1.ConditionUnknown, first.Cause, "likely: "+first.Text(), joinsAgain)
	case len(unchecked(found)) > 0:
		var missed []string
		for _, f := range unchecked(found) {
			missed = append(missed, f.Message)
		}
		r.set(condition, metav1.ConditionUnknown, unchecked(found)[0].Cause, strings.Join(missed, "; "), joinsAgain)
	case len(found) > 0: // nodes join, and do not work as they should
		r.set(condition, metav1.ConditionTrue, found[0].Cause, found[0].Text(), joinsAgain)
	default:
		r.ready(condition, joinsAgain)
	}
}

// unchecked are the findings about what could not be read.
func unchecked(found []cloudprovider.Finding) []cloudprovider.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f cloudprovider.Finding) bool { return f.Certainty != cloudprovider.Unchecked })
}

// joinKey changes with everything that the answer depends on and that the controller itself decides.
func (r *resolver) joinKey() string {
	parts := []string{r.key(), r.out.Status.InstanceProfile, r.cloud.KubernetesVersion()}
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

func (c *Cloud) joinClass(class *awsv1.EC2NodeClass, status awsv1.EC2NodeClassStatus) joincheck.Class {
	return joincheck.Class{EC2NodeClass: class, Family: image.Family(class), Status: status}
}

// ExplainJoin says why the instance of a claim has not become a node, by all that can be looked at.
func (c *Cloud) ExplainJoin(ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) ([]cloudprovider.Finding, error) {
	id, err := instance.ParseProviderID(claim.Status.ProviderID)
	if err != nil {
		return nil, err
	}
	return c.joins.Instance(ctx, id, c.joinClass(class, class.Status)), nil
}

// CheckNodeClass looks, now, for what keeps the instances of a class from joining.
func (c *Cloud) CheckNodeClass(ctx context.Context, class *awsv1.EC2NodeClass) []cloudprovider.Finding {
	return c.joins.Look(ctx, c.joinClass(class, class.Status))
}

// JoinScopes are what the instances of a class have in common with others: a fault found in one of them is a fault
// of the class.
func (c *Cloud) JoinScopes(class *awsv1.EC2NodeClass) []string { return c.joins.Scopes(class) }

// RecheckJoins makes the next resolution of every class look again for what keeps its instances from joining.
func (c *Cloud) RecheckJoins() { c.joins.ForgetAll() }
