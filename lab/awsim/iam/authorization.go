package iam

import (
	"maps"
	"slices"
	"sync"
	"unicode"

	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	"github.com/dovetail-k8s/dovetail/lab/awsim/policy"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Limits on the size of policies, in characters that are no white space.
const (
	maxManagedPolicy  = 6144
	maxInlinePolicies = 10240 // of all inline policies of a role together
)

// policyCache are the policies of all roles as they are evaluated. They have a lock of their own: other services query
// for a decision in the middle of their work, and IAM itself does.
type policyCache struct {
	mu     sync.RWMutex
	byRole map[string][]*policy.Policy
	// organization and boundaries, by role, are what is allowed at most; nil = everything.
	organization *policy.Policy
	boundaries   map[string]*policy.Policy
}

// Decide implements protocol.Authorizer: the account itself may do everything, a role session what its role's policies
// state, as far as the organization and the role's boundary let it.
func (a *Account) Decide(p credential.Principal, r policy.Request) policy.Decision {
	if p.Role == "" {
		return policy.Allowed
	}
	a.policyCache.mu.RLock()
	defer a.policyCache.mu.RUnlock()
	if d := limited(a.policyCache.organization, r, policy.DeniedByOrganization, policy.UnspokenByOrganization); d != policy.Allowed {
		return d
	}
	if d := limited(a.policyCache.boundaries[p.Role], r, policy.DeniedByBoundary, policy.UnspokenByBoundary); d != policy.Allowed {
		return d
	}
	return policy.Decide(a.policyCache.byRole[p.Role], r)
}

// review updates the cached policies of a role. The caller holds the lock.
func (a *Account) review(role *Role) {
	var all []*policy.Policy
	for _, name := range slices.Sorted(maps.Keys(role.Inline)) {
		if p, err := policy.Parse(role.Inline[name]); err == nil { // what cannot be read was rejected when it came
			all = append(all, p)
		}
	}
	for _, arn := range role.Attached {
		document, ok := managedByAWS[arn]
		if own := a.policies[arn]; own != nil {
			document, ok = own.document, true
		}
		if !ok {
			continue // a policy of AWS that the simulator does not have grants nothing
		}
		if p, err := policy.Parse(document); err == nil {
			all = append(all, p)
		}
	}
	a.policyCache.mu.Lock()
	defer a.policyCache.mu.Unlock()
	if a.policyCache.byRole == nil {
		a.policyCache.byRole = map[string][]*policy.Policy{}
	}
	a.policyCache.byRole[role.Name] = all
}

// invalidatePolicies is review for a role that is gone.
func (a *Account) invalidatePolicies(role string) {
	a.policyCache.mu.Lock()
	defer a.policyCache.mu.Unlock()
	delete(a.policyCache.byRole, role)
	delete(a.policyCache.boundaries, role)
}

// checkIdentityPolicy rejects a policy that could not be evaluated.
func checkIdentityPolicy(document string) error {
	if err := checkPolicy("policyDocument", document); err != nil {
		return err
	}
	if _, err := policy.Parse(document); err != nil {
		return protocol.Errorf("MalformedPolicyDocument", "%s", err)
	}
	return nil
}

// sizeOf is what counts of a policy for its limit.
func sizeOf(document string) int {
	n := 0
	for _, r := range document {
		if !unicode.IsSpace(r) {
			n++
		}
	}
	return n
}

// requiredPermissions are what a caller must be allowed to do for a call of IAM.
func (a *Account) requiredPermissions(r *protocol.Request) []protocol.RequiredPermission {
	role, profile := r.Form.Get("RoleName"), r.Form.Get("InstanceProfileName")
	tags := r.FormTags("Tags.member")
	keys := policy.Keys{}
	keys.Tags("aws:RequestTag/", tags)
	names := slices.Collect(maps.Keys(tags))
	for name, values := range r.Form {
		if len(name) > len("TagKeys.member.") && name[:len("TagKeys.member.")] == "TagKeys.member." {
			names = append(names, values...)
		}
	}
	if len(names) > 0 {
		keys.Put("aws:TagKeys", names...)
	}
	switch {
	case profile != "":
		return a.profilePermissions(r, profileCall{profile: profile, role: role, tags: tags, keys: keys})
	case role != "":
		return []protocol.RequiredPermission{{Resource: a.roleARN(role, r.Form.Get("Path")), Keys: keys}}
	case r.Form.Get("PolicySourceArn") != "":
		return []protocol.RequiredPermission{{Resource: r.Form.Get("PolicySourceArn")}}
	case r.Form.Get("PolicyArn") != "":
		return []protocol.RequiredPermission{{Resource: r.Form.Get("PolicyArn")}}
	}
	return []protocol.RequiredPermission{{Keys: keys}}
}

// profileCall is a call about an instance profile: its names, request tags and condition keys.
type profileCall struct {
	profile, role string
	tags          map[string]string
	keys          policy.Keys
}

// profilePermissions are the permissions for a call about an instance profile. A missing profile has an ARN without a
// path and no tags: a caller with a policy that requires tags gets AccessDenied, not NoSuchEntity.
func (a *Account) profilePermissions(r *protocol.Request, c profileCall) []protocol.RequiredPermission {
	path := "/"
	if given := r.Form.Get("Path"); given != "" {
		path = given
	}
	need := protocol.RequiredPermission{Resource: a.arn("instance-profile", path, c.profile), Keys: c.keys}
	if p, ok := a.InstanceProfile(c.profile); ok {
		need.Resource = p.ARN
		for _, t := range p.Tags {
			c.keys.Put("aws:ResourceTag/"+t.Key, t.Value)
		}
	}
	needs := []protocol.RequiredPermission{need}
	switch r.Action {
	case "CreateInstanceProfile":
		if len(c.tags) > 0 { // IAM evaluates the request tags as resource tags
			tagging := policy.Keys{}
			maps.Copy(tagging, c.keys)
			tagging.Tags("aws:ResourceTag/", c.tags)
			needs = append(needs, protocol.RequiredPermission{Action: "iam:TagInstanceProfile", Resource: need.Resource, Keys: tagging})
		}
	case "AddRoleToInstanceProfile":
		needs = append(needs, PassRole(a.roleARN(c.role, "")))
	}
	return needs
}

// PassRole is the need of who gives a role to EC2.
func PassRole(arn string) protocol.RequiredPermission {
	keys := policy.Keys{}
	keys.Put("iam:PassedToService", "ec2.amazonaws.com")
	return protocol.RequiredPermission{Action: "iam:PassRole", Resource: arn, Keys: keys}
}

// roleARN is the ARN of a role, or that which one of this path and name would have.
func (a *Account) roleARN(name, path string) string {
	if r, ok := a.Role(name); ok {
		return r.ARN
	}
	if path == "" {
		path = "/"
	}
	return a.arn("role", path, name)
}
