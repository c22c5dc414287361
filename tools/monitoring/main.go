// Monitoring generates Dovetail's Grafana dashboards, draws them with the metrics of a run of the lab, and reports which alerts fire over
// such metrics.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/dashboards"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/picture"
)

// chart is the directory of the Helm chart that ships the dashboards and rules.
const chart = "../../deploy/chart/dovetail"

func main() {
	capture := flag.String("draw", "", "draw the dashboards with the metrics in this file, which dovetail-lab run --metrics-out has written")
	alerts := flag.Bool("alerts", false, "print which alerts fire over the metrics in the files that follow, as JSON")
	images := flag.String("images", "../../docs/images", "directory of the pictures")
	flag.Parse()
	var err error
	switch {
	case *alerts:
		err = printFired(context.Background(), os.Stdout, flag.Args())
	case *capture != "":
		err = draw(context.Background(), *capture, *images)
	default:
		err = generate(filepath.Join(chart, "dashboards"))
	}
	if err != nil {
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

// draw writes a picture of each dashboard.
func draw(ctx context.Context, capture, dir string) error {
	store, err := load(capture)
	if err != nil {
		return err
	}
	from, to := store.Span()
	if err := addAlerts(ctx, store, from, to); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	window := picture.Window{Store: store, From: from, To: to, Scrape: store.Interval()}
	for _, d := range dashboards.All() {
		svg, err := picture.Draw(ctx, d, window)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, d.UID+".svg"), []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// evaluation is the time between two evaluations of the alert rules in pictures.
const evaluation = 15 * time.Second
