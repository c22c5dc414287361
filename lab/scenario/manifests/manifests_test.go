package manifests_test

import (
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
)

func TestRender(t *testing.T) {
	text, err := manifests.Render(manifests.Default, map[string]string{"CLUSTER_NAME": "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "role: KarpenterNodeRole-shop\n"; !strings.Contains(string(text), want) {
		t.Errorf("%q is not in:\n%s", want, text)
	}
	if strings.Contains(string(text), "$") {
		t.Errorf("a variable is left in:\n%s", text)
	}
}

func TestRenderErrors(t *testing.T) {
	for _, tt := range []struct{ name, manifest, want string }{
		{"variable", manifests.LimitedPool, "AMI_ID"},
		{"manifest", "none.yaml", "none.yaml"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := manifests.Render(tt.manifest, map[string]string{"CLUSTER_NAME": "shop"})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %s", err, tt.want)
			}
		})
	}
}
