package console

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// The console has the sentence of dovetail assess about the largest switch, and its amounts.
func TestTheLargestSwitchIsThatOfAssess(t *testing.T) {
	view := fleetView(t, 12)
	for i := range view.Snapshot.Nodes {
		view.Snapshot.Nodes[i].Labels[karpv1.LabelCapacityType] = karpv1.CapacityTypeSpot
	}
	w := newWorld(t)
	w.Sources.View = func(context.Context) (*inspect.View, error) { return view, nil }
	got := decoded[Assessment](t, get(New(w.Sources), apiRoot+"/assessment"))
	want := assess.Assess(view, assess.DefaultSettings())
	if got.Switch == "" || got.Switch != want.LargestSwitch() || !slices.Equal(got.Sentences, want.Headline()) ||
		got.Sentences[len(got.Sentences)-1] != got.Switch {
		t.Errorf("the switch is %q among %q, of assess %q", got.Switch, got.Sentences, want.Headline())
	}
	if len(got.Switches) == 0 || got.Switches[0].MonthlySavings <= 0 || got.Outcomes[0].HourlyCost != want.Now.HourlyCost ||
		got.Outcomes[len(got.Outcomes)-1].HourlyCost != want.Outcome(assess.LowerBound).HourlyCost || got.Computing || got.At == nil {
		t.Errorf("the answer is %+v", got)
	}
}

// What is planned follows the feature gate: without it, a spot node does not replace another.
func TestThePlanFollowsTheGateForSpot(t *testing.T) {
	text, err := os.ReadFile("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spot := strings.NewReplacer("on-demand", "spot", "  - {type: Drifted, status: \"True\"", "  - {type: Consolidatable, status: \"True\"")
	view := viewOfText(t, spot.Replace(string(text)))
	for gate, want := range map[bool]int{false: 0, true: 1} {
		view.Search.SpotToSpot = gate
		forecast, err := top.Predict(view)
		if err != nil {
			t.Fatal(err)
		}
		replaced := 0
		for _, c := range forecast.Changes {
			if c.Action == "replace" {
				replaced++
			}
		}
		if replaced != want {
			t.Errorf("gate %t: %+v", gate, forecast.Changes)
		}
	}
}

// A fleet for which an assessment takes long is assessed on request, and then not again for as long as its share.
func TestALargeFleetIsAssessedOnRequest(t *testing.T) {
	w := newWorld(t)
	now, read := w.view.Now, 0
	c := w.console()
	a := c.assessments
	a.now, a.unasked = func() time.Time { return now }, 1
	a.view = func(context.Context) (*inspect.View, error) {
		read++
		view := *w.view
		state := *view.ClusterState
		view.ClusterState, state.Nodes = &state, append(state.Nodes, state.Nodes...)
		return &view, nil
	}
	if got := decoded[Assessment](t, get(c, apiRoot+"/assessment")); got.At != nil || !strings.Contains(got.NotComputed, "2 nodes") {
		t.Errorf("unasked: %+v", got)
	}
	if got := decoded[Assessment](t, get(c, apiRoot+"/assessment?compute=true")); got.At == nil || got.NotComputed != "" {
		t.Errorf("asked: %+v", got)
	}
	before := read
	now = now.Add(assessmentAge - time.Second)
	if got := decoded[Assessment](t, get(c, apiRoot+"/assessment?compute=true")); read != before || got.Computing {
		t.Errorf("it has been read %d times, computing %v", read-before, got.Computing)
	}
	now = now.Add(time.Second)
	if got := decoded[Assessment](t, get(c, apiRoot+"/assessment")); got.At == nil || got.Computing {
		t.Errorf("an old one is kept, and none is made for it unasked: %+v", got)
	}
	if wrong := get(c, apiRoot+"/assessment?compute=maybe"); wrong.Code != 400 {
		t.Errorf("compute=maybe: %d", wrong.Code)
	}
}
