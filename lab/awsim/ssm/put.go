package ssm

import (
	"regexp"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

const (
	maxValue = 4096 // bytes, of the standard tier
	maxDepth = 15
)

var imageID = regexp.MustCompile(`^ami-[0-9a-f]{8}([0-9a-f]{9})?$`)

type putInput struct {
	AllowedPattern string
	DataType       string
	Description    string
	KeyID          string `json:"KeyId"`
	Name           string
	Overwrite      bool
	Policies       string
	Tags           []struct{ Key, Value string }
	Tier           string
	Type           string
	Value          string
}

type putOutput struct {
	Tier    string
	Version int64
}

func (s *Store) putParameter(r *protocol.Request, in *putInput) (*putOutput, error) {
	out, err := s.put(in)
	if err == nil {
		r.Touch(in.Name)
	}
	return out, err
}

func (s *Store) put(in *putInput) (*putOutput, error) {
	if err := checkPut(in); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, exists := s.parameters[in.Name]
	switch {
	case exists && !in.Overwrite:
		return nil, protocol.Errorf(
			"ParameterAlreadyExists",
			"The parameter already exists. To overwrite this value, set the overwrite option in the request to true.",
		)
	case !exists && in.Type == "":
		return nil, invalid("A parameter type is required when you create a parameter.")
	case !exists:
		p = &parameter{name: in.Name}
		s.parameters[in.Name] = p
	}
	v := version{kind: in.Type, dataType: in.DataType, value: in.Value, changed: s.cfg.Now()}
	if v.kind == "" {
		v.kind = p.versions[len(p.versions)-1].kind
	}
	if v.dataType == "" {
		v.dataType = "text"
	}
	p.versions = append(p.versions, v)
	return &putOutput{Tier: "Standard", Version: int64(len(p.versions))}, nil
}

func checkPut(in *putInput) error {
	root, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(in.Name, "/")), "/")
	switch {
	case in.Name == "":
		return missing("name")
	case in.Value == "":
		return missing("value")
	case strings.HasPrefix(root, "aws"), strings.HasPrefix(root, "ssm"):
		return protocol.Errorf("AccessDeniedException", "No access to reserved parameter name: %s.", in.Name)
	case !namePattern.MatchString(in.Name) || strings.Contains(in.Name, "//") || strings.HasSuffix(in.Name, "/"):
		return invalid("Parameter name must consist of letters, numbers and the symbols .-_, divided by slashes: %s", in.Name)
	case strings.Contains(in.Name, "/") && !strings.HasPrefix(in.Name, "/"):
		return invalid("Parameter name must be a fully qualified name: %s", in.Name)
	case strings.Count(in.Name, "/") > maxDepth:
		return protocol.Errorf(
			"HierarchyLevelLimitExceededException",
			"A parameter name hierarchy can have a maximum of %d levels.",
			maxDepth,
		)
	case len(in.Value) > maxValue:
		return invalid("Standard tier parameters support a maximum parameter value of %d characters.", maxValue)
	case in.Type != "" && in.Type != "String" && in.Type != "StringList" && in.Type != "SecureString":
		return protocol.Errorf("UnsupportedParameterType", "The parameter type %s is not supported.", in.Type)
	case in.DataType != "" && in.DataType != "text" && in.DataType != "aws:ec2:image":
		return invalid("The following data type is not supported: %s", in.DataType)
	case in.DataType == "aws:ec2:image" && !imageID.MatchString(in.Value):
		return invalid("The value of a parameter of data type aws:ec2:image must be the ID of an image: %s", in.Value)
	case in.Tier != "" && in.Tier != "Standard", in.Policies != "", in.AllowedPattern != "", len(in.Tags) > 0:
		return invalid("The simulator does not support tiers, policies, patterns and tags of parameters")
	}
	return nil
}

type deleteInput struct{ Name string }

func (s *Store) deleteParameter(r *protocol.Request, in *deleteInput) (*struct{}, error) {
	if in.Name == "" {
		return nil, missing("name")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.parameters[in.Name]; !ok || p.public {
		return nil, notFound()
	}
	delete(s.parameters, in.Name)
	r.Touch(in.Name)
	return nil, nil
}
