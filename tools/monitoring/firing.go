package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/alerting"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

// standstill is for how long the end of a record is held: longer than the longest duration of a rule, which is an hour.
const standstill = 61 * time.Minute

// heldStep is the time between two scrapes while the end is held; it is Prometheus' default.
const heldStep = time.Minute

// fired are the alerts that fire over a record, as their labels. Each set of labels is listed once, in their order.
type fired struct {
	// During the record, evaluated at each of its scrapes, so that nothing depends on the phase of an evaluation.
	During []map[string]string `json:"during"`
	// After are those that would fire if the last scrape were repeated for the time of standstill. It shows what the durations of rules
	// hide in a short record. Gauges stand still as they were, also those of times; counters do not increase.
	After []map[string]string `json:"after"`
}

// printFired writes which alerts fire over the records in some files, as JSON by file.
func printFired(ctx context.Context, to io.Writer, files []string) error {
	out := map[string]fired{}
	for _, file := range files {
		store, err := load(file)
		if err != nil {
			return err
		}
		if out[file], err = firedIn(ctx, store); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

// firedIn evaluates the rules over a record and the time after it. The record is changed.
func firedIn(ctx context.Context, store *series.Store) (fired, error) {
	var out fired
	scrapes := store.Scrapes()
	if len(scrapes) < 2 {
		return out, fmt.Errorf("the record has only one scrape, or none")
	}
	var err error
	if out.During, err = firingIn(ctx, store, scrapes); err != nil {
		return out, err
	}
	to := scrapes[len(scrapes)-1]
	if err := store.Hold(to.Add(standstill), heldStep); err != nil {
		return out, err
	}
	out.After, err = firingIn(ctx, store, everyStep(to, to.Add(standstill), heldStep))
	return out, err
}

// firingIn are the labels of the alerts that fire at some times.
func firingIn(ctx context.Context, store *series.Store, times []time.Time) ([]map[string]string, error) {
	found := map[string]map[string]string{}
	err := eachAlert(ctx, store, times, func(a alerting.Alert, _ time.Time) error {
		if a.Firing {
			found[a.Name+labels.FromMap(a.Labels).String()] = a.Labels
		}
		return nil
	})
	out := make([]map[string]string, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[key])
	}
	return out, err
}

// load reads a record that dovetail-lab run --metrics-out has written, compressed or not.
func load(file string) (*series.Store, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if unpacked, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
		if text, err = io.ReadAll(unpacked); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	store, err := series.Load(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return store, nil
}
