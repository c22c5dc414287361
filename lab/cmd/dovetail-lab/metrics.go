package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/dovetail-k8s/dovetail/lab/scenario"
	"github.com/dovetail-k8s/dovetail/lab/scenario/capture"
)

// metricsOptions are the flags of the command run that record the controllers' metrics.
type metricsOptions struct {
	out, match string
	interval   time.Duration

	matching *regexp.Regexp
}

// defaultMetricsInterval shows a change of a metric about when a person would see it in the lab, where a scenario takes a minute.
const defaultMetricsInterval = 5 * time.Second

func (o *metricsOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.out, "metrics-out", "",
		"record the metrics of the controllers into this file, as OpenMetrics text with timestamps (compressed if it is named .gz); only for one scenario")
	flags.StringVar(&o.match, "metrics-match", "", "regular expression of the names of metrics to record (default: all, up to 4 MB a scrape)")
	flags.DurationVar(&o.interval, "metrics-interval", defaultMetricsInterval, "time between scrapes")
}

// check reports flags that do not fit together.
func (o *metricsOptions) check(all []scenario.Scenario) error {
	var err error
	switch {
	case o.out == "" && o.match != "":
		return errors.New("--metrics-match needs --metrics-out")
	case o.out != "" && len(all) != 1:
		return fmt.Errorf("--metrics-out records one scenario, not %d", len(all))
	case o.interval <= 0:
		return fmt.Errorf("--metrics-interval %v: must be positive", o.interval)
	case o.match != "":
		if o.matching, err = regexp.Compile("^(?:" + o.match + ")$"); err != nil {
			return fmt.Errorf("--metrics-match: %w", err)
		}
	}
	return nil
}

// record returns the scenario with its metrics recorded, and the function that writes them, whether it passed or not.
func (o *metricsOptions) record(s scenario.Scenario) (recorded scenario.Scenario, write func() error) {
	if o.out == "" {
		return s, func() error { return nil }
	}
	r := &capture.Recorder{Match: o.matching}
	return scenario.WithMetrics(s, r, o.interval), func() error { return writeMetrics(o.out, r) }
}

// writeMetrics writes what was recorded, compressed if the name of the file requests it.
func writeMetrics(path string, r io.WriterTo) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write the metrics: %w", err)
	}
	to, closeText := io.Writer(file), func() error { return nil }
	if strings.HasSuffix(path, ".gz") {
		compressed := gzip.NewWriter(file)
		to, closeText = compressed, compressed.Close
	}
	_, err = r.WriteTo(to)
	if err := errors.Join(err, closeText(), file.Close()); err != nil {
		return fmt.Errorf("write the metrics to %s: %w", path, err)
	}
	return nil
}
