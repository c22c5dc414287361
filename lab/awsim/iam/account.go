package iam

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// The default quotas of an account.
const (
	maxInstanceProfiles = 1000
	maxRoles            = 1000
	maxAttachedPolicies = 10
	maxTags             = 50
)

// Config is what an Account needs.
type Config struct {
	AccountID string
	Seed      uint64 // unique IDs are derived from it
	Now       func() time.Time
}

// Account holds the roles and instance profiles of one AWS account. It is safe for concurrent use.
type Account struct {
	cfg Config

	mu       sync.Mutex
	issued   uint64
	roles    map[string]*Role
	profiles map[string]*profile
	policies map[string]*managedPolicy // of the account, by ARN

	policyCache policyCache
}

// Role is an IAM role. Values that leave the package are copies.
type Role struct {
	Name, Path, ID, ARN string
	Description         string
	TrustPolicy         string // JSON
	MaxSession          time.Duration
	Created             time.Time
	Tags                []Tag
	// Attached are the ARNs of managed policies, sorted.
	Attached []string
	// Inline are policy documents (JSON) by name.
	Inline map[string]string
}

// Tag is a key with a value. Keys are compared without regard to case, as IAM does.
type Tag struct{ Key, Value string }

// InstanceProfile is a container for the one role that an instance may have.
type InstanceProfile struct {
	Name, Path, ID, ARN string
	Created             time.Time
	Tags                []Tag
	Role                *Role // nil = none
	// RoleChanged is when its role was last added or removed; zero = never.
	RoleChanged time.Time
}

type profile struct {
	InstanceProfile
	role string // name; empty = none
}

// NewAccount returns an account without roles and profiles.
func NewAccount(cfg Config) *Account {
	return &Account{cfg: cfg, roles: map[string]*Role{}, profiles: map[string]*profile{}, policies: map[string]*managedPolicy{}}
}

// Role returns the role of that name.
func (a *Account) Role(name string) (Role, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.roles[name]
	if !ok {
		return Role{}, false
	}
	return *r.clone(), true
}

// InstanceProfile returns the instance profile of that name, with its role.
func (a *Account) InstanceProfile(name string) (InstanceProfile, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.profiles[name]
	if !ok {
		return InstanceProfile{}, false
	}
	return a.profile(p), true
}

// InstanceProfileByARN returns the instance profile of that ARN, with its role.
func (a *Account) InstanceProfileByARN(arn string) (InstanceProfile, bool) {
	p, ok := a.InstanceProfile(arn[strings.LastIndex(arn, "/")+1:])
	return p, ok && p.ARN == arn
}

// CreateRole adds a role. Of spec, Name and TrustPolicy are required; ID, ARN and Created are given by the account.
func (a *Account) CreateRole(spec Role) (Role, error) {
	err := cmp.Or(checkName("roleName", spec.Name, longestRoleName), checkPath(spec.Path), checkTags(spec.Tags, nil),
		checkPolicy("assumeRolePolicyDocument", spec.TrustPolicy))
	if err != nil {
		return Role{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if taken(a.roles, spec.Name) {
		return Role{}, alreadyExists("Role with name %s already exists.", spec.Name)
	}
	if len(a.roles) >= maxRoles {
		return Role{}, limitExceeded("RolesPerAccount", maxRoles)
	}
	r := spec.clone()
	if r.Path == "" {
		r.Path = "/"
	}
	if r.MaxSession == 0 {
		r.MaxSession = time.Hour
	}
	r.ID, r.ARN, r.Created = a.newID("AROA"), a.arn("role", r.Path, r.Name), a.now()
	a.roles[r.Name] = r
	a.review(r)
	return *r.clone(), nil
}

// AttachRolePolicy attaches a managed policy by its ARN; attaching it again changes nothing.
func (a *Account) AttachRolePolicy(role, policyARN string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.roles[role]
	if !ok {
		return noRole(role)
	}
	at, found := slices.BinarySearch(r.Attached, policyARN)
	if found {
		return nil
	}
	if ownPolicy.MatchString(policyARN) && a.policies[policyARN] == nil {
		return noSuchEntity("Policy %s does not exist or is not attachable.", policyARN)
	}
	if len(r.Attached) >= maxAttachedPolicies {
		return limitExceeded("PoliciesPerRole", maxAttachedPolicies)
	}
	r.Attached = slices.Insert(r.Attached, at, policyARN)
	a.review(r)
	return nil
}

// PutRolePolicy sets an inline policy of a role.
func (a *Account) PutRolePolicy(role, policy, document string) error {
	if err := checkIdentityPolicy(document); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.roles[role]
	if !ok {
		return noRole(role)
	}
	size := sizeOf(document)
	for name, other := range r.Inline {
		if name != policy {
			size += sizeOf(other)
		}
	}
	if size > maxInlinePolicies {
		return protocol.Errorf(
			"LimitExceeded",
			"Maximum policy size of %d bytes exceeded for role %s",
			maxInlinePolicies,
			role,
		).WithStatus(
			http.StatusConflict,
		)
	}
	r.Inline[policy] = document
	a.review(r)
	return nil
}

// profile returns a copy of p with its role.
func (a *Account) profile(p *profile) InstanceProfile {
	out := p.InstanceProfile
	out.Tags = slices.Clone(p.Tags)
	if r, ok := a.roles[p.role]; ok {
		out.Role = r.clone()
	}
	return out
}

func (r *Role) clone() *Role {
	c := *r
	c.Tags, c.Attached, c.Inline = slices.Clone(r.Tags), slices.Clone(r.Attached), maps.Clone(r.Inline)
	if c.Inline == nil {
		c.Inline = map[string]string{}
	}
	return &c
}

func (a *Account) arn(kind, path, name string) string {
	return "arn:aws:iam::" + a.cfg.AccountID + ":" + kind + path + name
}

// newID makes a unique ID of IAM's form: a prefix that reports the kind, then 17 letters and digits.
func (a *Account) newID(prefix string) string {
	a.issued++
	sum := sha256.Sum256(fmt.Appendf(nil, "iam %d %d", a.cfg.Seed, a.issued))
	return prefix + base32.StdEncoding.EncodeToString(sum[:])[:17]
}

func (a *Account) now() time.Time { return a.cfg.Now().UTC().Truncate(time.Second) }

// taken reports that a name is in use. Names must differ in more than case.
func taken[V any](byName map[string]V, name string) bool {
	for existing := range byName {
		if strings.EqualFold(existing, name) {
			return true
		}
	}
	return false
}
