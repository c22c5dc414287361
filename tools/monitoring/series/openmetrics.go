package series

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
)

// Load reads OpenMetrics text with timestamps, as `dovetail-lab run --metrics-out` writes it.
//
// A series that a later scrape of its target lacks is stale from then on, as in Prometheus. The scrapes of a target are the samples
// of its series up.
func Load(text []byte) (*Store, error) {
	read := map[string]*entry{}
	p := textparse.NewOpenMetricsParser(text, labels.NewSymbolTable())
	for {
		kind, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if kind != textparse.EntrySeries {
			continue
		}
		_, at, v := p.Series()
		var of labels.Labels
		p.Labels(&of)
		if at == nil {
			return nil, fmt.Errorf("%s has no timestamp", of)
		}
		key := string(of.Bytes(nil))
		if read[key] == nil {
			read[key] = &entry{labels: of}
		}
		read[key].samples = append(read[key].samples, point{*at, v})
	}
	scrapes := map[string][]int64{}
	for _, e := range read {
		if e.labels.Get(labels.MetricName) == "up" {
			for _, s := range e.samples {
				scrapes[target(e.labels)] = append(scrapes[target(e.labels)], s.T())
			}
		}
	}
	out := &Store{}
	for _, key := range slices.Sorted(maps.Keys(read)) {
		if err := out.addWithGaps(read[key], scrapes[target(read[key].labels)]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// target is what identifies the target of a series.
func target(of labels.Labels) string {
	return of.Get("cluster") + "\xff" + of.Get("job") + "\xff" + of.Get("instance")
}

// addWithGaps adds a series, and a marker at each scrape that lacks it after one that has it.
func (s *Store) addWithGaps(e *entry, scrapes []int64) error {
	next := 0
	for _, at := range scrapes {
		switch {
		case next < len(e.samples) && e.samples[next].T() == at:
			if err := s.Add(e.labels, time.UnixMilli(at), e.samples[next].F()); err != nil {
				return err
			}
			next++
		case next > 0:
			if err := s.Add(e.labels, time.UnixMilli(at), math.Float64frombits(value.StaleNaN)); err != nil {
				return err
			}
		}
	}
	if next < len(e.samples) {
		return fmt.Errorf("%s has a sample at %v, when its target was not scraped", e.labels, time.UnixMilli(e.samples[next].T()))
	}
	return nil
}
