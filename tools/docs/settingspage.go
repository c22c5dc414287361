package docs

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dovetail-k8s/dovetail/internal/settings"
	"github.com/dovetail-k8s/dovetail/internal/settings/chartvalue"
)

// settingsPage is docs/settings.md: each setting of the controller, and how it is set.
func settingsPage() string {
	var s settings.Settings
	flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	s.Bind(flags, func(string) string { return "" })
	var out strings.Builder
	out.WriteString(generated + `# Settings

Set a setting by its value of the [Helm chart](../deploy/chart/dovetail/README.md). A process without the chart takes an environment
variable or a flag; the flag wins. Names and defaults are Karpenter's where Karpenter has the setting ([compatibility](compatibility.md)
lists the others). A setting that cannot work stops the controller at the start, with the name of the setting.

| Flag | Environment variable | Value of the chart | Default | Meaning |
|---|---|---|---|---|
`)
	flags.VisitAll(func(f *pflag.Flag) {
		chart := "none"
		if value := chartvalue.Of(f.Name); value != "" {
			chart = code(value)
		}
		standard := "none"
		if f.DefValue != "" {
			standard = code(f.DefValue)
		}
		variable := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		fmt.Fprintf(&out, "| `--%s` | `%s` | %s | %s | %s |\n", f.Name, variable, chart, standard, text(f.Usage))
	})
	out.WriteString(`
## Feature gates

The chart has a value for each gate. As text, a setting has gates as ` + "`Name=true,Other=false`" + `. All gates are off by default except
ReservedCapacity. An unknown gate has no effect, as in Karpenter; the log names it at the start, with the gate that was probably meant.

`)
	fmt.Fprintf(&out, "Known gates: `%s`.\n", strings.Join(settings.KnownGates(), "`, `"))
	return out.String()
}
