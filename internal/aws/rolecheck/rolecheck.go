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
	// Kinds are the kinds of resources on which an action is not allowed, such as subnet, by action. An action that is allowed on none of
	// the statement is not in it.
	Kinds map[string][]string
}

// Missing returns the statements of a policy that a role does not have, by the role's ARN. Each action is simulated once for each kind
// of resource in the statement, with the tags that the statement requires. An error means that nothing is known.
func Missing(ctx context.Context, api Simulator, roleARN string, wanted policy.Document) ([]Denied, error) {
	parsed, err := arn.Parse(roleARN)
	if err != nil || !strings.HasPrefix(parsed.Resource, "role/") {
		return nil, fmt.Errorf("%q is not the ARN of an IAM role, such as arn:aws:iam::111122223333:role/karpenter", roleARN)
	}
	region := regionOf(wanted)
	var out []Denied
	for _, statement := range wanted {
		allowed, denied := map[string][]string{}, map[string][]string{}
		for _, call := range calls(statement, parsed.AccountID, region) {
			call.PolicySourceArn = &roleARN
			answer, err := api.SimulatePrincipalPolicy(ctx, call)
			if err != nil {
				return nil, fmt.Errorf("simulate the policies of %s: %w", roleARN, awserrors.WithoutRequestIDs(err))
			}
			kind := policy.Any
			if len(call.ResourceArns) > 0 {
				kind = kindOf(call.ResourceArns[0])
			}
			for _, result := range answer.EvaluationResults {
				action := grant(statement, aws.ToString(result.EvalActionName)).Action
				if result.EvalDecision != types.PolicyEvaluationDecisionTypeAllowed {
					denied[action] = append(denied[action], kind)
				} else {
					allowed[action] = append(allowed[action], kind)
				}
			}
		}
		found := Denied{Sid: statement.Sid}
		for _, g := range statement.Grants {
			if len(denied[g.Action]) == 0 {
				continue
			}
			found.Grants = append(found.Grants, g)
			if len(allowed[g.Action]) > 0 {
				if found.Kinds == nil {
					found.Kinds = map[string][]string{}
				}
				found.Kinds[g.Action] = denied[g.Action]
			}
		}
		if len(found.Grants) > 0 {
			out = append(out, found)
		}
	}
	return out, nil
}

// kindOf is the kind of a resource with a name that stands for any: subnet. Of others it is kind and name: role/node.
func kindOf(resource string) string {
	parsed, err := arn.Parse(resource)
	if err != nil {
		return resource
	}
	kind, _, _ := strings.Cut(parsed.Resource, "/")
	if strings.Contains(parsed.Resource, anyName) {
		return kind
	}
	return parsed.Resource
}

// regionOf is the region of a policy; empty if it is for any.
func regionOf(p policy.Document) string {
	for _, s := range p {
		for _, r := range s.Resources {
			if parsed, err := arn.Parse(r); err == nil && parsed.Region != "" && parsed.Region != policy.Any {
				return parsed.Region
			}
		}
	}
	return ""
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
func calls(s policy.Statement, account, region string) (out []*iam.SimulatePrincipalPolicyInput) {
	entries := contextOf(s, region)
	byResource := map[string][]string{}
	for _, action := range s.Actions() {
		for _, r := range resources(s, action, account) {
			byResource[r] = append(byResource[r], action)
		}
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

// about is the kind of resource that an action is about, where a statement has also others for other actions. not are those that an
// action is not about.
var (
	about = map[string]string{
		"ec2:TerminateInstances": ":instance/", "ec2:CreateLaunchTemplate": ":launch-template/", "ec2:DeleteLaunchTemplate": ":launch-template/",
		"eks:ListAccessEntries": ":cluster/", "eks:DescribeAccessEntry": ":access-entry/",
	}
	not = map[string]string{"ec2:RunInstances": ":fleet/"}
)

// resources returns those of the statement that the action is about, with a name of their own where the statement allows any.
func resources(s policy.Statement, action, account string) (out []string) {
	for _, r := range s.Resources {
		parsed, err := arn.Parse(r)
		switch {
		case err != nil:
			return []string{policy.Any}
		case about[action] != "" && !strings.Contains(r, about[action]), not[action] != "" && strings.Contains(r, not[action]):
			continue
		}
		if parsed.AccountID == policy.Any {
			parsed.AccountID = account
		}
		parsed.Resource = strings.ReplaceAll(parsed.Resource, "*", anyName)
		out = append(out, parsed.String())
	}
	return out
}

// anyName stands for any name in resources and tags.
const anyName = "migrate-check"

// global are services with one endpoint for all regions.
var global = []string{"iam:", "pricing:"}

// contextOf are keys for which the conditions of a statement hold. A key that must be absent is left out. Others are those of each
// request, without which policies that deny all but some regions would deny it.
func contextOf(s policy.Statement, region string) (out []types.ContextEntry) {
	add := func(key string, kind types.ContextKeyTypeEnum, values ...string) {
		out = append(out, types.ContextEntry{ContextKeyName: &key, ContextKeyType: kind, ContextKeyValues: values})
	}
	known := map[string]bool{}
	for _, operator := range slices.Sorted(maps.Keys(s.Conditions)) {
		for _, key := range slices.Sorted(maps.Keys(s.Conditions[operator])) {
			values := slices.Clone(s.Conditions[operator][key])
			kind := types.ContextKeyTypeEnumString
			switch {
			case operator == "Null":
				continue
			case strings.HasPrefix(operator, "ForAllValues:"):
				kind = types.ContextKeyTypeEnumStringList
			default:
				values = values[:1]
			}
			for i := range values {
				values[i] = strings.ReplaceAll(values[i], policy.Any, anyName)
			}
			known[key] = true
			add(key, kind, values...)
		}
	}
	isGlobal := slices.ContainsFunc(global, func(prefix string) bool { return strings.HasPrefix(s.Grants[0].Action, prefix) })
	if region != "" && !known["aws:RequestedRegion"] && !isGlobal {
		add("aws:RequestedRegion", types.ContextKeyTypeEnumString, region)
	}
	add("aws:SecureTransport", types.ContextKeyTypeEnumBoolean, "true")
	return out
}
