package chart

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// Null takes a default away: operators write it to drop a value of another file. The chart renders without it, or states in a sentence what
// is missing. Helm renders an absent value as nothing, and `<no value>` in the middle of a text.
func TestAnyValueMayBeNull(t *testing.T) {
	c, err := loader.Load(filepath.Join(charts, "dovetail"))
	if err != nil {
		t.Fatal(err)
	}
	seen, refused := 0, []string{}
	for _, v := range values(t, "dovetail") {
		seen++
		given := set(valuesOf(t, "{settings: {clusterName: a}}"), strings.Split(v.String(), "."), nil)
		all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "dovetail", Namespace: "kube-system", IsInstall: true}, nil)
		if err != nil {
			refused = append(refused, v.String())
			if !strings.Contains(err.Error(), "missing property '"+v.Name()+"'") {
				t.Errorf("%s: %v", v, err)
			}
			continue
		}
		rendered, err := engine.Render(c, all)
		if err != nil {
			refused = append(refused, v.String())
			if !strings.Contains(err.Error(), "required") {
				t.Errorf("%s: %v", v, err)
			}
		}
		for name, text := range rendered {
			if strings.Contains(text, "<no value>") || strings.Contains(text, "<nil>") {
				t.Errorf("%s: %s has the text of a missing value", v, name)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d values", seen)
	}
	want := []string{
		"serviceAccount.create", "controller", "controller.containerName", "controller.image", "controller.image.repository", "controller.metrics",
		"controller.metrics.port", "controller.healthProbe", "controller.healthProbe.port", "settings", "settings.clusterName",
	}
	if diff := cmp.Diff(want, refused); diff != "" {
		t.Errorf("refused (-want +got)\n%s", diff)
	}
}
