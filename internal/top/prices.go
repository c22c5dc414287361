package top

import (
	"maps"
	"slices"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// PriceList is what each offering of a catalog costs.
type PriceList struct {
	// From states in words where the prices come from.
	From   string
	prices map[catalog.OfferingKey]float64
}

// ListPrices lists the prices of a catalog, for all node classes and for nodes without one. It costs O(offerings).
func ListPrices(c planner.Catalog, classes map[string]*awsv1.EC2NodeClass, from string) (*PriceList, error) {
	out := &PriceList{From: from, prices: map[catalog.OfferingKey]float64{}}
	list := []*awsv1.EC2NodeClass{nil}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		list = append(list, classes[name])
	}
	for _, class := range list {
		types, err := c.Types(class)
		if err != nil {
			return nil, err
		}
		for _, t := range types {
			out.add(t)
		}
	}
	return out, nil
}

// PricesOf lists the prices of what NodePools could launch. It costs O(offerings).
func PricesOf(pools []cluster.Pool, from string) *PriceList {
	out := &PriceList{From: from, prices: map[catalog.OfferingKey]float64{}}
	for i := range pools {
		for _, t := range pools[i].InstanceTypes {
			out.add(t)
		}
	}
	return out
}

func (l *PriceList) add(t *catalog.InstanceType) {
	for i := range t.Offerings {
		o := &t.Offerings[i]
		if key := o.Key(t.Name); o.Price > 0 {
			if _, known := l.prices[key]; !known {
				l.prices[key] = o.Price
			}
		}
	}
}

// of is the price of a node; nil if the catalog has none. A node without a capacity type is on-demand, as EC2's default is.
func (l *PriceList) of(n *Node) *float64 {
	if l == nil {
		return nil
	}
	capacityType := n.CapacityType
	if capacityType == "" {
		capacityType = karpv1.CapacityTypeOnDemand
	}
	price, known := l.prices[catalog.OfferingKey{InstanceType: n.InstanceType, Zone: n.Zone, CapacityType: capacityType}]
	if !known {
		return nil
	}
	return &price
}
