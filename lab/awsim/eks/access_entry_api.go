package eks

import (
	"maps"
	"regexp"
	"slices"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type jsonEntry struct {
	ClusterName      string            `json:"clusterName"`
	PrincipalARN     string            `json:"principalArn"`
	KubernetesGroups []string          `json:"kubernetesGroups"`
	AccessEntryARN   string            `json:"accessEntryArn"`
	CreatedAt        float64           `json:"createdAt"`
	ModifiedAt       float64           `json:"modifiedAt"`
	Tags             map[string]string `json:"tags"`
	Username         string            `json:"username"`
	Type             string            `json:"type"`
}

type entryOutput struct {
	AccessEntry jsonEntry `json:"accessEntry"`
}

func (a AccessEntry) output(clusterName string) *entryOutput {
	out := jsonEntry{
		ClusterName: clusterName, PrincipalARN: a.PrincipalARN, KubernetesGroups: list(slices.Clone(a.Groups)), AccessEntryARN: a.ARN,
		CreatedAt: epoch(a.Created), ModifiedAt: epoch(a.Modified), Tags: maps.Clone(a.Tags), Username: a.Username, Type: a.Type,
	}
	if out.Tags == nil {
		out.Tags = map[string]string{}
	}
	return &entryOutput{out}
}

// onEntry runs f on the access entry that the path names, under the lock.
func onEntry[Out any](e *EKS, r *protocol.Request, f func(*AccessEntry) (*Out, error)) (*Out, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.findForEntries(r.Path["name"])
	if err != nil {
		return nil, err
	}
	entry, ok := c.entries[r.Path["principalArn"]]
	if !ok {
		return nil, notFound(
			"The specified principalArn could not be found. You can view your available access entries with 'ListAccessEntries'.",
		)
	}
	return f(entry)
}

type createEntryInput struct {
	ClientRequestToken string            `json:"clientRequestToken"`
	KubernetesGroups   []string          `json:"kubernetesGroups"`
	PrincipalARN       string            `json:"principalArn"`
	Tags               map[string]string `json:"tags"`
	Type               string            `json:"type"`
	Username           string            `json:"username"`
}

func (e *EKS) createAccessEntry(r *protocol.Request, in *createEntryInput) (*entryOutput, error) {
	entry, err := e.CreateAccessEntry(r.Path["name"], AccessEntry{
		PrincipalARN: in.PrincipalARN, Type: in.Type, Username: in.Username, Groups: in.KubernetesGroups, Tags: in.Tags,
		token: in.ClientRequestToken,
	})
	if err != nil {
		return nil, err
	}
	r.Touch(entry.ARN)
	return entry.output(r.Path["name"]), nil
}

func (e *EKS) describeAccessEntry(r *protocol.Request, _ *nothing) (*entryOutput, error) {
	return onEntry(e, r, func(entry *AccessEntry) (*entryOutput, error) {
		return entry.output(r.Path["name"]), nil
	})
}

type updateEntryInput struct {
	ClientRequestToken string    `json:"clientRequestToken"`
	KubernetesGroups   *[]string `json:"kubernetesGroups"`
	Username           *string   `json:"username"`
}

func (e *EKS) updateAccessEntry(r *protocol.Request, in *updateEntryInput) (*entryOutput, error) {
	return onEntry(e, r, func(entry *AccessEntry) (*entryOutput, error) {
		changed := entry.clone()
		if in.Username != nil {
			changed.Username = *in.Username
		}
		if in.KubernetesGroups != nil {
			changed.Groups = *in.KubernetesGroups
		}
		// For nodes, too, EKS applies the rules of names, which what it set itself does not meet.
		if in.Username != nil || in.KubernetesGroups != nil {
			if err := checkStandard(changed); err != nil {
				return nil, err
			}
		}
		changed.Modified = e.cfg.Now().UTC()
		*entry = changed
		r.Touch(entry.ARN)
		return entry.output(r.Path["name"]), nil
	})
}

func (e *EKS) deleteAccessEntry(r *protocol.Request, _ *nothing) (*nothing, error) {
	return onEntry(e, r, func(entry *AccessEntry) (*nothing, error) {
		delete(e.clusters[r.Path["name"]].entries, entry.PrincipalARN)
		r.Touch(entry.ARN)
		return nil, nil
	})
}

type listEntriesOutput struct {
	AccessEntries []string `json:"accessEntries"`
	NextToken     string   `json:"nextToken,omitempty"`
}

func (e *EKS) listAccessEntries(r *protocol.Request, _ *nothing) (*listEntriesOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.findForEntries(r.Path["name"])
	if err != nil {
		return nil, err
	}
	policy := r.HTTP.URL.Query().Get("associatedPolicyArn")
	var principals []string
	for principal, entry := range c.entries {
		if policy == "" || entry.policy(policy) >= 0 {
			principals = append(principals, principal)
		}
	}
	principals, next, err := page(r, principals)
	if err != nil {
		return nil, err
	}
	return &listEntriesOutput{AccessEntries: principals, NextToken: next}, nil
}

var accessPolicy = regexp.MustCompile(`^arn:aws[\w-]*:eks::aws:cluster-access-policy/AmazonEKS\w+Policy$`)

type accessScope struct {
	Type       string   `json:"type"`
	Namespaces []string `json:"namespaces"`
}

type jsonAssociation struct {
	PolicyARN    string      `json:"policyArn"`
	AccessScope  accessScope `json:"accessScope"`
	AssociatedAt float64     `json:"associatedAt"`
	ModifiedAt   float64     `json:"modifiedAt"`
}

func (p PolicyAssociation) json() jsonAssociation {
	return jsonAssociation{
		PolicyARN: p.PolicyARN, AccessScope: accessScope{Type: p.Scope, Namespaces: list(slices.Clone(p.Namespaces))},
		AssociatedAt: epoch(p.Created), ModifiedAt: epoch(p.Modified),
	}
}

// policy returns the place of an associated policy, or -1.
func (a *AccessEntry) policy(arn string) int {
	return slices.IndexFunc(a.Policies, func(p PolicyAssociation) bool { return p.PolicyARN == arn })
}

type associateInput struct {
	AccessScope *accessScope `json:"accessScope"`
	PolicyARN   string       `json:"policyArn"`
}

type associateOutput struct {
	ClusterName            string          `json:"clusterName"`
	PrincipalARN           string          `json:"principalArn"`
	AssociatedAccessPolicy jsonAssociation `json:"associatedAccessPolicy"`
}

func (e *EKS) associateAccessPolicy(r *protocol.Request, in *associateInput) (*associateOutput, error) {
	switch {
	case !accessPolicy.MatchString(in.PolicyARN):
		return nil, invalid("The specified policyArn is invalid: %s", in.PolicyARN)
	case in.AccessScope == nil || in.AccessScope.Type != "cluster" && in.AccessScope.Type != "namespace":
		return nil, invalid("The accessScope must be of type cluster or namespace")
	case (in.AccessScope.Type == "namespace") != (len(in.AccessScope.Namespaces) > 0):
		return nil, invalid("Namespaces must be given for the accessScope namespace, and for that alone")
	}
	return onEntry(e, r, func(entry *AccessEntry) (*associateOutput, error) {
		if entry.Type != Standard && entry.Type != EC2 {
			return nil, invalid("Access policies cannot be associated with an access entry of type %s", entry.Type)
		}
		now := e.cfg.Now().UTC()
		p := PolicyAssociation{
			PolicyARN: in.PolicyARN, Scope: in.AccessScope.Type, Namespaces: in.AccessScope.Namespaces, Created: now, Modified: now,
		}
		if at := entry.policy(p.PolicyARN); at >= 0 {
			p.Created = entry.Policies[at].Created
			entry.Policies[at] = p
		} else {
			entry.Policies = append(entry.Policies, p)
		}
		r.Touch(entry.ARN)
		return &associateOutput{ClusterName: r.Path["name"], PrincipalARN: entry.PrincipalARN, AssociatedAccessPolicy: p.json()}, nil
	})
}

func (e *EKS) disassociateAccessPolicy(r *protocol.Request, _ *nothing) (*nothing, error) {
	return onEntry(e, r, func(entry *AccessEntry) (*nothing, error) {
		at := entry.policy(r.Path["policyArn"])
		if at < 0 {
			return nil, notFound("The specified policyArn is not associated with the access entry.")
		}
		entry.Policies = slices.Delete(entry.Policies, at, at+1)
		r.Touch(entry.ARN)
		return nil, nil
	})
}

type listAssociatedOutput struct {
	ClusterName              string            `json:"clusterName"`
	PrincipalARN             string            `json:"principalArn"`
	AssociatedAccessPolicies []jsonAssociation `json:"associatedAccessPolicies"`
	NextToken                string            `json:"nextToken,omitempty"`
}

func (e *EKS) listAssociatedAccessPolicies(r *protocol.Request, _ *nothing) (*listAssociatedOutput, error) {
	return onEntry(e, r, func(entry *AccessEntry) (*listAssociatedOutput, error) {
		var arns []string
		for _, p := range entry.Policies {
			arns = append(arns, p.PolicyARN)
		}
		arns, next, err := page(r, arns)
		if err != nil {
			return nil, err
		}
		out := &listAssociatedOutput{
			ClusterName: r.Path["name"], PrincipalARN: entry.PrincipalARN, AssociatedAccessPolicies: []jsonAssociation{}, NextToken: next,
		}
		for _, arn := range arns {
			out.AssociatedAccessPolicies = append(out.AssociatedAccessPolicies, entry.Policies[entry.policy(arn)].json())
		}
		return out, nil
	})
}
