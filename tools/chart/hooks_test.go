package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// helm test runs the doctor from the controller's image with the controller's identity, and nothing else selects its pod.
func TestHelmTestRunsTheDoctor(t *testing.T) {
	for name, values := range map[string]string{
		"default":      "{settings: {clusterName: shop}}",
		"by variables": "{controller: {env: [{name: CLUSTER_NAME, value: shop}, {name: AWS_REGION, value: eu-west-1}]}}",
	} {
		pod := decoded[corev1.Pod](t, file(t, "tests/doctor.yaml", values))
		deployment := decoded[appsv1.Deployment](t, file(t, "deployment.yaml", values))
		if pod.Annotations["helm.sh/hook"] != "test" || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("%s: the pod is no test: %v", name, pod.Annotations)
		}
		its, controllers := pod.Spec.Containers[0], deployment.Spec.Template.Spec.Containers[0]
		if its.Image != controllers.Image || pod.Spec.ServiceAccountName != deployment.Spec.Template.Spec.ServiceAccountName {
			t.Errorf("%s: %s as %s", name, its.Image, pod.Spec.ServiceAccountName)
		}
		if diff := cmp.Diff(controllers.SecurityContext, its.SecurityContext); diff != "" {
			t.Errorf("%s: security (-controller +test)\n%s", name, diff)
		}
		if !slices.Equal(its.Args, []string{"doctor", "--fail-on=error"}) {
			t.Errorf("%s: it runs %v", name, its.Args)
		}
		named := slices.DeleteFunc(slices.Clone(its.Env), func(v corev1.EnvVar) bool { return v.Name != "CLUSTER_NAME" })
		if len(named) != 1 || named[0].Value != "shop" {
			t.Errorf("%s: environment %v", name, its.Env)
		}
		selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s: the controller's selector selects the test: %v", name, pod.Labels)
		}
	}
}

// Each dashboard is a ConfigMap that the sidecar of Grafana finds, byte for byte, braces included.
func TestDashboards(t *testing.T) {
	const text = "{\n  \"legendFormat\": \"{{pool}}\",\n  \"title\": \"Überblick\"\n}\n"
	render := func(values string) map[string]corev1.ConfigMap {
		c := withFile(t, "dashboards/extra.json", text)
		options := chartutil.ReleaseOptions{Name: "dovetail", Namespace: "kube-system", IsInstall: true}
		all, err := chartutil.ToRenderValues(c, valuesOf(t, values), options, nil)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := engine.Engine{Strict: true}.Render(c, all)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]corev1.ConfigMap{}
		for doc := range strings.SplitSeq(rendered["dovetail/templates/dashboards.yaml"], "\n---\n") {
			if strings.TrimSpace(doc) != "" {
				m := decoded[corev1.ConfigMap](t, doc)
				out[m.Name] = m
			}
		}
		return out
	}
	if none := render("{settings: {clusterName: shop}}"); len(none) > 0 {
		t.Errorf("nobody wants dashboards, and there are %v", none)
	}
	all := render("{settings: {clusterName: shop}, dashboards: {enabled: true}}")
	shipped, err := filepath.Glob(filepath.Join(charts, "dovetail", "dashboards", "*.json"))
	if err != nil || len(all) != len(shipped)+1 {
		t.Errorf("%d ConfigMaps for %d dashboards and one more (%v)", len(all), len(shipped), err)
	}
	for _, path := range shipped {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Base(path)
		name := "dovetail-dashboard-" + strings.TrimPrefix(strings.TrimSuffix(file, ".json"), "dovetail-")
		if all[name].Data[file] != strings.TrimSpace(string(text)) {
			t.Errorf("%s is not %s", name, file)
		}
	}
	extra := all["dovetail-dashboard-extra"]
	if strings.TrimSpace(extra.Data["extra.json"]) != strings.TrimSpace(text) || extra.Labels["grafana_dashboard"] != "1" {
		t.Errorf("labels %v, text %q", extra.Labels, extra.Data["extra.json"])
	}
	own := "{settings: {clusterName: shop}, dashboards: {enabled: true, folder: Nodes, labels: {find: me}, annotations: {a: b}}}"
	extra = render(own)["dovetail-dashboard-extra"]
	if extra.Labels["find"] != "me" || extra.Annotations["grafana_folder"] != "Nodes" || extra.Annotations["a"] != "b" {
		t.Errorf("labels %v, annotations %v", extra.Labels, extra.Annotations)
	}
}

// Anyone who has no interruption queue reads what that means, and where to learn how to create one.
func TestNotesOnTheInterruptionQueue(t *testing.T) {
	for values, noted := range map[string]bool{
		"{settings: {clusterName: shop}}":                          true,
		"{settings: {clusterName: shop, interruptionQueue: shop}}": false,
	} {
		if notes := file(t, "NOTES.txt", values); strings.Contains(notes, "interruptionQueue is empty") != noted {
			t.Errorf("%s:\n%s", values, notes)
		}
	}
}
