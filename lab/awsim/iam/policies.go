package iam

import (
	"cmp"
	"regexp"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// managedPolicy is a policy of the account that roles can be given by its ARN. It has one version.
type managedPolicy struct {
	name, path, id, arn, description string
	document                         string
	created                          time.Time
}

const maxPolicies = 1500 // per account

var ownPolicy = regexp.MustCompile(`^arn:aws[\w-]*:iam::\d{12}:policy/`)

type createPolicyInput struct {
	PolicyName     string   `query:"PolicyName,required"`
	PolicyDocument string   `query:"PolicyDocument,required"`
	Path           string   `query:"Path"`
	Description    string   `query:"Description"`
	Tags           []xmlTag `query:"Tags"`
}

type xmlPolicy struct {
	PolicyName       string
	PolicyID         string `xml:"PolicyId"`
	ARN              string `xml:"Arn"`
	Path             string
	Description      string `xml:",omitempty"`
	DefaultVersionID string `xml:"DefaultVersionId"`
	AttachmentCount  int
	IsAttachable     bool
	CreateDate       time.Time
	UpdateDate       time.Time
}

type policyOutput struct{ Policy xmlPolicy }

func (a *Account) createPolicy(r *protocol.Request, in *createPolicyInput) (*policyOutput, error) {
	if err := cmp.Or(checkName("policyName", in.PolicyName, longestPolicyName), checkPath(in.Path), checkTags(tagsOf(in.Tags), nil),
		checkIdentityPolicy(in.PolicyDocument)); err != nil {
		return nil, err
	}
	if sizeOf(in.PolicyDocument) > maxManagedPolicy {
		return nil, limitExceeded("PolicySize", maxManagedPolicy)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	path := cmp.Or(in.Path, "/")
	p := &managedPolicy{
		name: in.PolicyName, path: path, arn: a.arn("policy", path, in.PolicyName), description: in.Description, document: in.PolicyDocument,
		created: a.now(),
	}
	for _, other := range a.policies {
		if strings.EqualFold(other.name, p.name) {
			return nil, alreadyExists("A policy called %s already exists. Duplicate names are not allowed.", p.name)
		}
	}
	if len(a.policies) >= maxPolicies {
		return nil, limitExceeded("PoliciesPerAccount", maxPolicies)
	}
	p.id = a.newID("ANPA")
	a.policies[p.arn] = p
	r.Touch(p.arn)
	return &policyOutput{a.policyXML(p)}, nil
}

// policyXML shows a policy. The caller holds the lock.
func (a *Account) policyXML(p *managedPolicy) xmlPolicy {
	out := xmlPolicy{
		PolicyName: p.name, PolicyID: p.id, ARN: p.arn, Path: p.path, Description: p.description, DefaultVersionID: "v1", IsAttachable: true,
		CreateDate: p.created, UpdateDate: p.created,
	}
	for _, r := range a.roles {
		for _, arn := range r.Attached {
			if arn == p.arn {
				out.AttachmentCount++
			}
		}
	}
	return out
}

type policyName struct {
	PolicyARN string `query:"PolicyArn,required"`
}

// onPolicy runs f on the policy of that ARN, under the lock.
func onPolicy[Out any](a *Account, arn string, f func(*managedPolicy) (*Out, error)) (*Out, error) {
	if !policyARN.MatchString(arn) {
		return nil, protocol.Errorf("InvalidInput", "ARN %s is not valid.", arn)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.policies[arn]
	if document, ok := managedByAWS[arn]; ok {
		p = &managedPolicy{name: lastOf(arn), path: "/", id: "ANPAAWS", arn: arn, document: document}
	}
	if p == nil {
		return nil, noSuchEntity("Policy %s was not found.", arn)
	}
	return f(p)
}

func lastOf(arn string) string { return arn[strings.LastIndexByte(arn, '/')+1:] }

func (a *Account) getPolicy(_ *protocol.Request, in *policyName) (*policyOutput, error) {
	return onPolicy(a, in.PolicyARN, func(p *managedPolicy) (*policyOutput, error) { return &policyOutput{a.policyXML(p)}, nil })
}

type policyVersionInput struct {
	PolicyARN string `query:"PolicyArn,required"`
	VersionID string `query:"VersionId,required"`
}

type policyVersionOutput struct {
	PolicyVersion struct {
		Document         string
		VersionID        string `xml:"VersionId"`
		IsDefaultVersion bool
		CreateDate       time.Time
	}
}

func (a *Account) getPolicyVersion(_ *protocol.Request, in *policyVersionInput) (*policyVersionOutput, error) {
	return onPolicy(a, in.PolicyARN, func(p *managedPolicy) (*policyVersionOutput, error) {
		if in.VersionID != "v1" {
			return nil, noSuchEntity("Policy %s version %s does not exist or is not attachable.", p.arn, in.VersionID)
		}
		out := &policyVersionOutput{}
		v := &out.PolicyVersion
		v.Document, v.VersionID, v.IsDefaultVersion, v.CreateDate = escape(p.document), "v1", true, p.created
		return out, nil
	})
}

func (a *Account) deletePolicy(r *protocol.Request, in *policyName) (*none, error) {
	return onPolicy(a, in.PolicyARN, func(p *managedPolicy) (*none, error) {
		switch {
		case a.policies[p.arn] == nil:
			return nil, protocol.Errorf("AccessDenied", "Policy %s is AWS's own.", p.arn)
		case a.policyXML(p).AttachmentCount > 0:
			return nil, deleteConflict("detach the policy from all entities")
		}
		delete(a.policies, p.arn)
		r.Touch(p.arn)
		return nil, nil
	})
}

type listPoliciesInput struct {
	Scope             string  `query:"Scope"`
	OnlyAttached      bool    `query:"OnlyAttached"`
	PathPrefix        string  `query:"PathPrefix"`
	PolicyUsageFilter *string `query:"PolicyUsageFilter,unsupported"`
	paging
}

type policiesOutput struct {
	Policies []xmlPolicy `xml:"Policies>member"`
	truncation
}

func (a *Account) listPolicies(_ *protocol.Request, in *listPoliciesInput) (*policiesOutput, error) {
	if err := checkPathPrefix(in.PathPrefix); err != nil {
		return nil, err
	}
	if in.Scope != "" && in.Scope != "All" && in.Scope != "AWS" && in.Scope != "Local" {
		return nil, unsatisfied(in.Scope, "scope", "Member must satisfy enum value set: [All, AWS, Local]")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	items := map[string]xmlPolicy{}
	for _, p := range a.policies {
		shown := a.policyXML(p)
		if in.Scope != "AWS" && strings.HasPrefix(p.path, in.PathPrefix) && (!in.OnlyAttached || shown.AttachmentCount > 0) {
			items[p.name] = shown
		}
	}
	policies, more, err := paged(in.paging, items)
	if err != nil {
		return nil, err
	}
	return &policiesOutput{policies, more}, nil
}
