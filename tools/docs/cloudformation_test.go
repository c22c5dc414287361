package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/dovetail-k8s/dovetail/internal/aws/interruption"
)

// stack is a CloudFormation template.
type stack struct {
	Parameters map[string]yaml.Node `yaml:"Parameters"`
	Resources  map[string]struct {
		Type       string    `yaml:"Type"`
		Properties yaml.Node `yaml:"Properties"`
	} `yaml:"Resources"`
	root yaml.Node
}

func cloudFormation(t *testing.T) (s stack) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root, "examples", "eksctl", "resources.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &s.root); err != nil {
		t.Fatal(err)
	}
	return s
}

// property is the text of a property of a resource.
func (s stack) property(t *testing.T, logical, name string) string {
	t.Helper()
	resource := s.Resources[logical]
	var properties map[string]yaml.Node
	if err := resource.Properties.Decode(&properties); err != nil {
		t.Fatal(err)
	}
	node := properties[name]
	return node.Value
}

// IAM refuses longer names of roles, after half of the stack has been created.
func TestLongestClusterNameFitsIntoNamesOfRoles(t *testing.T) {
	s := cloudFormation(t)
	var name struct {
		MaxLength int `yaml:"MaxLength"`
	}
	parameter := s.Parameters["ClusterName"]
	if err := parameter.Decode(&name); err != nil || name.MaxLength == 0 {
		t.Fatalf("the name has no limit (%v)", err)
	}
	for _, role := range []string{"NodeRole", "ControllerRole"} {
		longest := strings.ReplaceAll(s.property(t, role, "RoleName"), "${ClusterName}", strings.Repeat("x", name.MaxLength))
		if len(longest) > 64 {
			t.Errorf("%s: the name may have %d characters", role, len(longest))
		}
	}
}

var substitution = regexp.MustCompile(`\$\{([^}]*)\}`)

// Every name that the CloudFormation template refers to is in it.
func TestCloudFormationReferencesResolve(t *testing.T) {
	s := cloudFormation(t)
	check := func(name string) {
		name, _, _ = strings.Cut(name, ".")
		_, parameter := s.Parameters[name]
		_, resource := s.Resources[name]
		if !parameter && !resource && !strings.HasPrefix(name, "AWS::") {
			t.Errorf("%s is not declared", name)
		}
	}
	seen := 0
	var walk func(*yaml.Node)
	walk = func(n *yaml.Node) {
		switch n.Tag {
		case "!Ref", "!GetAtt":
			seen++
			check(n.Value)
		case "!Sub":
			for _, match := range substitution.FindAllStringSubmatch(n.Value, -1) {
				seen++
				check(match[1])
			}
		}
		for _, inner := range n.Content {
			walk(inner)
		}
	}
	if walk(&s.root); seen < 10 {
		t.Errorf("only %d references", seen)
	}
}

// The rules of the template send exactly the events that the controller acts on, to the queue.
func TestCloudFormationRulesAreThoseOfTheController(t *testing.T) {
	var got []interruption.Event
	for name, r := range cloudFormation(t).Resources {
		if r.Type != "AWS::Events::Rule" {
			continue
		}
		var rule struct {
			EventPattern struct {
				Source     []string `yaml:"source"`
				DetailType []string `yaml:"detail-type"`
			} `yaml:"EventPattern"`
			Targets []struct {
				ID  string `yaml:"Id"`
				Arn string `yaml:"Arn"`
			} `yaml:"Targets"`
		}
		if err := r.Properties.Decode(&rule); err != nil {
			t.Fatal(err)
		}
		if len(rule.Targets) != 1 || rule.Targets[0].Arn != "InterruptionQueue.Arn" {
			t.Errorf("%s sends to %v", name, rule.Targets)
		}
		got = append(got, interruption.Event{Source: rule.EventPattern.Source[0], DetailType: rule.EventPattern.DetailType[0]})
	}
	if diff := cmp.Diff(interruption.Events(), sorted(got)); diff != "" {
		t.Errorf("(-controller +examples/eksctl)\n%s", diff)
	}
}
