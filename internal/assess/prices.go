package assess

import (
	"cmp"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// priceList finds what nodes cost.
type priceList struct {
	// byPool are the types of pools, which know prices of their own; others are for nodes without a pool. Both by name.
	byPool map[string]map[string]*catalog.InstanceType
	others map[string]*catalog.InstanceType
	// overhead is what each node costs besides its instance, in $/h.
	overhead float64
}

// newPriceList reads the catalog for nodes without a NodePool only if there are any.
func newPriceList(s *snapshot.Snapshot, c planner.Catalog) (*priceList, error) {
	out := &priceList{byPool: map[string]map[string]*catalog.InstanceType{}, overhead: s.Settings.NodeCost}
	for i := range s.Pools {
		out.byPool[s.Pools[i].NodePool.Name] = byName(s.Pools[i].InstanceTypes)
	}
	for i := range s.Nodes {
		if out.byPool[s.Nodes[i].Pool] == nil {
			types, err := c.Types(nil)
			if err != nil {
				return nil, err
			}
			out.others = byName(types)
			break
		}
	}
	return out, nil
}

func byName(types []*catalog.InstanceType) map[string]*catalog.InstanceType {
	out := make(map[string]*catalog.InstanceType, len(types))
	for _, it := range types {
		if out[it.Name] == nil {
			out[it.Name] = it
		}
	}
	return out
}

// of returns what a node costs in $/h; false if its price is unknown. The cost is then that of its overhead alone.
func (l *priceList) of(n *snapshot.Node) (float64, bool) {
	if types, known := l.byPool[n.Pool]; known {
		if price, found := priceIn(types, n); found {
			return price + l.overhead, true
		}
	}
	price, found := priceIn(l.others, n)
	return price + l.overhead, found
}

// priceIn returns the price of the node's offering, available or not.
func priceIn(types map[string]*catalog.InstanceType, n *snapshot.Node) (float64, bool) {
	it := types[instanceType(n)]
	if it == nil {
		return 0, false
	}
	capacity := capacityType(n)
	for i := range it.Offerings {
		o := &it.Offerings[i]
		if o.CapacityType == capacity && o.Zone == n.Labels[corev1.LabelTopologyZone] && o.Price > 0 && !math.IsInf(o.Price, 0) {
			return o.Price, true
		}
	}
	if n.Price > 0 {
		return n.Price, true
	}
	return 0, false
}

func instanceType(n *snapshot.Node) string { return n.Labels[corev1.LabelInstanceTypeStable] }

// Labels of nodes of EKS, which have no NodePool.
const (
	labelEKSCapacityType = "eks.amazonaws.com/capacityType"
	labelEKSNodeGroup    = "eks.amazonaws.com/nodegroup"
	labelEksctlNodeGroup = "alpha.eksctl.io/nodegroup-name"
	labelEKSComputeType  = "eks.amazonaws.com/compute-type"
)

// capacityType is that of a node: by Karpenter's label, else by that of managed node groups, else on-demand.
func capacityType(n *snapshot.Node) string {
	if own := n.Labels[karpv1.LabelCapacityType]; own != "" {
		return own
	}
	if strings.EqualFold(n.Labels[labelEKSCapacityType], "SPOT") {
		return karpv1.CapacityTypeSpot
	}
	return karpv1.CapacityTypeOnDemand
}

// nodeGroup names the group of a node without a NodePool; empty if it has none.
func nodeGroup(n *snapshot.Node) string {
	group := cmp.Or(n.Labels[labelEKSNodeGroup], n.Labels[labelEksctlNodeGroup])
	if group == "" && n.Labels[labelEKSComputeType] != "" {
		return n.Labels[labelEKSComputeType]
	}
	return group
}
