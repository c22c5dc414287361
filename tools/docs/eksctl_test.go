package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	k8syaml "sigs.k8s.io/yaml"
)

// eksctlSchema is the schema that eksctl publishes for its files. It knows every field, and refuses all others.
func eksctlSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join("testdata", "eksctl", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// againstSchema is what the schema states about a file of eksctl.
func againstSchema(t *testing.T, schema *jsonschema.Schema, text []byte) error {
	t.Helper()
	asJSON, err := k8syaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value)
}

func TestEksctlFileHasTheSchemaOfEksctl(t *testing.T) {
	schema, text := eksctlSchema(t), string(example(t, "eksctl/cluster.yaml"))
	if err := againstSchema(t, schema, []byte(text)); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"privateNetworking:", "privateNetworkin:", "/managedNodeGroups/0"},
		{"authenticationMode:", "authentificationMode:", "/accessConfig"},
		{"desiredCapacity: 2", "desiredCapacity: two", "/managedNodeGroups/0/desiredCapacity"},
		{"  region: eu-west-1\n", "", "/metadata"},
	} {
		spoiled := strings.Replace(text, tt.old, tt.new, 1)
		if err := againstSchema(t, schema, []byte(spoiled)); spoiled == text || err == nil || !strings.Contains(err.Error(), "'"+tt.want+"'") {
			t.Errorf("with %q: got %v, want an error at %s", tt.new, err, tt.want)
		}
	}
}

// clusterConfig is what the test reads of eksctl's ClusterConfig.
type clusterConfig struct {
	Metadata struct {
		Name string            `json:"name"`
		Tags map[string]string `json:"tags"`
	} `json:"metadata"`
	AccessConfig struct {
		AccessEntries []struct {
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
		MinSize         int `json:"minSize"`
		DesiredCapacity int `json:"desiredCapacity"`
		MaxSize         int `json:"maxSize"`
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
	if err := k8syaml.Unmarshal(text, &c); err != nil {
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
