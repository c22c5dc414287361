package disrupt

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func TestForecast(t *testing.T) {
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) // midnight
	in := func(d time.Duration) time.Time { return now.Add(d) }
	nodes := func(n int, due, deadline time.Duration) []Expiry {
		return slices.Repeat([]Expiry{{in(due), in(deadline)}}, n)
	}
	night := "0 6 * * *" // closed from 6 to 24 h
	nightly := []karpv1.Budget{{Nodes: "2"}, {Nodes: "0", Schedule: &night, Duration: &metav1.Duration{Duration: 18 * time.Hour}}}
	for _, tt := range []struct {
		name    string
		budgets []karpv1.Budget
		nodes   []Expiry
		want    Forecast
	}{
		{"no node", []karpv1.Budget{{Nodes: "0"}}, nil, Forecast{}},
		{"6 in an hour by one at a time", []karpv1.Budget{{Nodes: "1"}}, nodes(6, 0, time.Hour), Forecast{}},
		{"the seventh is late", []karpv1.Budget{{Nodes: "1"}}, nodes(7, 0, time.Hour), Forecast{1, in(time.Hour), 2}},
		{"a share of 20 nodes", []karpv1.Budget{{Nodes: "10%"}}, nodes(12, 0, time.Hour), Forecast{}},
		{"the time before they are due does not count", []karpv1.Budget{{Nodes: "1"}}, nodes(7, time.Hour, 2*time.Hour), Forecast{1, in(2 * time.Hour), 2}},
		{"no budget", []karpv1.Budget{{Nodes: "0"}}, nodes(2, 0, time.Hour), Forecast{2, in(time.Hour), 0}},
		{"a budget that cannot be read", []karpv1.Budget{{Nodes: "x"}}, nodes(1, 0, time.Hour), Forecast{1, in(time.Hour), 0}},
		{"a budget of another reason", []karpv1.Budget{{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionEmpty}}}, nodes(9, 0, time.Hour), Forecast{}},
		{"two nights of 6 h hold 144", nightly, nodes(144, 0, 30*time.Hour), Forecast{}},
		{"not 145", nightly, nodes(145, 0, 30*time.Hour), Forecast{1, in(30 * time.Hour), 3}},
		{"due in the day", nightly, nodes(1, 7*time.Hour, 23*time.Hour), Forecast{1, in(23 * time.Hour), 0}},
		{"a node with a time that is over", []karpv1.Budget{{Nodes: "1"}}, nodes(1, -2*time.Hour, -time.Hour), Forecast{1, in(-time.Hour), 0}},
		{
			"those that come first wait for nobody that is due later",
			[]karpv1.Budget{{Nodes: "1"}},
			slices.Concat(nodes(6, 0, 3*time.Hour), nodes(6, time.Hour, 2*time.Hour)),
			Forecast{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pool := &karpv1.NodePool{}
			pool.Annotations = map[string]string{karpv1.AnnotationExpiration: `{"mode":"Graceful"}`}
			pool.Spec.Disruption.Budgets = tt.budgets
			got := Expiries{Pool: pool, Nodes: tt.nodes, Total: 20, Each: 10 * time.Minute, Now: now}.Forecast()
			if got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}
