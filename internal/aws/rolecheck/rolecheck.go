// Package rolecheck finds out which permissions of the controller's policy a role lacks, by IAM's policy simulator. It changes
// nothing, and needs the permission iam:SimulatePrincipalPolicy.
package rolecheck

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
)

// Simulator is IAM's policy simulator.
type Simulator interface {
	SimulatePrincipalPolicy(
		ctx context.Context, in *iam.SimulatePrincipalPolicyInput, opts ...func(*iam.Options),
	) (*iam.SimulatePrincipalPolicyOutput, error)
}

// Denied is a statement of the policy of which the role may not do everything.
type Denied struct {
	// Sid is the ID of the statement.
	Sid string
	// Grants are the actions that are not allowed.
	Grants []policy.Grant
}

// Missing returns the statements of a policy that a role does not have, by the role's ARN. Each action is simulated once per
// statement, for one resource of the kind that it is about and with the tags that the statement requires. An error means that
// nothing is known.
func Missing(ctx context.Context, api Simulator, roleARN string, wanted policy.Document) ([]Denied, error) {
	parsed, err := arn.Parse(roleARN)
	if err != nil || !strings.HasPrefix(parsed.Resource, "role/") {
		return nil, fmt.Errorf("%q is not the ARN of an IAM role, such as arn:aws:iam::111122223333:role/karpenter", roleARN)
	}
	var out []Denied
	for _, statement := range wanted {
		denied := Denied{Sid: statement.Sid}
		for _, call := range calls(statement, parsed.AccountID) {
			call.PolicySourceArn = &roleARN
			answer, err := api.SimulatePrincipalPolicy(ctx, call)
			if err != nil {
				return nil, fmt.Errorf("simulate the policies of %s: %w", roleARN, awserrors.WithoutRequestIDs(err))
			}
			for _, result := range answer.EvaluationResults {
				if result.EvalDecision != types.PolicyEvaluationDecisionTypeAllowed {
					denied.Grants = append(denied.Grants, grant(statement, aws.ToString(result.EvalActionName)))
				}
			}
		}
		if len(denied.Grants) > 0 {
			out = append(out, denied)
		}
	}
	return out, nil
}

// grant returns the one of an action, which IAM may spell otherwise.
func grant(s policy.Statement, action string) policy.Grant {
	i := slices.IndexFunc(s.Grants, func(g policy.Grant) bool { return strings.EqualFold(g.Action, action) })
	if i < 0 {
		return policy.Grant{Action: action}
	}
	return s.Grants[i]
}

// calls are the simulations of a statement, one for each resource.
func calls(s policy.Statement, account string) (out []*iam.SimulatePrincipalPolicyInput) {
	entries := contextOf(s.Conditions)
	byResource := map[string][]string{}
	for _, action := range s.Actions() {
		r := resource(s, action, account)
		byResource[r] = append(byResource[r], action)
	}
	for _, r := range slices.Sorted(maps.Keys(byResource)) {
		in := &iam.SimulatePrincipalPolicyInput{ActionNames: byResource[r], ContextEntries: entries}
		if r != policy.Any {
			in.ResourceArns = []string{r}
		}
		out = append(out, in)
	}
	return out
}

// about is the kind of resource that an action is about, where a statement has several.
var about = map[string]string{
	"ec2:CreateFleet": ":fleet/", "ec2:RunInstances": ":instance/", "ec2:CreateTags": ":instance/", "ec2:TerminateInstances": ":instance/",
	"ec2:CreateLaunchTemplate": ":launch-template/", "ec2:DeleteLaunchTemplate": ":launch-template/",
	"eks:ListAccessEntries": ":cluster/", "eks:DescribeAccessEntry": ":access-entry/",
}

// resource is one that the statement names, with a name of its own where the statement allows any.
func resource(s policy.Statement, action, account string) string {
	i := max(0, slices.IndexFunc(s.Resources, func(r string) bool { return about[action] != "" && strings.Contains(r, about[action]) }))
	parsed, err := arn.Parse(s.Resources[i])
	if err != nil {
		return policy.Any
	}
	if parsed.AccountID == policy.Any {
		parsed.AccountID = account
	}
	parsed.Resource = strings.ReplaceAll(parsed.Resource, "*", anyName)
	return parsed.String()
}

// anyName stands for any name in resources and tags.
const anyName = "migrate-check"

// contextOf are keys for which the conditions hold. A key that must be absent is left out.
func contextOf(conditions policy.Conditions) (out []types.ContextEntry) {
	for _, operator := range slices.Sorted(maps.Keys(conditions)) {
		for _, key := range slices.Sorted(maps.Keys(conditions[operator])) {
			values := slices.Clone(conditions[operator][key])
			entry := types.ContextEntry{ContextKeyName: &key, ContextKeyType: types.ContextKeyTypeEnumString}
			switch {
			case operator == "Null":
				continue
			case strings.HasPrefix(operator, "ForAllValues:"):
				entry.ContextKeyType = types.ContextKeyTypeEnumStringList
			default:
				values = values[:1]
			}
			for i := range values {
				values[i] = strings.ReplaceAll(values[i], policy.Any, anyName)
			}
			entry.ContextKeyValues = values
			out = append(out, entry)
		}
	}
	return out
}
