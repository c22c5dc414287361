package protocol

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	"github.com/dovetail-k8s/dovetail/lab/awsim/policy"
)

// Authorizer evaluates the IAM policies of principals.
type Authorizer interface {
	// Decide evaluates the policies of a principal for a request. The account itself may do everything.
	Decide(p credential.Principal, r policy.Request) policy.Decision
}

// RequiredPermission is a permission that a caller needs for a request to succeed.
type RequiredPermission struct {
	// Action with its service, "iam:PassRole"; empty = the request's own.
	Action string
	// Resource is an ARN; empty = *, for actions that know no resources.
	Resource string
	// Keys are the condition keys besides those that every request has.
	Keys policy.Keys
}

// Authorize returns the service's access denied error unless the caller has all of these permissions.
func (r *Request) Authorize(needs ...RequiredPermission) error {
	r.authorized = true
	if r.server == nil || r.server.cfg.Authorizer == nil {
		return nil
	}
	for _, n := range needs {
		if n.Action == "" {
			n.Action = r.Service + ":" + r.Action
		}
		if n.Resource == "" {
			n.Resource = "*"
		}
		request := policy.Request{Action: n.Action, Resource: n.Resource, Keys: r.keys(n.Keys)}
		if d := r.server.cfg.Authorizer.Decide(r.Principal, request); d != policy.Allowed {
			return r.denied(n, d)
		}
	}
	return nil
}

// Enforced reports whether the server enforces IAM policies.
func (r *Request) Enforced() bool { return r.server != nil && r.server.cfg.Authorizer != nil }

// keys are the condition keys of a request, with more.
func (r *Request) keys(more policy.Keys) policy.Keys {
	keys := policy.Keys{}
	keys.Put("aws:RequestedRegion", r.signedRegion)
	keys.Put("aws:PrincipalAccount", r.Principal.AccountID)
	keys.Put("aws:PrincipalArn", r.Principal.ARN)
	keys.Put("aws:PrincipalType", "Account")
	if r.Principal.RoleARN != "" {
		keys.Put("aws:PrincipalArn", r.Principal.RoleARN)
		keys.Put("aws:PrincipalType", "AssumedRole")
	}
	keys.Put("aws:userid", r.Principal.UserID)
	if r.Service == "ec2" {
		keys.Put("ec2:Region", r.Region)
	}
	for name, values := range more {
		keys.Put(name, values...)
	}
	return keys
}

// denied returns the service's access denied error.
func (r *Request) denied(n RequiredPermission, d policy.Decision) error {
	on := " on resource: " + n.Resource
	if n.Resource == "*" && r.Service == "ec2" {
		on = "" // EC2 does not name what is not a resource
	}
	text := fmt.Sprintf("User: %s is not authorized to perform: %s%s %s", r.Principal.ARN, n.Action, on, d.Because(n.Action))
	switch svc := r.server.services[r.Service]; {
	case svc.Protocol == EC2Query:
		// AWS encrypts this message for sts:DecodeAuthorizationMessage; here it is plain base64.
		encoded := base64.RawURLEncoding.EncodeToString([]byte(text))
		return Errorf(
			"UnauthorizedOperation",
			"You are not authorized to perform this operation. %s. Encoded authorization failure message: %s",
			text,
			encoded,
		).
			WithStatus(
				http.StatusForbidden,
			)
	case svc.Protocol == AWSQuery:
		return Errorf("AccessDenied", "%s", text).WithStatus(http.StatusForbidden)
	case svc.Protocol == RESTJSON:
		return Errorf("AccessDeniedException", "%s", text).WithStatus(http.StatusForbidden)
	case svc.Protocol == JSON10:
		e := Errorf("AccessDeniedException", "%s", text).WithStatus(http.StatusForbidden)
		e.QueryCode = "AccessDenied"
		return e
	default:
		return Errorf("AccessDeniedException", "%s", text)
	}
}

// authorizeDefault checks the permissions of an action with a handler that does not check them itself.
func (s *Server) authorizeDefault(svc *Service, r *Request) error {
	if s.cfg.Authorizer == nil || svc.authorizes(r.Action) || !r.signed {
		return nil // what is unsigned is judged by other proofs
	}
	if svc.Permissions == nil {
		return r.Authorize(RequiredPermission{})
	}
	return r.Authorize(svc.Permissions(r)...)
}

func (s *Service) authorizes(action string) bool {
	for _, a := range s.Authorizes {
		if a == action {
			return true
		}
	}
	return false
}

// FormTags reads the tags of a query request: PREFIX.1.Key and PREFIX.1.Value, and so on.
func (r *Request) FormTags(prefix string) map[string]string {
	tags := map[string]string{}
	for name := range r.Form {
		if stem, ok := strings.CutSuffix(name, ".Key"); ok && strings.HasPrefix(stem, prefix+".") {
			tags[r.Form.Get(name)] = r.Form.Get(stem + ".Value")
		}
	}
	return tags
}
