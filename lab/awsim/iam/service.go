package iam

import (
	"encoding/base64"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Service returns the API handlers of IAM.
func (a *Account) Service() protocol.Service {
	return protocol.Service{
		Name: "iam", Protocol: protocol.AWSQuery, Version: "2010-05-08", Namespace: "https://iam.amazonaws.com/doc/2010-05-08/", Global: true,
		Permissions: a.requiredPermissions,
		Handlers: map[string]protocol.Handler{
			"AddRoleToInstanceProfile":      protocol.Query(a.addRoleToInstanceProfile),
			"AttachRolePolicy":              protocol.Query(a.attachRolePolicy),
			"CreateInstanceProfile":         protocol.Query(a.createInstanceProfile),
			"CreatePolicy":                  protocol.Query(a.createPolicy),
			"CreateRole":                    protocol.Query(a.createRole),
			"DeleteInstanceProfile":         protocol.Query(a.deleteInstanceProfile),
			"DeletePolicy":                  protocol.Query(a.deletePolicy),
			"DeleteRole":                    protocol.Query(a.deleteRole),
			"DeleteRolePolicy":              protocol.Query(a.deleteRolePolicy),
			"DetachRolePolicy":              protocol.Query(a.detachRolePolicy),
			"GetInstanceProfile":            protocol.Query(a.getInstanceProfile),
			"GetPolicy":                     protocol.Query(a.getPolicy),
			"GetPolicyVersion":              protocol.Query(a.getPolicyVersion),
			"GetRole":                       protocol.Query(a.getRole),
			"GetRolePolicy":                 protocol.Query(a.getRolePolicy),
			"ListAttachedRolePolicies":      protocol.Query(a.listAttachedRolePolicies),
			"ListInstanceProfiles":          protocol.Query(a.listInstanceProfiles),
			"ListInstanceProfilesForRole":   protocol.Query(a.listInstanceProfilesForRole),
			"ListInstanceProfileTags":       protocol.Query(a.listInstanceProfileTags),
			"ListPolicies":                  protocol.Query(a.listPolicies),
			"ListRolePolicies":              protocol.Query(a.listRolePolicies),
			"ListRoles":                     protocol.Query(a.listRoles),
			"PutRolePolicy":                 protocol.Query(a.putRolePolicyAction),
			"RemoveRoleFromInstanceProfile": protocol.Query(a.removeRoleFromInstanceProfile),
			"SimulatePrincipalPolicy":       protocol.Query(a.simulatePrincipalPolicy),
			"TagInstanceProfile":            protocol.Query(a.tagInstanceProfile),
			"UntagInstanceProfile":          protocol.Query(a.untagInstanceProfile),
		},
	}
}

// none is the answer of an action that returns nothing.
type none struct{}

type xmlTag struct {
	Key   string `query:"Key,required"`
	Value string `query:"Value,required"`
}

type xmlRole struct {
	Path                     string
	RoleName                 string
	RoleID                   string `xml:"RoleId"`
	ARN                      string `xml:"Arn"`
	CreateDate               time.Time
	AssumeRolePolicyDocument string
	Description              string   `xml:",omitempty"`
	MaxSessionDuration       int      // seconds
	Tags                     []xmlTag `xml:"Tags>member"`
}

type xmlProfile struct {
	Path                string
	InstanceProfileName string
	InstanceProfileID   string `xml:"InstanceProfileId"`
	ARN                 string `xml:"Arn"`
	CreateDate          time.Time
	Roles               []xmlRole `xml:"Roles>member"`
	Tags                []xmlTag  `xml:"Tags>member"`
}

func roleXML(r Role) xmlRole {
	return xmlRole{
		Path: r.Path, RoleName: r.Name, RoleID: r.ID, ARN: r.ARN, CreateDate: r.Created, Description: r.Description,
		AssumeRolePolicyDocument: escape(r.TrustPolicy), MaxSessionDuration: int(r.MaxSession / time.Second), Tags: tagsXML(r.Tags),
	}
}

func profileXML(p InstanceProfile) xmlProfile {
	out := xmlProfile{
		Path: p.Path, InstanceProfileName: p.Name, InstanceProfileID: p.ID, ARN: p.ARN, CreateDate: p.Created, Tags: tagsXML(p.Tags),
	}
	if p.Role != nil {
		// As in lists, a role inside a profile comes without its tags.
		r := roleXML(*p.Role)
		r.Tags = nil
		out.Roles = []xmlRole{r}
	}
	return out
}

func tagsXML(tags []Tag) []xmlTag {
	var out []xmlTag
	for _, t := range tags {
		out = append(out, xmlTag(t))
	}
	return out
}

func tagsOf(in []xmlTag) []Tag {
	var out []Tag
	for _, t := range in {
		out = append(out, Tag(t))
	}
	return out
}

// escape percent-encodes a policy document as IAM returns it (RFC 3986).
func escape(document string) string { return strings.ReplaceAll(url.QueryEscape(document), "+", "%20") }

// paging are the parameters of every list.
type paging struct {
	Marker   string `query:"Marker"`
	MaxItems *int   `query:"MaxItems"`
}

// truncation is what a list states about what it left out.
type truncation struct {
	IsTruncated bool
	Marker      string `xml:",omitempty"`
}

// page cuts one page out of names, which it sorts. A marker holds the last name of the page before.
func (p paging) page(names []string) ([]string, truncation, error) {
	size := 100
	if p.MaxItems != nil {
		size = *p.MaxItems
	}
	if size < 1 {
		return nil, truncation{}, unsatisfied("0", "maxItems", "Member must have value greater than or equal to 1")
	}
	if size > 1000 {
		return nil, truncation{}, invalid(
			"1 validation error detected: Value '%d' at 'maxItems' failed to satisfy constraint: Member must have value less than or equal to 1000",
			size,
		)
	}
	slices.Sort(names)
	if p.Marker != "" {
		last, err := base64.URLEncoding.DecodeString(p.Marker)
		if err != nil {
			return nil, truncation{}, invalid("Invalid Marker.")
		}
		at, found := slices.BinarySearch(names, string(last))
		if found {
			at++
		}
		names = names[at:]
	}
	if len(names) <= size {
		return names, truncation{}, nil
	}
	return names[:size], truncation{IsTruncated: true, Marker: base64.URLEncoding.EncodeToString([]byte(names[size-1]))}, nil
}

// paged is one page of items by name.
func paged[V any](p paging, items map[string]V) ([]V, truncation, error) {
	names, more, err := p.page(slices.Collect(maps.Keys(items)))
	var out []V
	for _, name := range names {
		out = append(out, items[name])
	}
	return out, more, err
}
