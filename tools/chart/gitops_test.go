package chart

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Every object of the charts, as the Argo CD example installs them, is in the wave of its chart.
func TestArgoCDExampleHasEveryObjectInItsWave(t *testing.T) {
	text, err := os.ReadFile("../../examples/argocd/application.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var app struct {
		Spec struct {
			Sources []struct {
				Chart string
				Helm  struct {
					ReleaseName  string
					ValuesObject map[string]any
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &app); err != nil {
		t.Fatal(err)
	}
	waves := map[string]string{"dovetail-crd": "-2", "dovetail": "-1"}
	seen := 0
	for _, source := range app.Spec.Sources {
		if source.Chart == "" {
			continue
		}
		rendered, err := release{source.Chart, source.Helm.ReleaseName, "kube-system"}.render(source.Helm.ValuesObject)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range rendered {
			if strings.HasSuffix(name, "NOTES.txt") {
				if strings.Contains(text, "WARNING") {
					t.Error(text)
				}
				continue
			}
			for doc := range strings.SplitSeq(text, "\n---\n") {
				if strings.TrimSpace(strings.Trim(doc, "- \n")) == "" {
					continue
				}
				seen++
				metadata, _ := valuesOf(t, doc)["metadata"].(map[string]any)
				annotations, _ := metadata["annotations"].(map[string]any)
				if got := annotations["argocd.argoproj.io/sync-wave"]; got != waves[source.Chart] {
					t.Errorf("%s: %v is in the wave %v", name, metadata["name"], got)
				}
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d objects", seen)
	}
}
