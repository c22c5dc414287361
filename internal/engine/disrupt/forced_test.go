package disrupt_test

import (
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

func TestParseForced(t *testing.T) {
	for text, want := range map[string]disrupt.Forced{"": {Percent: 10}, "10%": {Percent: 10}, "3": {Nodes: 3}, "0": {}, "0%": {}} {
		if got, err := disrupt.ParseForced(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"-1", "101%", "x", "%", "1.5", "ten%"} {
		if got, err := disrupt.ParseForced(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
	for nodes, want := range map[int]int{0: 1, 9: 1, 10: 1, 25: 2, 1000: 100} {
		if got := (disrupt.Forced{Percent: 10}).PerMinute(nodes); got != want {
			t.Errorf("of %d nodes %d go, want %d", nodes, got, want)
		}
	}
}
