package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	k8syaml "sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/internal/aws/interruption"
)

// clusterConfig is the part of eksctl's ClusterConfig (eksctl.io/v1alpha5) that the example uses, under eksctl's names.
type clusterConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name    string            `json:"name"`
		Region  string            `json:"region"`
		Version string            `json:"version"`
		Tags    map[string]string `json:"tags"`
	} `json:"metadata"`
	AccessConfig struct {
		AuthenticationMode string `json:"authenticationMode"`
		AccessEntries      []struct {
			PrincipalARN string `json:"principalARN"`
			Type         string `json:"type"`
		} `json:"accessEntries"`
	} `json:"accessConfig"`
	IAM struct {
		PodIdentityAssociations []struct {
			Namespace          string `json:"namespace"`
			ServiceAccountName string `json:"serviceAccountName"`
			RoleARN            string `json:"roleARN"`
		} `json:"podIdentityAssociations"`
	} `json:"iam"`
	Addons []struct {
		Name string `json:"name"`
	} `json:"addons"`
	ManagedNodeGroups []struct {
		Name              string `json:"name"`
		AMIFamily         string `json:"amiFamily"`
		InstanceType      string `json:"instanceType"`
		MinSize           int    `json:"minSize"`
		DesiredCapacity   int    `json:"desiredCapacity"`
		MaxSize           int    `json:"maxSize"`
		PrivateNetworking bool   `json:"privateNetworking"`
	} `json:"managedNodeGroups"`
}

// example reads a file of the examples, with the variables of the documentation replaced.
func example(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root, "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	replaced := strings.NewReplacer("${CLUSTER_NAME}", "shop", "${AWS_REGION}", "eu-west-1", "${AWS_ACCOUNT_ID}", "111122223333").
		Replace(string(text))
	return []byte(replaced)
}

// What the eksctl file names is what resources.yaml creates and the chart installs.
func TestEksctl(t *testing.T) {
	var c clusterConfig
	text := example(t, "eksctl/cluster.yaml")
	if err := k8syaml.UnmarshalStrict(text, &c); err != nil {
		t.Fatal(err)
	}
	if left := regexp.MustCompile(`\$\{.*?\}`).Find(text); left != nil {
		t.Errorf("the documentation sets no %s", left)
	}
	resources := cloudFormation(t)
	role := func(logical string) string {
		return "arn:aws:iam::111122223333:role/" + strings.ReplaceAll(resources.property(t, logical, "RoleName"), "${ClusterName}", "shop")
	}
	if got := c.AccessConfig.AccessEntries[0]; got.PrincipalARN != role("NodeRole") || got.Type != "EC2_LINUX" {
		t.Errorf("access entry %+v", got)
	}
	identity := c.IAM.PodIdentityAssociations[0]
	if identity.RoleARN != role("ControllerRole") || identity.Namespace != "kube-system" || identity.ServiceAccountName != "dovetail" {
		t.Errorf("pod identity association %+v", identity)
	}
	var addons []string
	for _, a := range c.Addons {
		addons = append(addons, a.Name)
	}
	if !slices.Contains(addons, "eks-pod-identity-agent") || c.Metadata.Tags["karpenter.sh/discovery"] != c.Metadata.Name {
		t.Errorf("add-ons %v, tags %v", addons, c.Metadata.Tags)
	}
	if group := c.ManagedNodeGroups[0]; group.MinSize < 2 || group.MinSize > group.DesiredCapacity || group.DesiredCapacity > group.MaxSize {
		t.Errorf("the replicas of the controller need two nodes: %+v", group)
	}
}

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
