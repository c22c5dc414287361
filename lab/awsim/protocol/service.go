package protocol

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
)

// Protocol is how a service reads requests and writes answers.
type Protocol int

// The protocols.
const (
	EC2Query Protocol = iota + 1
	AWSQuery
	JSON10
	JSON11
	RESTJSON
)

// Service is one AWS API.
type Service struct {
	// Name as in the credential scope: "ec2", "iam", "sts", "ssm", "eks", "sqs", "pricing".
	Name     string
	Protocol Protocol
	// Version is the API version of the query protocols (parameter Version and the XML namespace).
	Version string
	// Namespace is the XML namespace of answers in the query protocols.
	Namespace string
	// Global services accept a signature for any region.
	Global bool
	// Handlers by action name.
	Handlers map[string]Handler
	// Routes find the action of a RESTJSON request.
	Routes []Route
	// Bucket returns the rate limit that an action counts against; nil = the service has none.
	Bucket func(action string) Bucket
	// Unsigned are the actions that need no signature (sts:AssumeRoleWithWebIdentity).
	Unsigned []string
	// Permissions returns what a caller must be allowed to do for a request; nil = the action itself, whatever the
	// resource. No needs = everybody may.
	Permissions func(r *Request) []RequiredPermission
	// Authorizes lists the actions with handlers that call Request.Authorize themselves, since only they know the
	// resources.
	Authorizes []string
}

// Handler performs one action. The result is encoded in the service's protocol; nil is the empty answer.
// An error that is not an *Error is answered as an internal error.
type Handler func(r *Request) (any, error)

// Route gives the action of a REST request.
type Route struct {
	Method string
	// Path with variables in braces: "/clusters/{name}/access-entries/{principalArn}". A variable matches one
	// segment, percent-decoded.
	Path   string
	Action string
	// Query are the parameters that the action takes in the query string; others are rejected.
	Query []string
}

// Request is one API call before its handler runs.
type Request struct {
	HTTP    *http.Request
	Service string
	Region  string
	Action  string
	// Principal is who signed; Anonymous for the unsigned actions.
	Principal credential.Principal
	// Presigned reports that the signature was in the query string.
	Presigned bool
	Body      []byte
	// Form holds the parameters of the query protocols, without Action, Version and signature.
	Form url.Values
	// Path holds the variables of the route in RESTJSON.
	Path map[string]string
	// ID is the request ID in the answer.
	ID string

	resources []string

	server       *Server
	signedRegion string
	signed       bool
	authorized   bool // Authorize was called
}

// Touch records the IDs of resources that the call was about, for the log of calls.
func (r *Request) Touch(ids ...string) { r.resources = append(r.resources, ids...) }

// route returns the route and path variables of a REST request.
func (s *Service) route(r *http.Request) (Route, map[string]string, bool) {
	segments := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	for _, candidate := range s.Routes {
		if candidate.Method != r.Method {
			continue
		}
		if vars, ok := matchPath(strings.Split(strings.Trim(candidate.Path, "/"), "/"), segments); ok {
			return candidate, vars, true
		}
	}
	return Route{}, nil, false
}

// check rejects parameters in the query string that the action does not take.
func (r Route) check(query url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(signedParams, name) && !slices.Contains(r.Query, name) {
			return Errorf("InvalidParameterException", "Unknown parameter %s", name)
		}
	}
	return nil
}

func matchPath(pattern, segments []string) (map[string]string, bool) {
	if len(pattern) != len(segments) {
		return nil, false
	}
	vars := map[string]string{}
	for i, p := range pattern {
		if !strings.HasPrefix(p, "{") {
			if p != segments[i] {
				return nil, false
			}
			continue
		}
		value, err := url.PathUnescape(segments[i])
		if err != nil || value == "" {
			return nil, false
		}
		vars[strings.Trim(p, "{}")] = value
	}
	return vars, true
}
