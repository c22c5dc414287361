package docs

import (
	"slices"
	"strconv"
	"testing"
)

// objectMeta is the metadata that the examples use.
type objectMeta struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// application is what the example uses of Argo CD's Application. It has no ignoreDifferences.
type application struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   objectMeta `json:"metadata"`
	Spec       struct {
		Project     string `json:"project"`
		Destination struct {
			Server    string `json:"server"`
			Namespace string `json:"namespace"`
		} `json:"destination"`
		Sources []struct {
			RepoURL        string `json:"repoURL"`
			Chart          string `json:"chart"`
			Path           string `json:"path"`
			TargetRevision string `json:"targetRevision"`
			Helm           struct {
				ReleaseName  string         `json:"releaseName"`
				SkipCRDs     bool           `json:"skipCrds"`
				ValuesObject map[string]any `json:"valuesObject"`
			} `json:"helm"`
		} `json:"sources"`
		SyncPolicy struct {
			Automated struct {
				Prune    bool `json:"prune"`
				SelfHeal bool `json:"selfHeal"`
			} `json:"automated"`
			SyncOptions []string `json:"syncOptions"`
		} `json:"syncPolicy"`
	} `json:"spec"`
}

func argoCD(t *testing.T) application {
	t.Helper()
	all := documents(t, "argocd/application.yaml")
	if len(all) != 1 {
		t.Fatalf("%d objects", len(all))
	}
	return strictly[application](t, all[0])
}

// Definitions come before the controller, the controller before the node class, and that before the NodePool.
func TestArgoCDAppliesInOrder(t *testing.T) {
	var waves []int
	add := func(text any) {
		wave, err := strconv.Atoi(text.(string))
		if err != nil {
			t.Fatal(err)
		}
		waves = append(waves, wave)
	}
	for _, source := range argoCD(t).Spec.Sources {
		if source.Chart != "" {
			add(source.Helm.ValuesObject["additionalAnnotations"].(map[string]any)[syncWave])
		}
	}
	class, pool := nodesOf(t, "argocd")
	add(class.GetAnnotations()[syncWave])
	add(pool.GetAnnotations()[syncWave])
	if want := []int{-2, -1, 0, 1}; !slices.Equal(waves, want) {
		t.Errorf("waves %v, want %v", waves, want)
	}
}

// The Application names the charts of a release, with values that they have. The definitions come from their own chart alone.
func TestArgoCDApplication(t *testing.T) {
	app := argoCD(t)
	if app.APIVersion != "argoproj.io/v1alpha1" || app.Kind != "Application" || app.Spec.Destination.Namespace != "kube-system" {
		t.Errorf("%+v", app)
	}
	var charts []string
	for _, source := range app.Spec.Sources {
		if source.Chart == "" {
			continue
		}
		charts = append(charts, source.Chart)
		checkChart(t, source.Chart, source.TargetRevision, source.Helm.ValuesObject)
		if source.RepoURL != chartRepository || source.Helm.ReleaseName != source.Chart {
			t.Errorf("%s: %s, release %s", source.Chart, source.RepoURL, source.Helm.ReleaseName)
		}
		if own := source.Chart == "dovetail-crd"; source.Helm.SkipCRDs == own {
			t.Errorf("%s: skipCrds is %v", source.Chart, source.Helm.SkipCRDs)
		}
	}
	if want := []string{"dovetail-crd", "dovetail"}; !slices.Equal(charts, want) {
		t.Errorf("charts %v, want %v", charts, want)
	}
	if !slices.Contains(app.Spec.SyncPolicy.SyncOptions, "ServerSideApply=true") {
		t.Errorf("options %v", app.Spec.SyncPolicy.SyncOptions)
	}
}
