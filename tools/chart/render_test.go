package chart

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew; commit only what you understand")

const charts = "../../deploy/chart"

// release is what a chart is installed as.
type release struct{ chart, name, namespace string }

var standard = release{"dovetail", "dovetail", "kube-system"}

// render returns what Helm makes of a chart, by template, without what has come to nothing.
func (r release) render(values map[string]any) (map[string]string, error) {
	c, err := loader.Load(filepath.Join(charts, r.chart))
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: r.name, Namespace: r.namespace, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(rendered, func(_, text string) bool { return strings.TrimSpace(text) == "" })
	return rendered, nil
}

// manifests are the rendered objects as one file, in the order of their templates.
func (r release) manifests(values map[string]any) (string, error) {
	rendered, err := r.render(values)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if strings.HasSuffix(name, ".yaml") {
			fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", name, strings.Trim(rendered[name], "\n- "))
		}
	}
	return out.String(), nil
}

func valuesOf(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func TestGolden(t *testing.T) {
	for name, r := range map[string]release{
		"default": standard, "everything": {"dovetail", "fleet", "autoscaling"}, "moved": {"dovetail", "karpenter", "karpenter"},
		"crds": {"dovetail-crd", "dovetail-crd", "kube-system"}, "policies": {"dovetail-policies", "dovetail-policies", "kube-system"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", name+".values.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.manifests(valuesOf(t, string(text)))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct{ values, says string }{
		"no cluster name": {"{}", "settings.clusterName is required"},
		"Karpenter's image": {
			"{settings: {clusterName: a}, controller: {image: {repository: public.ecr.aws/karpenter/controller}}}",
			"remove controller.image (repository, tag and digest)",
		},
		"rights for the ServiceAccount of all pods": {
			"{settings: {clusterName: a}, serviceAccount: {create: false}}", "serviceAccount.name is required",
		},
		"all of DRA, and a gate of it": {
			"{settings: {clusterName: a, enableDRA: true, awsFeatureGates: {draNVIDIAGPU: true}}}", "remove settings.awsFeatureGates.draNVIDIAGPU",
		},
		"all of DRA, and a gate of it off": {
			"{settings: {clusterName: a, enableDRA: true, awsFeatureGates: {draEFA: false}}}", "remove settings.awsFeatureGates.draEFA",
		},
		// Case 20 of Karpenter 1.15.
		"all of DRA, and claims ignored": {
			"{settings: {clusterName: a, enableDRA: true, ignoreDRARequests: true}}", "remove settings.ignoreDRARequests",
		},
		"all of DRA, and claims not ignored": {
			"{settings: {clusterName: a, enableDRA: true, ignoreDRARequests: false}}", "remove settings.ignoreDRARequests",
		},
		"repair as before, and terminating first": {
			"{settings: {clusterName: a, legacyNodeRepair: true, featureGates: {terminateFirstRepair: true}}}",
			"remove settings.featureGates.terminateFirstRepair",
		},
	} {
		if _, err := standard.render(valuesOf(t, tc.values)); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v, want %q", name, err, tc.says)
		}
	}
	for name, values := range map[string]string{
		"named by a variable": "{controller: {env: [{name: CLUSTER_NAME, value: a}]}}",
		"named from outside":  "{controller: {envFrom: [{configMapRef: {name: cluster}}]}}",
	} {
		if _, err := standard.render(valuesOf(t, values)); err != nil {
			t.Errorf("cluster %s: %v", name, err)
		}
	}
}

// The same for pods that are kept together or apart, required or preferred.
func TestSelectorsOfAffinity(t *testing.T) {
	const own, other = "{topologyKey: a}", "{topologyKey: b, labelSelector: {matchLabels: {app: other}}}"
	const terms = "{requiredDuringSchedulingIgnoredDuringExecution: [" + own + ", " + other + "], preferredDuringSchedulingIgnoredDuringExecution: [" +
		"{weight: 1, podAffinityTerm: " + own + "}, {weight: 2, podAffinityTerm: " + other + "}]}"
	values := "{settings: {clusterName: a}, affinity: {nodeAffinity: null, podAffinity: " + terms + ", podAntiAffinity: " + terms + "}}"
	d := decoded[appsv1.Deployment](t, file(t, "deployment.yaml", values))
	with, apart := d.Spec.Template.Spec.Affinity.PodAffinity, d.Spec.Template.Spec.Affinity.PodAntiAffinity
	for kind, all := range map[string][]corev1.PodAffinityTerm{
		"affinity, required": with.RequiredDuringSchedulingIgnoredDuringExecution,
		"affinity, preferred": {
			with.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm, with.PreferredDuringSchedulingIgnoredDuringExecution[1].PodAffinityTerm,
		},
		"anti-affinity, required": apart.RequiredDuringSchedulingIgnoredDuringExecution,
		"anti-affinity, preferred": {
			apart.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm, apart.PreferredDuringSchedulingIgnoredDuringExecution[1].PodAffinityTerm,
		},
	} {
		if len(all) != 2 || all[0].LabelSelector == nil || all[1].LabelSelector == nil {
			t.Errorf("%s: %v", kind, all)
			continue
		}
		if diff := cmp.Diff(d.Spec.Selector.MatchLabels, all[0].LabelSelector.MatchLabels); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
		if diff := cmp.Diff(map[string]string{"app": "other"}, all[1].LabelSelector.MatchLabels); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

// Selectors of the user's stay as they are; terms without one are about the controller's own pods.
func TestSelectors(t *testing.T) {
	rendered, err := standard.render(valuesOf(t, `{settings: {clusterName: a}, topologySpreadConstraints: [
		{topologyKey: a, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}, {topologyKey: b, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: other}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(rendered["dovetail/templates/deployment.yaml"]), &d); err != nil {
		t.Fatal(err)
	}
	spread := d.Spec.Template.Spec.TopologySpreadConstraints
	if diff := cmp.Diff(d.Spec.Selector.MatchLabels, spread[0].LabelSelector.MatchLabels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"app": "other"}, spread[1].LabelSelector.MatchLabels); diff != "" {
		t.Error(diff)
	}
}

// Values of older charts of Karpenter have no effect, and do not stop the installation.
func TestUnknownValuesAreNamed(t *testing.T) {
	rendered, err := standard.render(valuesOf(t, "{settings: {clusterName: a, aws: {isolatedVPC: true}}, webhook: {enabled: false}}"))
	if err != nil {
		t.Fatal(err)
	}
	notes := rendered["dovetail/templates/NOTES.txt"]
	for _, want := range []string{"webhook is not known", "settings.aws is not known"} {
		if !strings.Contains(notes, want) {
			t.Errorf("notes do not say %q:\n%s", want, notes)
		}
	}
	if n := strings.Count(notes, "WARNING"); n != 2 {
		t.Errorf("%d warnings:\n%s", n, notes)
	}
}

// All of Karpenter's gates have their effect, so the notes warn about none of them.
func TestNotesNameNoGate(t *testing.T) {
	rendered, err := standard.render(valuesOf(t, `{settings: {clusterName: a, enableDRA: true, awsFeatureGates: {rebootForRepair: true},
		featureGates: {nodeRepair: true, terminateFirstDrift: true, terminateFirstRepair: true, podDeletionCostManagement: true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if text := rendered["dovetail/templates/NOTES.txt"]; strings.Contains(text, "WARNING") {
		t.Errorf("notes: %s", text)
	}
}

// The chart of definitions changes nothing of them but their annotations. They stay when the release is uninstalled, and with them
// all NodePools and NodeClaims.
func TestDefinitionsAsTemplates(t *testing.T) {
	rendered, err := release{"dovetail-crd", "dovetail-crd", "kube-system"}.manifests(valuesOf(t, "{additionalAnnotations: {a: b}}"))
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(rendered, "---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		got := valuesOf(t, doc)
		meta := got["metadata"].(map[string]any)
		plural, group, _ := strings.Cut(meta["name"].(string), ".")
		text, err := os.ReadFile(filepath.Join("../../api/crds", group+"_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		annotations := meta["annotations"].(map[string]any)
		if annotations["a"] != "b" || annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s has the annotations %v", meta["name"], annotations)
		}
		delete(annotations, "a")
		if delete(annotations, "helm.sh/resource-policy"); len(annotations) == 0 {
			delete(meta, "annotations")
		}
		if diff := cmp.Diff(valuesOf(t, string(text)), got); diff != "" {
			t.Errorf("%s (-API +chart)\n%s", meta["name"], diff)
		}
	}
}

// The charts carry the definitions that the API server knows, byte for byte.
func TestDefinitions(t *testing.T) {
	files, err := filepath.Glob("../../api/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d definitions, error %v", len(files), err)
	}
	for _, dir := range []string{"dovetail/crds", "dovetail-crd/files"} {
		there, err := filepath.Glob(filepath.Join(charts, dir, "*"))
		if err != nil || len(there) != len(files) {
			t.Errorf("%s has %d files, want %d (%v)", dir, len(there), len(files), err)
		}
		for _, file := range files {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(charts, dir, filepath.Base(file)))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s/%s is not that of the API (%v)", dir, filepath.Base(file), err)
			}
		}
	}
}
