package settings

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A setting that the Helm chart does not pass on cannot be set by most. How it is passed on, tools/chart tests.
func TestTheChartKnowsEverySetting(t *testing.T) {
	const file = "../../deploy/chart/dovetail/templates/_helpers.tpl"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), `{{- define "dovetail.settings" -}}`)
	list, _, _ = strings.Cut(list, "{{- end -}}")
	known := strings.Fields(strings.ToLower(list))
	elsewhere := []string{ // in the chart: of a place of their own, of the container, or without effect
		"log-level", "log-output-paths", "log-error-output-paths", "metrics-port", "metrics-secure", "metrics-cert-dir", "health-probe-port",
		"console-port", "console-cert-dir", "feature-gates", "aws-feature-gates",
		"memory-limit", "cpu-requests", "karpenter-service", "bind-address", "recorder-path",
	}
	var s Settings
	fs := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	s.Bind(fs, func(string) string { return "" })
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(known, strings.ReplaceAll(f.Name, "-", "")) && !slices.Contains(elsewhere, f.Name) {
			t.Errorf("--%s is not in the list of %s: add it there, and with its default to values.yaml", f.Name, file)
		}
	})
}
