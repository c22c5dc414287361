// Monitoring generates Dovetail's Grafana dashboards, and draws them from the metrics of a run of the lab.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/dashboards"
)

// chart is the directory of the Helm chart that ships the dashboards and rules.
const chart = "../../deploy/chart/dovetail"

func main() {
	if err := generate(filepath.Join(chart, "dashboards")); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

// generate writes the dashboards into a directory.
func generate(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range dashboards.All() {
		text, err := d.JSON()
		if err != nil {
			return fmt.Errorf("dashboard %s: %w", d.UID, err)
		}
		if err := os.WriteFile(filepath.Join(dir, dashboards.File(d)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
