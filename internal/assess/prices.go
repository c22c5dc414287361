package assess

import (
	"cmp"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// priceList finds what nodes cost.
type priceList struct {
	*fleet.Prices
	// overhead holds what each node costs besides its instance, in $/h.
	overhead float64
}

func newPriceList(view *inspect.View) *priceList {
	return &priceList{view.PriceList(), view.Snapshot.Settings.NodeCost}
}

// of returns what a node costs in $/h; false if its price is unknown. The cost is then that of its overhead alone.
func (l *priceList) of(n *snapshot.Node) (float64, bool) {
	price, known := l.OfNode(n)
	return price + l.overhead, known
}

func instanceType(n *snapshot.Node) string { return fleet.OfferingOf(n.Labels).InstanceType }

func capacityType(n *snapshot.Node) string {
	return cmp.Or(fleet.OfferingOf(n.Labels).CapacityType, karpv1.CapacityTypeOnDemand)
}
