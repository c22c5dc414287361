package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/recorder/replay"
)

// The day has a decision of each kind and all of its passes, and the engine decides the same again.
func TestTheDayIsWhatTheDocumentationSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "day.rec")
	if err := record(path); err != nil {
		t.Fatal(err)
	}
	day, err := recorder.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer day.Close()
	decisions, _ := day.Decisions(recorder.Selection{})
	kinds := map[string]int{}
	for i := range decisions {
		kinds[decisions[i].Kind]++
	}
	for _, kind := range []string{"launch", "empty", "underutilized", "drifted"} {
		if kinds[kind] == 0 {
			t.Errorf("there is no decision of kind %s, only %v", kind, kinds)
		}
	}
	first, last, _ := day.Span()
	if first.After(start().Add(step)) || last.Before(start().Add(dayLength-time.Minute)) {
		t.Errorf("it is from %s to %s", first, last)
	}
	var end *recorder.PassRecord
	replayed := 0
	err = day.Passes(recorder.Range{}, func(p *recorder.PassRecord) error {
		end = p
		if len(p.Calls) == 0 {
			return nil
		}
		if replayed++; replayed%4 != 0 {
			return nil // to replay all takes as long as the day
		}
		if got := replay.Run(p); !got.Same() {
			t.Errorf("pass %s is decided differently: %+v", p.ID, got)
		}
		return nil
	})
	if err != nil || replayed < len(decisions)/2 {
		t.Errorf("%d passes with calls for %d decisions (%v)", replayed, len(decisions), err)
	}
	var pending []string
	for _, p := range end.Objects.Pods {
		if p.Spec.NodeName == "" {
			pending = append(pending, p.Labels["app"])
		}
	}
	if len(pending) != 1 || pending[0] != "returns-export" {
		t.Errorf("at the end, %v are pending", pending)
	}
}
