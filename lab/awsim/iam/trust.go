package iam

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
)

// Assumption is an attempt to assume a role, as its trust policy sees it.
type Assumption struct {
	// Action is "sts:AssumeRole" or "sts:AssumeRoleWithWebIdentity".
	Action string
	// Caller signed the call; Anonymous for a web identity.
	Caller credential.Principal
	// Service is the name of an AWS service that assumes the role for somebody, such as pods.eks.amazonaws.com.
	Service string
	// Federated is the ARN of the identity provider of a web identity.
	Federated string
	// Keys are the condition keys that the attempt carries, in lower case: "sts:externalid", "ISSUER:sub", "ISSUER:aud".
	Keys map[string]string
}

// Trusts reports whether the trust policy of r lets the assumption happen: an Allow statement matches and no Deny does.
//
// Of conditions, StringEquals and StringLike (and their negations) are understood; a statement with any other operator
// grants nothing.
func (r Role) Trusts(a Assumption) bool {
	var policy struct {
		Statement oneOrMany[trustStatement]
	}
	if err := json.Unmarshal([]byte(r.TrustPolicy), &policy); err != nil {
		return false
	}
	allowed := false
	for _, s := range policy.Statement {
		if !s.matches(a) {
			continue
		}
		if s.Effect == "Deny" {
			return false
		}
		allowed = allowed || s.Effect == "Allow"
	}
	return allowed
}

type trustStatement struct {
	Effect    string
	Action    oneOrMany[string]
	Principal trustPrincipal
	Condition map[string]map[string]oneOrMany[string]
}

func (s trustStatement) matches(a Assumption) bool {
	return slices.ContainsFunc(s.Action, func(pattern string) bool {
		return like(strings.ToLower(pattern), strings.ToLower(a.Action))
	}) && s.Principal.covers(a) && s.conditionsHold(a.Keys)
}

func (s trustStatement) conditionsHold(keys map[string]string) bool {
	for operator, tests := range s.Condition {
		for key, wanted := range tests {
			value, present := keys[strings.ToLower(key)]
			equal := slices.Contains(wanted, value)
			similar := slices.ContainsFunc(wanted, func(pattern string) bool { return like(pattern, value) })
			holds := map[string]bool{
				"StringEquals": present && equal, "StringLike": present && similar,
				"StringNotEquals": !present || !equal, "StringNotLike": !present || !similar,
			}
			if !holds[operator] {
				return false
			}
		}
	}
	return true
}

// trustPrincipal is "*" or identities by kind.
type trustPrincipal struct {
	everyone bool
	byKind   map[string]oneOrMany[string]
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *trustPrincipal) UnmarshalJSON(data []byte) error {
	if string(data) == `"*"` {
		p.everyone = true
		return nil
	}
	return json.Unmarshal(data, &p.byKind)
}

func (p trustPrincipal) covers(a Assumption) bool {
	if p.everyone {
		return true
	}
	if a.Federated != "" {
		return slices.Contains(p.byKind["Federated"], a.Federated)
	}
	if a.Service != "" {
		return slices.Contains(p.byKind["Service"], a.Service)
	}
	identities := []string{"*", a.Caller.AccountID, "arn:aws:iam::" + a.Caller.AccountID + ":root", a.Caller.ARN}
	if a.Caller.RoleARN != "" {
		identities = append(identities, a.Caller.RoleARN)
	}
	return slices.ContainsFunc(p.byKind["AWS"], func(name string) bool { return slices.Contains(identities, name) })
}

// oneOrMany reads a JSON value or a list of them.
type oneOrMany[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (l *oneOrMany[T]) UnmarshalJSON(data []byte) error {
	if strings.HasPrefix(string(data), "[") {
		return json.Unmarshal(data, (*[]T)(l))
	}
	var one T
	if err := json.Unmarshal(data, &one); err != nil {
		return err
	}
	*l = oneOrMany[T]{one}
	return nil
}

// like matches IAM's wildcards: * any run of characters, ? one of them.
func like(pattern, value string) bool {
	// path.Match stops * at slashes, which mean nothing here, and gives [ and \ a meaning that IAM does not.
	neutral := strings.NewReplacer("/", "\x00", "[", "\x01", "\\", "\x02")
	ok, err := path.Match(neutral.Replace(pattern), neutral.Replace(value))
	return err == nil && ok
}
