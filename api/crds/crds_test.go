package crds_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/dovetail-k8s/dovetail/api/crds"
)

// What kubectl shows of each kind: names, columns, subresources.
func TestFaces(t *testing.T) {
	condition := func(typ string) string { return fmt.Sprintf(`.status.conditions[?(@.type=="%s")].status`, typ) }
	type face struct {
		Kind, Plural, Scope string
		Short, Categories   []string
		Columns             []string
		Scale               bool
	}
	want := []face{
		{
			Kind: "CapacityBuffer", Plural: "capacitybuffers", Scope: "Namespaced", Short: []string{"cb"}, Categories: []string{"autoscaling"},
			Columns: []string{
				"0 Strategy string .spec.provisioningStrategy",
				"0 PodTemplate string .status.podTemplateRef.name",
				"0 Replicas integer .status.replicas",
				"0 ConditionsType string .status.conditions[*].type",
				"0 ConditionsStatus string .status.conditions[*].status",
				"0 ConditionsReason string .status.conditions[*].reason",
				"0 Age date .metadata.creationTimestamp",
			},
		},
		{
			Kind: "EC2NodeClass", Plural: "ec2nodeclasses", Scope: "Cluster", Short: []string{"ec2nc", "ec2ncs"}, Categories: []string{"karpenter"},
			Columns: []string{
				"0 Ready string " + condition("Ready"),
				"0 Age date .metadata.creationTimestamp",
				"1 Role string .spec.role",
			},
		},
		{
			Kind: "NodeClaim", Plural: "nodeclaims", Scope: "Cluster", Categories: []string{"karpenter"},
			Columns: []string{
				`0 Type string .metadata.labels.node\.kubernetes\.io/instance-type`,
				`0 Capacity string .metadata.labels.karpenter\.sh/capacity-type`,
				`0 Zone string .metadata.labels.topology\.kubernetes\.io/zone`,
				"0 Node string .status.nodeName",
				"0 Ready string " + condition("Ready"),
				"0 Age date .metadata.creationTimestamp",
				"1 ImageID string .status.imageID",
				"1 ID string .status.providerID",
				`1 NodePool string .metadata.labels.karpenter\.sh/nodepool`,
				"1 NodeClass string .spec.nodeClassRef.name",
				"1 Drifted string " + condition("Drifted"),
			},
		},
		{
			Kind: "NodeOverlay", Plural: "nodeoverlays", Scope: "Cluster", Short: []string{"overlays"}, Categories: []string{"karpenter"},
			Columns: []string{
				"0 Ready string " + condition("Ready"),
				"0 Age date .metadata.creationTimestamp",
				"1 Weight integer .spec.weight",
			},
		},
		{
			Kind: "NodePool", Plural: "nodepools", Scope: "Cluster", Categories: []string{"karpenter"}, Scale: true,
			Columns: []string{
				"0 NodeClass string .spec.template.spec.nodeClassRef.name",
				"0 Nodes string .status.nodes",
				"0 Ready string " + condition("Ready"),
				"0 Age date .metadata.creationTimestamp",
				"0 Disrupted string .status.disruption.disrupted",
				"0 Drifted string .status.disruption.drifted",
				"0 Budget string .status.disruption.allowed",
				"1 Weight integer .spec.weight",
				"1 CPU string .status.resources.cpu",
				"1 Memory string .status.resources.memory",
			},
		},
	}
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	var got []face
	for _, crd := range all {
		names, version := crd.Spec.Names, crd.Spec.Versions[0]
		f := face{Kind: names.Kind, Plural: names.Plural, Scope: string(crd.Spec.Scope), Short: names.ShortNames, Categories: names.Categories}
		for _, c := range version.AdditionalPrinterColumns {
			f.Columns = append(f.Columns, fmt.Sprintf("%d %s %s %s", c.Priority, c.Name, c.Type, c.JSONPath))
		}
		if version.Subresources == nil || version.Subresources.Status == nil {
			t.Errorf("%s has no subresource status", names.Kind)
		}
		if scale := version.Subresources.Scale; scale != nil {
			f.Scale = true
			want := apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.nodes"}
			if diff := cmp.Diff(want, *scale); diff != "" {
				t.Errorf("scale of %s (-want +got):\n%s", names.Kind, diff)
			}
		}
		got = append(got, f)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDefinitionsFollowFromTheTypes(t *testing.T) {
	dir := t.TempDir()
	run(t, "go", "run", "./internal/generate", "-out", dir)
	compare(t, dir, ".", "*.yaml")
}

func TestDeepCopiesFollowFromTheTypes(t *testing.T) {
	for _, pkg := range []string{"karpenter/v1", "karpenter/v1alpha1", "autoscaling/v1beta1", "aws/v1"} {
		t.Run(pkg, func(t *testing.T) {
			dir := t.TempDir()
			run(t, "go", "tool", "controller-gen", "object", "paths=../"+pkg, "output:object:dir="+dir)
			compare(t, dir, filepath.Join("..", pkg), "zz_generated*.go")
		})
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// compare finds the same files in two directories, or reports what to do.
func compare(t *testing.T, fresh, committed, pattern string) {
	t.Helper()
	names := func(dir string) (names []string) {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			names = append(names, filepath.Base(p))
		}
		return names
	}
	want := names(fresh)
	if len(want) == 0 {
		t.Fatal("nothing was generated")
	}
	if diff := cmp.Diff(want, names(committed)); diff != "" {
		t.Fatalf("run `make generate`: files (-generated +committed):\n%s", diff)
	}
	for _, name := range want {
		a, err := os.ReadFile(filepath.Join(fresh, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(committed, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("run `make generate`: %s is not what the types say:\n%s", name, cmp.Diff(string(a), string(b)))
		}
	}
}

func TestEachKindIsFound(t *testing.T) {
	all, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range all {
		if got, err := crds.Of(want.Spec.Group, want.Spec.Names.Kind); err != nil || got.Name != want.Name {
			t.Errorf("%s in %s: %v, %v", want.Spec.Names.Kind, want.Spec.Group, got, err)
		}
	}
	if got, err := crds.Of("karpenter.sh", "Provisioner"); err == nil {
		t.Errorf("found %s", got.Name)
	}
}
