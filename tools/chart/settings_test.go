package chart

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/internal/settings"
	"github.com/dovetail-k8s/dovetail/internal/settings/chartvalue"
)

// path is that of the value of a flag; nil if the chart has none.
func path(flag string) []string {
	value := chartvalue.Of(flag)
	if value == "" {
		return nil
	}
	return strings.Split(value, ".")
}

// environment is what the container of a rendered Deployment is given as text.
func environment(t *testing.T, values map[string]any) map[string]string {
	t.Helper()
	rendered, err := standard.render(values)
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(rendered["dovetail/templates/deployment.yaml"]), &d); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, v := range d.Spec.Template.Spec.Containers[0].Env {
		if _, twice := env[v.Name]; twice {
			t.Errorf("%s is there twice", v.Name)
		}
		env[v.Name] = v.Value
	}
	return env
}

// bound is what the controller makes of an environment.
func bound(t *testing.T, env map[string]string) *pflag.FlagSet {
	t.Helper()
	var s settings.Settings
	fs := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	if unreadable := s.Bind(fs, func(name string) string { return env[name] }); len(unreadable) > 0 {
		t.Errorf("the controller cannot read %v", unreadable)
	}
	if err := s.Validate(); err != nil {
		t.Errorf("the controller refuses its settings: %v", err)
	}
	return fs
}

// Each setting of the controller is a value of the chart, and false and 0 reach it, too.
func TestEverySettingIsAValue(t *testing.T) {
	all := bound(t, map[string]string{"CLUSTER_NAME": "shop"})
	seen := 0
	all.VisitAll(func(f *pflag.Flag) {
		at := path(f.Name)
		if at == nil {
			return
		}
		seen++
		t.Run(f.Name, func(t *testing.T) {
			value, want := another(f)
			values := set(map[string]any{"settings": map[string]any{"clusterName": "shop"}}, at, value)
			if f.Name == "metrics-cert-dir" { // refused alone
				values = set(values, path("metrics-secure"), true)
			}
			if f.Name == "console-cert-dir" {
				values = set(values, path("console-port"), 8484)
			}
			env := environment(t, values)
			if got := bound(t, env).Lookup(f.Name).Value.String(); got != want {
				t.Errorf("%s = %v comes to %q, want %q", strings.Join(at, "."), value, got, want)
			}
		})
	})
	if seen < 30 {
		t.Errorf("only %d settings", seen)
	}
}

// another is a value for a flag that is not its default, and how the flag spells it.
func another(f *pflag.Flag) (value any, want string) {
	texts := map[string]string{
		"cluster-name": "other", "cluster-endpoint": "https://example.com", "cluster-ca-bundle": "Y2E=", "preference-policy": "Ignore",
		"min-values-policy": "BestEffort", "log-level": "debug", "batch-idle-duration": "2s", "batch-max-duration": "20s",
		"recorder-size": "64Mi",
	}
	if text, ok := texts[f.Name]; ok {
		return text, text
	}
	switch f.Name {
	case "log-output-paths", "log-error-output-paths":
		return []any{"stderr", "stdout"}, "stderr,stdout"
	case "feature-gates":
		return map[string]any{
			"nodeOverlay": true,
		}, "CapacityBuffer=false,NodeLifecycleConditions=false,NodeOverlay=true,NodeRepair=false,PodDeletionCostManagement=false,ReservedCapacity=true," +
			"SpotToSpotConsolidation=false,StaticCapacity=false,TerminateFirstDrift=false,TerminateFirstRepair=false"
	case "aws-feature-gates":
		return map[string]any{"nodeClassCEL": true}, "NodeClassCEL=true,RebootForRepair=false"
	case "scheduler-config":
		return map[string]any{"podTopologySpread": map[string]any{}}, `{"podTopologySpread":{}}`
	}
	switch f.Value.Type() {
	case "bool":
		on := f.DefValue != "true"
		return on, strconv.FormatBool(on)
	case "duration":
		return "3m", (3 * time.Minute).String()
	case "float64":
		if f.DefValue != "0" {
			return 0.0, "0"
		}
		return 0.25, "0.25"
	case "int", "int64":
		if f.DefValue != "0" && !strings.HasSuffix(f.Name, "port") {
			return 0.0, "0"
		}
		return 10037.0, "10037"
	default:
		return "x", "x"
	}
}

// set puts a value into a tree.
func set(tree map[string]any, at []string, value any) map[string]any {
	inner := tree
	for _, key := range at[:len(at)-1] {
		next, ok := inner[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			inner[key] = next
		}
		inner = next
	}
	inner[at[len(at)-1]] = value
	return tree
}

// Anyone who sets nothing has the controller's own defaults, and what values.yaml states of them is true.
func TestDefaultsAreTheControllers(t *testing.T) {
	want, got := map[string]string{}, map[string]string{}
	note := func(into map[string]string) func(f *pflag.Flag) {
		return func(f *pflag.Flag) {
			if path(f.Name) != nil && !strings.HasSuffix(f.Name, "feature-gates") {
				into[f.Name] = f.Value.String()
			}
		}
	}
	bound(t, map[string]string{"CLUSTER_NAME": "shop"}).VisitAll(note(want))
	env := environment(t, valuesOf(t, "{settings: {clusterName: shop}}"))
	bound(t, env).VisitAll(note(got))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-controller +chart)\n%s", diff)
	}
	for gate, on := range map[string]bool{"ReservedCapacity": true, "NodeOverlay": false, "StaticCapacity": false, "CapacityBuffer": false} {
		if !strings.Contains(env["FEATURE_GATES"], gate+"="+strconv.FormatBool(on)) {
			t.Errorf("gates are %s", env["FEATURE_GATES"])
		}
	}
}

// A variable of the user's own replaces that of a setting.
func TestVariablesWin(t *testing.T) {
	env := environment(t, valuesOf(t, "{settings: {clusterName: shop}, controller: {env: [{name: BATCH_MAX_DURATION, value: 42s}]}}"))
	if env["BATCH_MAX_DURATION"] != "42s" {
		t.Errorf("BATCH_MAX_DURATION is %q", env["BATCH_MAX_DURATION"])
	}
}

// Resource claims are planned with enableDRA and with each gate of DRA; else as ignoreDRARequests states, which is true by default.
func TestDRA(t *testing.T) {
	for name, tc := range map[string]struct{ values, ignored, gates string }{
		"default":            {"", "true", "NodeClassCEL=false,RebootForRepair=false"},
		"not ignored":        {"ignoreDRARequests: false", "false", "NodeClassCEL=false,RebootForRepair=false"},
		"everything":         {"enableDRA: true", "false", "DRAEFA=true,DRANVIDIAGPU=true,NodeClassCEL=false,RebootForRepair=false"},
		"GPUs":               {"awsFeatureGates: {draNVIDIAGPU: true}", "false", "DRANVIDIAGPU=true,NodeClassCEL=false,RebootForRepair=false"},
		"EFA, and ignored":   {"ignoreDRARequests: true, awsFeatureGates: {draEFA: true}", "false", "DRAEFA=true,NodeClassCEL=false,RebootForRepair=false"},
		"gates that are off": {"awsFeatureGates: {draEFA: false}", "true", "DRAEFA=false,NodeClassCEL=false,RebootForRepair=false"},
	} {
		t.Run(name, func(t *testing.T) {
			env := environment(t, valuesOf(t, "{settings: {clusterName: shop, "+tc.values+"}}"))
			if env["IGNORE_DRA_REQUESTS"] != tc.ignored || env["AWS_FEATURE_GATES"] != tc.gates {
				t.Errorf("IGNORE_DRA_REQUESTS=%s AWS_FEATURE_GATES=%s", env["IGNORE_DRA_REQUESTS"], env["AWS_FEATURE_GATES"])
			}
		})
	}
}
