// Package policy evaluates identity-based IAM policies.
//
// A Policy is a document in IAM's language; Decide states what policies together make of a request: denied if a Deny
// statement matches, allowed if an Allow statement does, and otherwise not allowed. What the language has and this
// package has not (policy variables, IP addresses, dates, binaries) is rejected when a document is parsed, so that no
// statement means less than it states.
package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Keys are the condition keys of a request with their values. Names are in lower case; Put sees to it. A key that is
// absent is not one that is empty.
type Keys map[string][]string

// Put sets a key.
func (k Keys) Put(name string, values ...string) { k[strings.ToLower(name)] = values }

// Tags sets a key per tag, such as aws:RequestTag/team.
func (k Keys) Tags(prefix string, tags map[string]string) {
	for key, value := range tags {
		k.Put(prefix+key, value)
	}
}

// Request is one thing that somebody wants to do.
type Request struct {
	Action   string // "ec2:RunInstances"
	Resource string // an ARN, or * for an action that knows no resources
	Keys     Keys
}

// Decision is what policies make of a request.
type Decision int

// The decisions. A request that no statement speaks of is Unspoken, which rejects it.
const (
	Unspoken Decision = iota
	Allowed
	Denied
	// What an organization or a permissions boundary makes of it, which Decide does not query.
	DeniedByOrganization
	UnspokenByOrganization
	DeniedByBoundary
	UnspokenByBoundary
)

// Because words why a decision that is not Allowed rejects an action.
func (d Decision) Because(action string) string {
	switch d {
	case Denied:
		return "with an explicit deny in an identity-based policy"
	case DeniedByOrganization:
		return "with an explicit deny in a service control policy"
	case DeniedByBoundary:
		return "with an explicit deny in a permissions boundary"
	case UnspokenByOrganization:
		return "because no service control policy allows the " + action + " action"
	case UnspokenByBoundary:
		return "because no permissions boundary allows the " + action + " action"
	default:
		return "because no identity-based policy allows the " + action + " action"
	}
}

// Policy is a document that was understood.
type Policy struct{ statements []statement }

// Decide evaluates policies for a request.
func Decide(policies []*Policy, r Request) Decision {
	decision := Unspoken
	for _, p := range policies {
		for _, s := range p.statements {
			switch {
			case !s.matches(r):
			case !s.allows:
				return Denied
			default:
				decision = Allowed
			}
		}
	}
	return decision
}

// statement is a statement that was understood.
type statement struct {
	allows     bool
	actions    patterns // in lower case
	resources  patterns
	conditions []condition
}

// patterns match what one of them matches, or what none does.
type patterns struct {
	any    []string
	except bool
}

func (p patterns) match(value string) bool {
	for _, pattern := range p.any {
		if Like(pattern, value) {
			return !p.except
		}
	}
	return p.except
}

func (s statement) matches(r Request) bool {
	if !s.actions.match(strings.ToLower(r.Action)) || !s.resources.match(r.Resource) {
		return false
	}
	for _, c := range s.conditions {
		if !c.holds(r.Keys) {
			return false
		}
	}
	return true
}

// raw is a statement as it is written.
type raw struct {
	Sid          string
	Effect       string
	Action       oneOrMany
	NotAction    oneOrMany
	Resource     oneOrMany
	NotResource  oneOrMany
	Principal    json.RawMessage
	NotPrincipal json.RawMessage
	Condition    map[string]map[string]oneOrMany
}

// Parse parses a document. The error names what is wrong with it.
func Parse(document string) (*Policy, error) {
	var text struct {
		Version   string
		ID        string `json:"Id"`
		Statement json.RawMessage
	}
	if err := strict(document, &text); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if text.Version != "" && text.Version != "2012-10-17" && text.Version != "2008-10-17" {
		return nil, errors.New("the policy must contain a valid version string")
	}
	var list []raw
	if strings.HasPrefix(string(text.Statement), "{") {
		list = make([]raw, 1)
		if err := strict(string(text.Statement), &list[0]); err != nil {
			return nil, fmt.Errorf("statement: %w", err)
		}
	} else if err := strict(string(text.Statement), &list); err != nil {
		return nil, fmt.Errorf("statements: %w", err)
	}
	if len(list) == 0 {
		return nil, errors.New("a policy needs a statement")
	}
	p := &Policy{}
	sids := map[string]bool{}
	for i, r := range list {
		if r.Sid != "" && sids[r.Sid] {
			return nil, fmt.Errorf("statement IDs (SID) in a single policy must be unique: %s", r.Sid)
		}
		sids[r.Sid] = true
		s, err := r.compile()
		if err != nil {
			return nil, fmt.Errorf("statement %d (%s): %w", i+1, r.Sid, err)
		}
		p.statements = append(p.statements, s)
	}
	return p, nil
}

// strict reads JSON of which every field is known.
func strict(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func (r raw) compile() (statement, error) {
	s := statement{allows: r.Effect == "Allow"}
	switch {
	case r.Effect != "Allow" && r.Effect != "Deny":
		return s, fmt.Errorf("effect %q is neither Allow nor Deny", r.Effect)
	case r.Principal != nil || r.NotPrincipal != nil:
		return s, errors.New("policy document should not specify a principal")
	case (len(r.Action) > 0) == (len(r.NotAction) > 0):
		return s, errors.New("a statement has Action or NotAction")
	case (len(r.Resource) > 0) == (len(r.NotResource) > 0):
		return s, errors.New("a statement has Resource or NotResource")
	}
	s.actions = patterns{any: append(r.Action, r.NotAction...), except: len(r.NotAction) > 0}
	s.resources = patterns{any: append(r.Resource, r.NotResource...), except: len(r.NotResource) > 0}
	for i, action := range s.actions.any {
		vendor, _, ok := strings.Cut(action, ":")
		if action != "*" && (!ok || vendor == "") {
			return s, fmt.Errorf("action %q must be prefaced by a vendor, e.g., iam, sdb, ec2, etc", action)
		}
		s.actions.any[i] = strings.ToLower(action)
	}
	for _, resource := range s.resources.any {
		if resource != "*" && (!strings.HasPrefix(resource, "arn:") || strings.Count(resource, ":") < 5) {
			return s, fmt.Errorf("resource %q must be in ARN format or \"*\"", resource)
		}
		if strings.Contains(resource, "${") {
			return s, fmt.Errorf("resource %q: the simulator knows no policy variables", resource)
		}
	}
	for operator, tests := range r.Condition {
		for key, values := range tests {
			c, err := newCondition(operator, key, values)
			if err != nil {
				return s, err
			}
			s.conditions = append(s.conditions, c)
		}
	}
	return s, nil
}

// oneOrMany reads a value or a list of them; numbers and booleans are as good as their text.
type oneOrMany []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *oneOrMany) UnmarshalJSON(data []byte) error {
	var many []any
	if !strings.HasPrefix(string(data), "[") {
		many = make([]any, 1)
		if err := json.Unmarshal(data, &many[0]); err != nil {
			return err
		}
	} else if err := json.Unmarshal(data, &many); err != nil {
		return err
	}
	for _, one := range many {
		switch v := one.(type) {
		case string, bool, float64:
			*l = append(*l, fmt.Sprint(v))
		default:
			return fmt.Errorf("%s is not a value", data)
		}
	}
	return nil
}

// Like matches IAM's wildcards: * for any run of characters, ? for one of them.
func Like(pattern, value string) bool {
	p, v := 0, 0
	star, mark := -1, 0 // where to go on if what follows the last star did not match
	for v < len(value) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, v
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == value[v]):
			p++
			v++
		case star >= 0:
			mark++
			p, v = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
