package console

import (
	"math"
	"slices"
	"testing"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
	"github.com/dovetail-k8s/dovetail/internal/top"
	"github.com/dovetail-k8s/dovetail/internal/top/live"
)

// dearer has a NodePool pay twice the price, as a NodeOverlay does.
func dearer(view *inspect.View, pool string) {
	at := slices.IndexFunc(view.Snapshot.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == pool })
	var own []*catalog.InstanceType
	for _, t := range view.Snapshot.Pools[at].InstanceTypes {
		priced := *t
		priced.Offerings = slices.Clone(t.Offerings)
		for i := range priced.Offerings {
			priced.Offerings[i].Price *= 2
		}
		own = append(own, &priced)
	}
	view.Snapshot.Pools[at].InstanceTypes = own
}

// One fleet has one price per hour, no matter who reads it: with a NodePool with prices that an overlay has changed, a NodePool that can
// launch nothing, and a node of a node group.
func TestOneFleetHasOnePriceForEveryReader(t *testing.T) {
	view := fleetView(t, 40)
	dearer(view, "data")
	closed := slices.IndexFunc(view.Snapshot.Pools, func(p snapshot.Pool) bool { return p.NodePool.Name == "batch" })
	view.Snapshot.Pools = slices.Delete(slices.Clone(view.Snapshot.Pools), closed, closed+1)
	group := view.Nodes[0].DeepCopy()
	group.Name, group.UID, group.Spec.ProviderID = "group-1", "group-1", "aws:///us-east-1a/i-group"
	delete(group.Labels, karpv1.LabelNodePool)
	delete(group.Labels, karpv1.LabelCapacityType)
	group.Labels[fleet.LabelEKSNodeGroup], group.Labels[fleet.LabelEKSCapacityType] = "system", "ON_DEMAND"
	view.Nodes = append(slices.Clone(view.Nodes), group)

	observed, forecast, err := live.FromFile(view, "files")
	if err != nil {
		t.Fatal(err)
	}
	page := newState(1, observed, forecast)
	want := page.Summary.Spend.HourlyCost
	if page.Summary.Spend.Unpriced > 0 || want <= 0 {
		t.Fatalf("%d nodes without a price, the others cost $%.4f/h", page.Summary.Spend.Unpriced, want)
	}
	var point SpendPoint
	point.add(page.report.Nodes)
	decisions := nodereport.Decide(view)
	explained := 0.0
	for i := range view.Snapshot.Nodes {
		explained += decisions.Outcome(i).Price
	}
	if price, known := view.PriceList().Of("", group.Labels); known { // it is no node of the snapshot
		explained += price
	}
	for reader, got := range map[string]float64{
		"assess": assess.Assess(view, assess.DefaultSettings()).Now.HourlyCost, "top": top.NewReport(observed, forecast).Spend.HourlyCost,
		"spend over time": point.Spot + point.OnDemand + point.Reserved, "explain node": explained,
	} {
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s has $%.4f/h, the page $%.4f/h", reader, got, want)
		}
	}
	byName := map[string]*top.Node{}
	for _, n := range page.report.Nodes {
		byName[n.Name] = n
	}
	for _, c := range disrupt.NewView(view.Snapshot).Candidates {
		if n := byName[c.Node.Name]; c.Price <= 0 || *n.HourlyCost != c.Price {
			t.Errorf("node %s costs $%.4f/h for consolidation, and $%.4f/h on the page", n.Name, c.Price, *n.HourlyCost)
		}
	}
}
