package chart

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// The values that dovetail migrate plan translates from a Deployment of Karpenter are valid, and give the controller each setting
// that Karpenter has.
func TestTranslatedValuesKeepEachSetting(t *testing.T) {
	const testdata = "../../internal/migrate/testdata/"
	text, err := os.ReadFile(testdata + "values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := valuesOf(t, string(text))
	objects, err := os.ReadFile(testdata + "sound.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, first, _ := strings.Cut(string(objects), "apiVersion: apps/v1")
	first, _, _ = strings.Cut("apiVersion: apps/v1"+first, "\n---")
	var karpenter appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(first), &karpenter); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, v := range karpenter.Spec.Template.Spec.Containers[0].Env {
		env[v.Name] = v.Value
	}
	env["INTERRUPTION_QUEUE"] = "shop-interruptions" // from a ConfigMap
	before, after := bound(t, env), bound(t, environment(t, values))
	before.VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "karpenter-service", "recorder-path":
			return // has no effect; is not Karpenter's
		}
		if got := after.Lookup(f.Name).Value.String(); got != f.Value.String() && !sameGates(f.Name, got, f.Value.String()) {
			t.Errorf("--%s is %q, and was %q", f.Name, got, f.Value.String())
		}
	})
	rendered, err := release{"dovetail", "dovetail", "karpenter"}.render(values)
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(rendered["dovetail/templates/deployment.yaml"]), &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	if *d.Spec.Replicas != 3 || pod.ServiceAccountName != "karpenter" || len(pod.Tolerations) != 2 || pod.DNSPolicy != "Default" ||
		rendered["dovetail/templates/serviceaccount.yaml"] != "" {
		t.Errorf("the Deployment is %+v", d.Spec)
	}
}

// The step shadow of the plan installs the same values beside Karpenter, with pods of its own and no right to write.
func TestTranslatedValuesRunAShadow(t *testing.T) {
	text, err := os.ReadFile("../../internal/migrate/testdata/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := valuesOf(t, string(text))
	values["nameOverride"] = "dovetail-shadow" // replicas: 3 is for a controller that acts
	values = set(values, []string{"settings", "shadow"}, true)
	rendered, err := release{"dovetail", "dovetail-shadow", "karpenter"}.render(values)
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(rendered["dovetail/templates/deployment.yaml"]), &d); err != nil {
		t.Fatal(err)
	}
	shadow := false
	for _, v := range d.Spec.Template.Spec.Containers[0].Env {
		shadow = shadow || v.Name == "SHADOW" && v.Value == "true"
	}
	if !shadow || d.Name != "dovetail-shadow" || *d.Spec.Replicas != 1 || d.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != "dovetail-shadow" {
		t.Errorf("the Deployment is %s: %+v", d.Name, d.Spec)
	}
}

// sameGates reports whether two texts turn the same gates on and off, in whatever order.
func sameGates(flag, a, b string) bool {
	if !strings.HasSuffix(flag, "feature-gates") {
		return false
	}
	set := func(text string) map[string]bool {
		out := map[string]bool{}
		for entry := range strings.SplitSeq(text, ",") {
			out[entry] = true
		}
		return out
	}
	left, right := set(a), set(b)
	for entry := range left {
		if !right[entry] && !strings.HasSuffix(entry, "=false") {
			return false
		}
	}
	for entry := range right {
		if !left[entry] {
			return false
		}
	}
	return true
}
