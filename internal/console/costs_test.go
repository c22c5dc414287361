package console

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/top"
)

// A pod costs the mean of its shares of cpu and memory of its node, and all rows together cost what the fleet does.
func TestCostsOfPodsAddUpToThatOfTheFleet(t *testing.T) {
	c := newWorld(t).console()
	fleet := decoded[Fleet](t, get(c, apiRoot+"/fleet"))
	got := decoded[Costs](t, get(c, apiRoot+"/costs"))
	price := *fleet.Nodes[1].HourlyCost // that of the node of the pods, which has 3920m and 15 GiB
	web, daemon := price*(1000.0/3920+1.0/15)/2, price*(50.0/3920)/2
	want := []CostRow{
		{Kind: CostOfValue, Name: "shop", Pods: 1, CPU: 1000, Memory: 1 << 30, HourlyCost: web},
		{Kind: CostOfValue, Name: "kube-system", Pods: 1, CPU: 50, HourlyCost: daemon},
		{Kind: CostUnrequested, CPU: 3920*2 - 1050, Memory: 29 << 30, HourlyCost: fleet.Summary.Spend.HourlyCost - web - daemon},
	}
	if len(got.Rows) != len(want) || got.HourlyCost != fleet.Summary.Spend.HourlyCost || got.By != "namespace" {
		t.Fatalf("costs are %+v", got)
	}
	for i, row := range got.Rows {
		if math.Abs(row.HourlyCost-want[i].HourlyCost) > 1e-12 {
			t.Errorf("%s costs %g, want %g", row.Name, row.HourlyCost, want[i].HourlyCost)
		}
		if row.HourlyCost = want[i].HourlyCost; row != want[i] {
			t.Errorf("row %+v, want %+v", row, want[i])
		}
	}
	if labels := []LabelKey{{"app", 2, 2}}; !slices.Equal(got.Labels, labels) { // and no hash of a template
		t.Errorf("labels are %+v, want %+v", got.Labels, labels)
	}
	byApp := decoded[Costs](t, get(c, apiRoot+"/costs?by=label&label=app"))
	if len(byApp.Rows) != 3 || byApp.Rows[0].Name != "web" || byApp.Rows[1].Kind != CostWithout || byApp.Rows[1].Pods != 1 {
		t.Errorf("by app: %+v", byApp.Rows)
	}
	for _, wrong := range []string{"by=zone", "by=label", "by=label&label=" + url.QueryEscape(string(make([]byte, 400)))} {
		if answer := get(c, apiRoot+"/costs?"+wrong); answer.Code != 400 {
			t.Errorf("%s: %d", wrong, answer.Code)
		}
	}
}

// Whatever pods request and however many values there are, the rows cost what the fleet does.
func TestCostsAddUpWhateverPodsRequest(t *testing.T) {
	view := fleetView(t, 40)
	fleet := top.Observe(top.Objects{
		Now: view.Now, Nodes: view.Nodes, Claims: view.NodeClaims, Pods: top.PodsOf(view.Pods), Prices: view.PriceList(),
	})
	over := fleet.Nodes[0]
	n := 0
	for p := range fleet.PodsOn(over) {
		p.CPU, p.Memory = 3*over.CPU.Allocatable, 3*over.Memory.Allocatable // more than it has
		n++
	}
	for i := range fleet.Pods {
		if i%2 == 0 {
			pod := fleet.Pods[i].Pod.DeepCopy()
			pod.Labels = map[string]string{"team": fmt.Sprint("team-", i)}
			fleet.Pods[i].Pod = pod
		}
	}
	if n == 0 || len(fleet.Pods) < 500 {
		t.Fatalf("%d pods on the first node of %d pods", n, len(fleet.Pods))
	}
	s := newState(1, top.Observed{Fleet: fleet, Prices: "a test"}, nil)
	for _, label := range []string{"", "team", "none"} {
		got, sum := s.costs(label), 0.0
		for _, row := range got.Rows {
			if row.HourlyCost < 0 {
				t.Errorf("label %q: row %+v", label, row)
			}
			sum += row.HourlyCost
		}
		if math.Abs(sum-s.Summary.Spend.HourlyCost) > 1e-9 || sum <= 0 {
			t.Errorf("label %q: the rows cost %g, the fleet %g", label, sum, s.Summary.Spend.HourlyCost)
		}
	}
}

func TestCostsWithoutPodsAreUnknown(t *testing.T) {
	w := newWorld(t)
	fleet := *w.observed.Fleet
	fleet.PodsUnknown = true
	w.observed.Fleet = &fleet
	if got := decoded[Costs](t, get(w.console(), apiRoot+"/costs")); !got.Unknown || len(got.Rows) > 0 || got.HourlyCost <= 0 {
		t.Errorf("costs are %+v", got)
	}
	if got := decoded[Costs](t, get(New(w.Sources), apiRoot+"/costs")); !got.Unknown {
		t.Errorf("before anything is read: %+v", got)
	}
}
