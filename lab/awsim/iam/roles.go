package iam

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

const (
	longestRoleName   = 64
	longestPolicyName = 128
)

var policyARN = regexp.MustCompile(`^arn:aws[\w-]*:iam::(aws|\d{12}):policy/[!-~]+$`)

type roleName struct {
	RoleName string `query:"RoleName,required"`
}

func (in *roleName) role() string { return in.RoleName }

func (in *roleName) check() error { return checkName("roleName", in.RoleName, longestRoleName) }

// onRole checks a request that is about a role and runs f on it, under the lock.
func onRole[Out any](a *Account, in interface {
	role() string
	check() error
}, f func(*Role) (*Out, error),
) (*Out, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.roles[in.role()]
	if !ok {
		return nil, noRole(in.role())
	}
	return f(r)
}

type roleOutput struct {
	Role xmlRole
}

func (a *Account) getRole(_ *protocol.Request, in *roleName) (*roleOutput, error) {
	return onRole(a, in, func(role *Role) (*roleOutput, error) {
		return &roleOutput{roleXML(*role)}, nil
	})
}

type createRoleInput struct {
	roleName
	Path                     string    `query:"Path"`
	AssumeRolePolicyDocument string    `query:"AssumeRolePolicyDocument,required"`
	Description              string    `query:"Description"`
	MaxSessionDuration       *int      `query:"MaxSessionDuration"`
	PermissionsBoundary      *struct{} `query:"PermissionsBoundary,unsupported"`
	Tags                     []xmlTag  `query:"Tags"`
}

func (a *Account) createRole(r *protocol.Request, in *createRoleInput) (*roleOutput, error) {
	seconds := 3600
	if in.MaxSessionDuration != nil {
		seconds = *in.MaxSessionDuration
	}
	if seconds < 3600 || seconds > 43200 {
		return nil, invalid(
			"1 validation error detected: Value '%d' at 'maxSessionDuration' failed to satisfy constraint: Member must be between 3600 and 43200",
			seconds,
		)
	}
	role, err := a.CreateRole(Role{
		Name: in.RoleName, Path: in.Path, Description: in.Description, TrustPolicy: in.AssumeRolePolicyDocument,
		MaxSession: time.Duration(seconds) * time.Second, Tags: tagsOf(in.Tags),
	})
	if err != nil {
		return nil, err
	}
	r.Touch(role.ARN)
	return &roleOutput{roleXML(role)}, nil
}

func (a *Account) deleteRole(r *protocol.Request, in *roleName) (*none, error) {
	return onRole(a, in, func(role *Role) (*none, error) {
		for _, p := range a.profiles {
			if p.role == role.Name {
				return nil, deleteConflict("remove roles from instance profile")
			}
		}
		if len(role.Attached) > 0 {
			return nil, deleteConflict("detach all policies")
		}
		if len(role.Inline) > 0 {
			return nil, deleteConflict("delete policies")
		}
		delete(a.roles, role.Name)
		a.invalidatePolicies(role.Name)
		r.Touch(role.ARN)
		return nil, nil
	})
}

type listRolesInput struct {
	PathPrefix string `query:"PathPrefix"`
	paging
}

type rolesOutput struct {
	Roles []xmlRole `xml:"Roles>member"`
	truncation
}

func (a *Account) listRoles(_ *protocol.Request, in *listRolesInput) (*rolesOutput, error) {
	if err := checkPathPrefix(in.PathPrefix); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	items := map[string]xmlRole{}
	for name, role := range a.roles {
		if strings.HasPrefix(role.Path, in.PathPrefix) {
			x := roleXML(*role)
			x.Tags = nil
			items[name] = x
		}
	}
	roles, more, err := paged(in.paging, items)
	if err != nil {
		return nil, err
	}
	return &rolesOutput{roles, more}, nil
}

type rolePolicyARN struct {
	roleName
	PolicyARN string `query:"PolicyArn,required"`
}

func (in *rolePolicyARN) check() error {
	if err := in.roleName.check(); err != nil {
		return err
	}
	if !policyARN.MatchString(in.PolicyARN) {
		return protocol.Errorf("InvalidInput", "ARN %s is not valid.", in.PolicyARN)
	}
	return nil
}

func (a *Account) attachRolePolicy(_ *protocol.Request, in *rolePolicyARN) (*none, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	return nil, a.AttachRolePolicy(in.RoleName, in.PolicyARN)
}

func (a *Account) detachRolePolicy(_ *protocol.Request, in *rolePolicyARN) (*none, error) {
	return onRole(a, in, func(role *Role) (*none, error) {
		at, found := slices.BinarySearch(role.Attached, in.PolicyARN)
		if !found {
			return nil, noSuchEntity("Policy %s was not found.", in.PolicyARN)
		}
		role.Attached = slices.Delete(role.Attached, at, at+1)
		a.review(role)
		return nil, nil
	})
}

type listAttachedInput struct {
	roleName
	PathPrefix string `query:"PathPrefix"`
	paging
}

type attachedPolicy struct {
	PolicyName string
	PolicyARN  string `xml:"PolicyArn"`
}

type attachedOutput struct {
	AttachedPolicies []attachedPolicy `xml:"AttachedPolicies>member"`
	truncation
}

func (in *listAttachedInput) check() error {
	return cmp.Or(in.roleName.check(), checkPathPrefix(in.PathPrefix))
}

func (a *Account) listAttachedRolePolicies(_ *protocol.Request, in *listAttachedInput) (*attachedOutput, error) {
	return onRole(a, in, func(role *Role) (*attachedOutput, error) {
		items := map[string]attachedPolicy{}
		for _, arn := range role.Attached {
			_, resource, _ := strings.Cut(arn, ":policy")
			slash := strings.LastIndex(resource, "/")
			if strings.HasPrefix(resource[:slash+1], in.PathPrefix) {
				items[arn] = attachedPolicy{PolicyName: resource[slash+1:], PolicyARN: arn}
			}
		}
		policies, more, err := paged(in.paging, items)
		if err != nil {
			return nil, err
		}
		return &attachedOutput{policies, more}, nil
	})
}

type rolePolicyName struct {
	roleName
	PolicyName string `query:"PolicyName,required"`
}

func (in *rolePolicyName) check() error {
	return cmp.Or(in.roleName.check(), checkName("policyName", in.PolicyName, longestPolicyName))
}

type rolePolicyOutput struct {
	RoleName       string
	PolicyName     string
	PolicyDocument string
}

func (a *Account) getRolePolicy(_ *protocol.Request, in *rolePolicyName) (*rolePolicyOutput, error) {
	return onRole(a, in, func(role *Role) (*rolePolicyOutput, error) {
		document, ok := role.Inline[in.PolicyName]
		if !ok {
			return nil, noPolicy(in.PolicyName)
		}
		return &rolePolicyOutput{RoleName: role.Name, PolicyName: in.PolicyName, PolicyDocument: escape(document)}, nil
	})
}

func (a *Account) deleteRolePolicy(_ *protocol.Request, in *rolePolicyName) (*none, error) {
	return onRole(a, in, func(role *Role) (*none, error) {
		if _, ok := role.Inline[in.PolicyName]; !ok {
			return nil, noPolicy(in.PolicyName)
		}
		delete(role.Inline, in.PolicyName)
		a.review(role)
		return nil, nil
	})
}

type putRolePolicyInput struct {
	rolePolicyName
	PolicyDocument string `query:"PolicyDocument,required"`
}

func (a *Account) putRolePolicyAction(_ *protocol.Request, in *putRolePolicyInput) (*none, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	return nil, a.PutRolePolicy(in.RoleName, in.PolicyName, in.PolicyDocument)
}

type listRolePoliciesInput struct {
	roleName
	paging
}

type policyNamesOutput struct {
	PolicyNames []string `xml:"PolicyNames>member"`
	truncation
}

func (a *Account) listRolePolicies(_ *protocol.Request, in *listRolePoliciesInput) (*policyNamesOutput, error) {
	return onRole(a, in, func(role *Role) (*policyNamesOutput, error) {
		items := map[string]string{}
		for name := range role.Inline {
			items[name] = name
		}
		names, more, err := paged(in.paging, items)
		if err != nil {
			return nil, err
		}
		return &policyNamesOutput{names, more}, nil
	})
}

func noPolicy(name string) error {
	return noSuchEntity("The role policy with name %s cannot be found.", name)
}
