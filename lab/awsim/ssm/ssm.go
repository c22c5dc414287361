// Package ssm simulates the parameter store of AWS Systems Manager: the public parameters that name AMIs, and
// parameters of the account's own.
package ssm

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Config is what a Store needs.
type Config struct {
	Region    string
	AccountID string
	// Public are the parameters that AWS publishes, with their values.
	Public map[string]string
	// PublicSince is when the public parameters were last changed.
	PublicSince time.Time
	Now         func() time.Time
}

// Store holds the parameters of one account and region. It is safe for concurrent use.
type Store struct {
	cfg Config

	mu         sync.Mutex
	parameters map[string]*parameter // public ones included
}

// parameter is one parameter with all its versions, oldest first.
type parameter struct {
	name     string
	public   bool
	versions []version
}

type version struct {
	kind, dataType, value string
	changed               time.Time
}

// New returns a store with the public parameters.
func New(cfg Config) *Store {
	s := &Store{cfg: cfg, parameters: map[string]*parameter{}}
	for name, value := range cfg.Public {
		s.parameters[name] = &parameter{name: name, public: true, versions: []version{
			{kind: "String", dataType: "text", value: value, changed: cfg.PublicSince},
		}}
	}
	return s
}

// Service returns the API handlers of SSM.
func (s *Store) Service() protocol.Service {
	return protocol.Service{
		Name: "ssm", Protocol: protocol.JSON11, Permissions: s.requiredPermissions,
		Handlers: map[string]protocol.Handler{
			"DeleteParameter":     protocol.JSON(s.deleteParameter),
			"GetParameter":        protocol.JSON(s.getParameter),
			"GetParameters":       protocol.JSON(s.getParameters),
			"GetParametersByPath": protocol.JSON(s.getParametersByPath),
			"PutParameter":        protocol.JSON(s.putParameter),
		},
	}
}

// Put sets a parameter of type String, or another version of it.
func (s *Store) Put(name, value string) error {
	_, err := s.put(&putInput{Name: name, Value: value, Type: "String", Overwrite: true})
	return err
}

// jsonParameter is a parameter in answers.
type jsonParameter struct {
	ARN              string
	DataType         string
	LastModifiedDate float64 // seconds since 1970
	Name             string
	Selector         string `json:",omitempty"`
	Type             string
	Value            string
	Version          int64
}

func (s *Store) json(p *parameter, at int) jsonParameter {
	v := p.versions[at-1]
	account := s.cfg.AccountID
	if p.public {
		account = ""
	}
	return jsonParameter{
		ARN:  "arn:aws:ssm:" + s.cfg.Region + ":" + account + ":parameter/" + strings.TrimPrefix(p.name, "/"),
		Name: p.name, Type: v.kind, DataType: v.dataType, Value: v.value, Version: int64(at),
		LastModifiedDate: float64(v.changed.UnixMilli()) / 1000,
	}
}

var (
	namePattern = regexp.MustCompile(`^[\w./-]+$`)
	selector    = regexp.MustCompile(`^(.*?)(:\d+|:[A-Za-z][\w.-]*)?$`)
)

func invalid(format string, args ...any) error {
	return protocol.Errorf("ValidationException", format, args...)
}

func notFound() error { return protocol.Errorf("ParameterNotFound", "") }

// find reads a name as GetParameter takes it: name or ARN, with an optional ":version". The caller holds the lock.
func (s *Store) find(given string) (jsonParameter, error) {
	if given == "" {
		return jsonParameter{}, missing("name")
	}
	if len(given) > 2048 {
		return jsonParameter{}, invalid(
			"1 validation error detected: Value at 'name' failed to satisfy constraint: Member must have length less than or equal to 2048",
		)
	}
	name, version := given, ""
	prefix := "arn:aws:ssm:" + s.cfg.Region + ":"
	if rest, ok := strings.CutPrefix(given, prefix); ok {
		account, path, _ := strings.Cut(rest, ":parameter")
		if account != "" && account != s.cfg.AccountID {
			return jsonParameter{}, protocol.Errorf("AccessDeniedException", "No access to %s", given)
		}
		name = path
	}
	if m := selector.FindStringSubmatch(name); m != nil {
		name, version = m[1], m[2]
	}
	if !namePattern.MatchString(name) {
		return jsonParameter{}, invalid(
			"Parameter name: can't be prefixed with \"ssm\" (case-insensitive). If formed as a path, it can consist of sub-paths divided by slash symbol; each sub-path can be formed as a mix of letters, numbers and the following 3 symbols .-_",
		)
	}
	p, ok := s.parameters[name]
	if !ok && given != name {
		p, ok = s.parameters[strings.TrimPrefix(name, "/")] // the ARN of a name that is no path
	}
	if !ok {
		return jsonParameter{}, notFound()
	}
	at := len(p.versions)
	if version != "" {
		at = versionNumber(version)
		if at < 1 || at > len(p.versions) {
			return jsonParameter{}, protocol.Errorf(
				"ParameterVersionNotFound",
				"Systems Manager could not find version %s of %s. Verify the version and try again.",
				version[1:],
				p.name,
			)
		}
	}
	out := s.json(p, at)
	out.Selector = version
	return out, nil
}

// versionNumber reads ":3"; labels are never attached here, so that they name no version.
func versionNumber(text string) int {
	n := 0
	for _, digit := range text[1:] {
		if digit < '0' || digit > '9' || n > 1_000_000 {
			return 0
		}
		n = n*10 + int(digit-'0')
	}
	return n
}

type getInput struct {
	Name           string
	WithDecryption bool
}

type getOutput struct{ Parameter jsonParameter }

func (s *Store) getParameter(_ *protocol.Request, in *getInput) (*getOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.find(in.Name)
	if err != nil {
		return nil, err
	}
	return &getOutput{p}, nil
}

type getManyInput struct {
	Names          []string
	WithDecryption bool
}

type getManyOutput struct {
	InvalidParameters []string
	Parameters        []jsonParameter
}

func (s *Store) getParameters(_ *protocol.Request, in *getManyInput) (*getManyOutput, error) {
	if len(in.Names) == 0 {
		return nil, missing("names")
	}
	if len(in.Names) > 10 {
		return nil, invalid(
			"1 validation error detected: Value at 'names' failed to satisfy constraint: Member must have length less than or equal to 10",
		)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &getManyOutput{InvalidParameters: []string{}, Parameters: []jsonParameter{}}
	for i, name := range in.Names {
		if slices.Contains(in.Names[:i], name) {
			return nil, invalid("Duplicate parameters in request: %s", name)
		}
		p, err := s.find(name)
		if err != nil {
			out.InvalidParameters = append(out.InvalidParameters, name)
			continue
		}
		out.Parameters = append(out.Parameters, p)
	}
	return out, nil
}

type byPathInput struct {
	MaxResults       *int
	NextToken        string
	ParameterFilters []struct {
		Key, Option string
		Values      []string
	}
	Path           string
	Recursive      bool
	WithDecryption bool
}

type byPathOutput struct {
	NextToken  string `json:",omitempty"`
	Parameters []jsonParameter
}

func (s *Store) getParametersByPath(_ *protocol.Request, in *byPathInput) (*byPathOutput, error) {
	size := 10
	if in.MaxResults != nil {
		size = *in.MaxResults
	}
	switch {
	case in.Path == "":
		return nil, missing("path")
	case !strings.HasPrefix(in.Path, "/") || !namePattern.MatchString(in.Path):
		return nil, invalid("The parameter path: %s is invalid. It must begin with a slash.", in.Path)
	case size < 1 || size > 10:
		return nil, invalid(
			"1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: Member must have value between 1 and 10",
			size,
		)
	case len(in.ParameterFilters) > 0:
		return nil, protocol.Errorf("InvalidFilterKey", "The simulator does not support parameter filters")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.below(strings.TrimSuffix(in.Path, "/")+"/", in.Recursive)
	if in.NextToken != "" {
		at, found := slices.BinarySearch(names, in.NextToken)
		if !found {
			return nil, protocol.Errorf("InvalidNextToken", "The specified token is not valid.")
		}
		names = names[at:]
	}
	out := &byPathOutput{Parameters: []jsonParameter{}}
	if len(names) > size {
		out.NextToken, names = names[size], names[:size]
	}
	for _, name := range names {
		p := s.parameters[name]
		out.Parameters = append(out.Parameters, s.json(p, len(p.versions)))
	}
	return out, nil
}

// below returns the sorted names below a path that finishes in a slash.
func (s *Store) below(path string, recursive bool) []string {
	var names []string
	for name := range s.parameters {
		if rest, ok := strings.CutPrefix(name, path); ok && (recursive || !strings.Contains(rest, "/")) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func missing(member string) error {
	return invalid("1 validation error detected: Value null at '%s' failed to satisfy constraint: Member must not be null", member)
}
