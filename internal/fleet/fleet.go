// Package fleet states facts about nodes that every reader needs alike: which offering a node was launched from, which group it
// belongs to, and what it costs.
package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Labels of nodes of EKS and eksctl, which have no NodePool.
const (
	LabelEKSCapacityType = "eks.amazonaws.com/capacityType"
	LabelEKSNodeGroup    = "eks.amazonaws.com/nodegroup"
	LabelEKSComputeType  = "eks.amazonaws.com/compute-type"
	LabelEksctlNodeGroup = "alpha.eksctl.io/nodegroup-name"
)

// OfferingOf is the offering that a node with these labels was launched from; what no label states is empty. Old clusters have the
// beta labels of types and zones, and managed node groups have a label of their own for the capacity type.
func OfferingOf(labels map[string]string) catalog.OfferingKey {
	out := catalog.OfferingKey{
		InstanceType: cmp.Or(labels[corev1.LabelInstanceTypeStable], labels[corev1.LabelInstanceType]),
		Zone:         cmp.Or(labels[corev1.LabelTopologyZone], labels[corev1.LabelFailureDomainBetaZone]),
		CapacityType: labels[karpv1.LabelCapacityType],
	}
	if out.CapacityType == "" { // ON_DEMAND or SPOT
		out.CapacityType = strings.ReplaceAll(strings.ToLower(labels[LabelEKSCapacityType]), "_", "-")
	}
	return out
}

// GroupOf names the group of a node without a NodePool; empty if it has none.
func GroupOf(labels map[string]string) string {
	return cmp.Or(labels[LabelEKSNodeGroup], labels[LabelEksctlNodeGroup], labels[LabelEKSComputeType])
}

// Prices describes what nodes cost. Nil knows no price.
type Prices struct {
	// From states in words where the prices come from, Problem why they are not those that were requested; empty if they are.
	From, Problem string
	index         *catalog.Index
}

// Catalog lists what a node class can launch; for nil, what any could.
type Catalog interface {
	Types(class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
}

// Source describes what prices are read from. Each field may be empty.
type Source struct {
	// From and Problem hold those of the Prices.
	From, Problem string
	// Pools have the types that plans use, with the prices of NodeOverlays.
	Pools []snapshot.Pool
	// NodePools are all of the cluster: those without types in Pools have those of their node class.
	NodePools   []*karpv1.NodePool
	NodeClasses map[string]*awsv1.EC2NodeClass
	// Catalog is for those NodePools, and for nodes that no NodePool has.
	Catalog Catalog
}

// PricesOf are the prices by the rule of plans: of a node, the first such offering of its NodePool. A node with a NodePool that does not
// have it costs what the catalog states for no node class in particular, else for the first class that has it. It costs O(types).
func PricesOf(in Source) *Prices {
	out := &Prices{From: in.From, Problem: in.Problem, index: catalog.NewIndex()}
	for i := range in.Pools {
		out.index.Add(in.Pools[i].NodePool.Name, in.Pools[i].InstanceTypes)
	}
	for _, p := range in.NodePools {
		ref := p.Spec.Template.Spec.NodeClassRef
		if class := in.NodeClasses[ref.Name]; class != nil && awsv1.IsEC2NodeClass(ref) && !out.index.Has(p.Name) {
			out.index.Add(p.Name, in.types(class))
		}
	}
	out.index.AddOthers(func() [][]*catalog.InstanceType {
		lists := [][]*catalog.InstanceType{in.types(nil)}
		for _, name := range slices.Sorted(maps.Keys(in.NodeClasses)) {
			lists = append(lists, in.types(in.NodeClasses[name]))
		}
		for i := range in.Pools {
			lists = append(lists, in.Pools[i].InstanceTypes)
		}
		return lists
	})
	return out
}

// types returns those of a class. One with types that cannot be listed has none: prices only inform.
func (in *Source) types(class *awsv1.EC2NodeClass) []*catalog.InstanceType {
	if in.Catalog == nil {
		return nil
	}
	types, err := in.Catalog.Types(class)
	if err != nil {
		return nil
	}
	return types
}

// Of returns what a node of a NodePool costs in $/h, by its labels. An unknown price is 0.
func (p *Prices) Of(pool string, labels map[string]string) (hourly float64, known bool) {
	return p.Offering(pool, OfferingOf(labels))
}

// Offering is Of for an offering. Without a capacity type it is on-demand, as EC2's default is.
func (p *Prices) Offering(pool string, k catalog.OfferingKey) (hourly float64, known bool) {
	if p == nil {
		return 0, false
	}
	k.CapacityType = cmp.Or(k.CapacityType, karpv1.CapacityTypeOnDemand)
	return p.index.Price(pool, k)
}

// OfNode is Of for a node of a Snapshot. A node that exists only in a plan of a reader has a price of its own.
func (p *Prices) OfNode(n *snapshot.Node) (hourly float64, known bool) {
	if hourly, known = p.Of(n.Pool, n.Labels); known {
		return hourly, true
	}
	return n.Price, n.Price > 0
}
