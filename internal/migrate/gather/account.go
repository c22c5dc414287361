package gather

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws/arn"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
	"github.com/dovetail-k8s/dovetail/internal/aws/rolecheck"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	doctorgather "github.com/dovetail-k8s/dovetail/internal/doctor/gather"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/migrate"
)

// Cloud reads from AWS.
type Cloud interface {
	Select(ctx context.Context, class *awsv1.EC2NodeClass) cloudprovider.Resolution
	Drift(ctx context.Context, class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim) (reason string, err error)
	InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
}

// Sources states where the facts of the account come from.
type Sources struct {
	// Doctor states where the facts come from that the doctor has, too.
	Doctor doctorgather.Sources
	// Cloud is nil where AWS cannot be called; Doctor.NoCloud is why.
	Cloud Cloud
	// Simulator is IAM's policy simulator, PodIdentity has the roles of ServiceAccounts; nil where AWS cannot be called.
	Simulator   rolecheck.Simulator
	PodIdentity rolecheck.PodIdentity
	Region      string
}

// Account reads the rest of the facts: what the doctor reads, and what AWS has.
func Account(ctx context.Context, f *migrate.Facts, s Sources) {
	missed := f.Cluster.Missed
	f.Cluster = doctorgather.Facts(ctx, s.Doctor)
	for fact, why := range missed {
		f.Cluster.Miss(fact, why)
	}
	f.Region = s.Region
	if s.Cloud == nil {
		for _, fact := range []doctor.Fact{migrate.Role, migrate.Selected, migrate.Drift} {
			f.Cluster.Miss(fact, s.Doctor.NoCloud)
		}
		return
	}
	f.Selections = map[string]migrate.Selection{}
	for i := range f.Cluster.NodeClasses {
		class := &f.Cluster.NodeClasses[i]
		found := s.Cloud.Select(ctx, class)
		if found.Err != nil {
			f.Cluster.Miss(migrate.Selected, found.Err.Error())
		}
		selected := class.DeepCopy()
		selected.Status = found.Status
		selected.Status.Conditions = class.Status.Conditions
		f.Selections[class.Name] = migrate.Selection{Class: selected, Conditions: found.Conditions}
	}
	readDrift(ctx, f, s.Cloud)
	readRole(ctx, f, s.PodIdentity)
	if f.RoleARN != "" { // else the reason is recorded
		readRights(ctx, f, s.Simulator)
	}
}

// readRole finds the role by the pod identity association of the ServiceAccount, if nobody has named one. EKS prefers it to the annotation.
func readRole(ctx context.Context, f *migrate.Facts, api rolecheck.PodIdentity) {
	k := f.Karpenter()
	if f.RoleGiven || k == nil {
		return
	}
	account := rolecheck.ServiceAccount{Cluster: f.Cluster.ClusterName, Namespace: k.Namespace, Name: k.ServiceAccount}
	role, err := rolecheck.RoleOf(ctx, api, account)
	switch {
	case err != nil && f.RoleARN == "":
		f.Cluster.Miss(migrate.Role, f.Cluster.Missed[migrate.Role]+"; "+err.Error())
	case role != "":
		f.RoleARN = role
		f.RoleByPodIdentity = true
		delete(f.Cluster.Missed, migrate.Role)
	}
}

// readRights simulates the policies of the controller's role.
func readRights(ctx context.Context, f *migrate.Facts, api rolecheck.Simulator) {
	if parsed, err := arn.Parse(f.RoleARN); err == nil {
		f.Account = parsed.AccountID
	}
	wanted, err := policy.New(f.PolicyParams())
	if err == nil {
		f.Denied, err = rolecheck.Missing(ctx, api, f.RoleARN, wanted)
	}
	if err != nil {
		f.Cluster.Miss(migrate.Role, err.Error())
	}
}

// readDrift compares the instance of each launched claim with its node class, as Dovetail would select for it.
func readDrift(ctx context.Context, f *migrate.Facts, cloud Cloud) {
	f.Drift = map[string]string{}
	types := map[string][]*catalog.InstanceType{}
	labels := requirement.Labels{Vocabulary: awsv1.Vocabulary()}
	reservation := []string{awsv1.LabelReservationID, awsv1.LabelReservationType, awsv1.LabelReservationInterruptible}
	var failed []string
	for i := range f.Cluster.NodeClaims {
		claim := &f.Cluster.NodeClaims[i]
		class := f.Selections[claim.Spec.NodeClassRef.Name].Class
		if class == nil || claim.DeletionTimestamp != nil || !condition.IsTrue(claim, karpv1.ConditionLaunched) ||
			!awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) {
			continue
		}
		if _, read := types[class.Name]; !read {
			var err error
			if broken := f.Selections[class.Name].Broken(); broken != "" {
				err = fmt.Errorf("EC2NodeClass %s: %s", class.Name, broken)
			} else {
				types[class.Name], err = cloud.InstanceTypes(ctx, class)
			}
			if err != nil {
				types[class.Name], failed = nil, append(failed, err.Error())
			}
		}
		if types[class.Name] == nil {
			continue // what the class would launch is not known
		}
		if !disrupt.StillOffered(claim, types[class.Name], labels, reservation...) {
			f.Drift[claim.Name] = disrupt.InstanceTypeNotFound
			continue
		}
		reason, err := cloud.Drift(ctx, class, claim)
		switch {
		case errors.Is(err, cloudprovider.ErrNotFound): // its instance is gone, which another check reports
		case err != nil:
			failed = append(failed, err.Error())
		case reason != "":
			f.Drift[claim.Name] = reason
		}
	}
	if len(failed) > 0 {
		f.Cluster.Miss(migrate.Drift, few(failed))
	}
}
