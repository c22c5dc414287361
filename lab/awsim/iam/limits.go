package iam

import (
	"fmt"

	"github.com/dovetail-k8s/dovetail/lab/awsim/policy"
)

// SetServiceControlPolicy sets what the account's organization lets its roles do at most; an empty document lifts that.
// It counts if IAM is enforced.
func (a *Account) SetServiceControlPolicy(document string) error {
	limit, err := parseLimit(document)
	if err != nil {
		return fmt.Errorf("service control policy: %w", err)
	}
	a.policyCache.mu.Lock()
	defer a.policyCache.mu.Unlock()
	a.policyCache.organization = limit
	return nil
}

// SetPermissionsBoundary sets what a role may do at most, whatever its policies allow; an empty document lifts that.
func (a *Account) SetPermissionsBoundary(role, document string) error {
	if _, ok := a.Role(role); !ok {
		return noRole(role)
	}
	limit, err := parseLimit(document)
	if err != nil {
		return fmt.Errorf("permissions boundary of %s: %w", role, err)
	}
	a.policyCache.mu.Lock()
	defer a.policyCache.mu.Unlock()
	if a.policyCache.boundaries == nil {
		a.policyCache.boundaries = map[string]*policy.Policy{}
	}
	a.policyCache.boundaries[role] = limit
	return nil
}

// parseLimit reads a document; none is nil.
func parseLimit(document string) (*policy.Policy, error) {
	if document == "" {
		return nil, nil
	}
	return policy.Parse(document)
}

// limited is what limits make of a request; Allowed if there are none.
func limited(limit *policy.Policy, r policy.Request, refused, unspoken policy.Decision) policy.Decision {
	if limit == nil {
		return policy.Allowed
	}
	switch policy.Decide([]*policy.Policy{limit}, r) {
	case policy.Denied:
		return refused
	case policy.Unspoken:
		return unspoken
	}
	return policy.Allowed
}
