package iam

import (
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	"github.com/dovetail-k8s/dovetail/lab/awsim/policy"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type simulateInput struct {
	PolicySourceArn string         `query:"PolicySourceArn,required"`
	ActionNames     []string       `query:"ActionNames,required"`
	ResourceArns    []string       `query:"ResourceArns"`
	ContextEntries  []contextEntry `query:"ContextEntries"`
}

type contextEntry struct {
	ContextKeyName   string   `query:"ContextKeyName,required"`
	ContextKeyType   string   `query:"ContextKeyType,required"`
	ContextKeyValues []string `query:"ContextKeyValues"`
}

type xmlEvaluation struct {
	EvalActionName   string
	EvalResourceName string
	EvalDecision     string
}

type simulateOutput struct {
	EvaluationResults []xmlEvaluation `xml:"EvaluationResults>member"`
	IsTruncated       bool
}

// simulatePrincipalPolicy decides about each action on each resource, as a call of a session of the role would be decided.
func (a *Account) simulatePrincipalPolicy(_ *protocol.Request, in *simulateInput) (*simulateOutput, error) {
	_, path, ok := strings.Cut(in.PolicySourceArn, ":role/")
	if !ok {
		return nil, invalid("Invalid Entity Arn: %s does not clearly define entity type and name.", in.PolicySourceArn)
	}
	role, found := a.Role(path[strings.LastIndexByte(path, '/')+1:])
	if !found || role.ARN != in.PolicySourceArn {
		return nil, noSuchEntity("Specified entity %s does not exist.", in.PolicySourceArn)
	}
	keys := policy.Keys{}
	for _, entry := range in.ContextEntries {
		keys.Put(entry.ContextKeyName, entry.ContextKeyValues...)
	}
	resources := in.ResourceArns
	if len(resources) == 0 {
		resources = []string{"*"}
	}
	out := &simulateOutput{}
	for _, action := range in.ActionNames {
		if vendor, name, ok := strings.Cut(action, ":"); !ok || vendor == "" || name == "" {
			return nil, invalid("Invalid Action Name: %s", action)
		}
		for _, resource := range resources {
			request := policy.Request{Action: action, Resource: resource, Keys: keys}
			decision := a.Decide(credential.Principal{Role: role.Name, RoleARN: role.ARN}, request)
			out.EvaluationResults = append(out.EvaluationResults, xmlEvaluation{action, resource, simulated(decision)})
		}
	}
	return out, nil
}

// simulated is the simulator's name of a decision.
func simulated(d policy.Decision) string {
	switch d {
	case policy.Allowed:
		return "allowed"
	case policy.Denied, policy.DeniedByOrganization, policy.DeniedByBoundary:
		return "explicitDeny"
	}
	return "implicitDeny"
}
