package manifest

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestConformer(t *testing.T) {
	object := func(version, kind string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": "a"}, "spec": spec,
		}}
	}
	class := map[string]any{
		"role": "node", "amiSelectorTerms": []any{map[string]any{"alias": "al2023@latest"}},
		"subnetSelectorTerms":        []any{map[string]any{"id": "subnet-12345"}},
		"securityGroupSelectorTerms": []any{map[string]any{"id": "sg-12345"}},
	}
	with := func(key string, value any) map[string]any {
		out := map[string]any{key: value}
		for k, v := range class {
			if k != key {
				out[k] = v
			}
		}
		return out
	}
	c := NewConformer()
	for _, tt := range []struct {
		name    string
		object  *unstructured.Unstructured
		unknown []string
		invalid string
		err     string
	}{
		{"valid", object("karpenter.k8s.aws/v1", "EC2NodeClass", class), nil, "", ""},
		{"unknown field", object("karpenter.k8s.aws/v1", "EC2NodeClass", with("hibernate", true)), []string{"spec.hibernate"}, "", ""},
		{"wrong value", object("karpenter.k8s.aws/v1", "EC2NodeClass", with("instanceStorePolicy", "RAID5")), nil, "RAID5", ""},
		{"rule", object("karpenter.k8s.aws/v1", "EC2NodeClass", with("instanceProfile", "p")), nil, "spec", ""},
		{"version", object("karpenter.k8s.aws/v1beta1", "EC2NodeClass", class), nil, "", "has no definition"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.Check(tt.object)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("error %v, want %q", err, tt.err)
			}
			if !slices.Equal(got.Unknown, tt.unknown) || (len(got.Invalid) == 0) != (tt.invalid == "") ||
				len(got.Invalid) > 0 && !strings.Contains(got.Invalid.ToAggregate().Error(), tt.invalid) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
