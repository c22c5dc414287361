package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
)

type named struct {
	Name string `json:"name"`
}

// ociRepository is what the example uses of Flux's OCIRepository.
type ociRepository struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   objectMeta `json:"metadata"`
	Spec       struct {
		URL string `json:"url"`
		Ref struct {
			Tag string `json:"tag"`
		} `json:"ref"`
		Interval      string            `json:"interval"`
		LayerSelector map[string]string `json:"layerSelector"`
		Verify        struct {
			Provider          string              `json:"provider"`
			MatchOIDCIdentity []map[string]string `json:"matchOIDCIdentity"`
		} `json:"verify"`
	} `json:"spec"`
}

type crdsOf struct {
	CRDs string `json:"crds"`
}

// helmRelease is what the example uses of Flux's HelmRelease.
type helmRelease struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   objectMeta `json:"metadata"`
	Spec       struct {
		DependsOn []named `json:"dependsOn"`
		ChartRef  struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"chartRef"`
		ReleaseName      string         `json:"releaseName"`
		TargetNamespace  string         `json:"targetNamespace"`
		StorageNamespace string         `json:"storageNamespace"`
		Interval         string         `json:"interval"`
		Install          crdsOf         `json:"install"`
		Upgrade          crdsOf         `json:"upgrade"`
		Values           map[string]any `json:"values"`
	} `json:"spec"`
}

// kustomization is what the example uses of Flux's Kustomization.
type kustomization struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   objectMeta `json:"metadata"`
	Spec       struct {
		DependsOn        []named           `json:"dependsOn"`
		SourceRef        map[string]string `json:"sourceRef"`
		Path             string            `json:"path"`
		Interval         string            `json:"interval"`
		RetryInterval    string            `json:"retryInterval"`
		Timeout          string            `json:"timeout"`
		Prune            bool              `json:"prune"`
		Wait             bool              `json:"wait"`
		HealthCheckExprs []struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Current    string `json:"current"`
			Failed     string `json:"failed"`
		} `json:"healthCheckExprs"`
	} `json:"spec"`
}

// releases are the repositories and releases of the example, by name.
func releases(t *testing.T) (repositories map[string]ociRepository, out map[string]helmRelease) {
	t.Helper()
	repositories, out = map[string]ociRepository{}, map[string]helmRelease{}
	for _, text := range documents(t, "flux/controller/releases.yaml") {
		var about struct{ Kind string }
		if err := json.Unmarshal(text, &about); err != nil {
			t.Fatal(err)
		}
		switch about.Kind {
		case "OCIRepository":
			r := strictly[ociRepository](t, text)
			repositories[r.Metadata.Name] = r
		case "HelmRelease":
			r := strictly[helmRelease](t, text)
			out[r.Metadata.Name] = r
		default:
			t.Errorf("a %s", about.Kind)
		}
	}
	return repositories, out
}

// The releases install the charts of a release of Dovetail, the definitions first and from their own chart alone.
func TestFluxReleases(t *testing.T) {
	repositories, all := releases(t)
	if len(repositories) != 2 || len(all) != 2 {
		t.Fatalf("%d repositories, %d releases", len(repositories), len(all))
	}
	for name, release := range all {
		repository, ok := repositories[release.Spec.ChartRef.Name]
		if !ok || release.Spec.ChartRef.Kind != "OCIRepository" {
			t.Errorf("%s refers to %+v", name, release.Spec.ChartRef)
		}
		if repository.Spec.URL != ociAddress(name) || release.Spec.ReleaseName != name || release.Spec.TargetNamespace != "kube-system" {
			t.Errorf("%s: %s as %s in %s", name, repository.Spec.URL, release.Spec.ReleaseName, release.Spec.TargetNamespace)
		}
		if release.Spec.Install.CRDs != "Skip" || release.Spec.Upgrade.CRDs != "Skip" {
			t.Errorf("%s: Helm handles the definitions", name)
		}
		checkChart(t, name, repository.Spec.Ref.Tag, release.Spec.Values)
	}
	if got := all["dovetail"].Spec.DependsOn; !slices.Equal(got, []named{{"dovetail-crd"}}) {
		t.Errorf("the controller depends on %v", got)
	}
}

// What verifies the charts is the workflow that signs them.
func TestFluxVerifiesWhatTheWorkflowSigns(t *testing.T) {
	const file = ".github/workflows/release.yml"
	workflow, err := os.ReadFile(filepath.Join(Root, file))
	if err != nil || !strings.Contains(string(workflow), "cosign sign --yes \"$CHARTS/$chart@") {
		t.Fatalf("the workflow signs no charts (%v)", err)
	}
	repositories, _ := releases(t)
	for name, r := range repositories {
		identities := r.Spec.Verify.MatchOIDCIdentity
		if len(identities) != 1 || r.Spec.Verify.Provider != "cosign" {
			t.Errorf("%s: %+v", name, r.Spec.Verify)
			continue
		}
		subject := strings.ReplaceAll(identities[0]["subject"], `\.`, ".")
		if want := "^https://github.com/dovetail-k8s/dovetail/" + file + "@refs/tags/v.*$"; subject != want {
			t.Errorf("%s: %s, want %s", name, subject, want)
		}
	}
}

func kustomizations(t *testing.T) (out []kustomization) {
	t.Helper()
	for _, text := range documents(t, "flux/kustomizations.yaml") {
		out = append(out, strictly[kustomization](t, text))
	}
	return out
}

// Nodes wait for the controller, and each path is a directory of the example.
func TestFluxKustomizations(t *testing.T) {
	var before []named
	for _, k := range kustomizations(t) {
		if !slices.Equal(k.Spec.DependsOn, before) || !k.Spec.Wait {
			t.Errorf("%s depends on %v, waits %v", k.Metadata.Name, k.Spec.DependsOn, k.Spec.Wait)
		}
		before = []named{{k.Metadata.Name}}
		found, err := filepath.Glob(filepath.Join(Root, "examples", "flux", filepath.Base(k.Spec.Path), "*.yaml"))
		if err != nil || len(found) == 0 {
			t.Errorf("%s: the example has nothing for %s (%v)", k.Metadata.Name, k.Spec.Path, err)
		}
	}
	if !slices.Equal(before, []named{{"dovetail-nodes"}}) {
		t.Errorf("the last is %v", before)
	}
}

// A buffer is current when it is ready, has failed when it is not, and is in progress before.
func TestFluxJudgesBuffers(t *testing.T) {
	checks := kustomizations(t)[1].Spec.HealthCheckExprs
	if len(checks) != 1 || checks[0].APIVersion != bufferv1.GroupVersion.String() || checks[0].Kind != "CapacityBuffer" {
		t.Fatalf("%+v", checks)
	}
	env, err := cel.NewEnv(cel.Variable("status", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	holds := func(expression string, state state) bool {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		status, ok := state.object(t)["status"]
		if !ok {
			status = map[string]any{}
		}
		out, _, err := program.Eval(map[string]any{"status": status})
		if err != nil {
			t.Fatalf("%s: %v", state.name, err)
		}
		return out.Value() == true
	}
	seen := 0
	for _, state := range states() {
		if _, buffer := state.of.(*bufferv1.CapacityBuffer); !buffer || state.deleted {
			continue
		}
		seen++
		if got := holds(checks[0].Current, state); got != (state.want == healthy) {
			t.Errorf("%s: current is %v", state.name, got)
		}
		if got := holds(checks[0].Failed, state); got != (state.want == degraded) {
			t.Errorf("%s: failed is %v", state.name, got)
		}
	}
	if seen < 3 {
		t.Errorf("only %d states", seen)
	}
}
