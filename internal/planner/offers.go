package planner

import (
	"fmt"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/overlay"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// Offers lists what NodePools can launch: the types of their node classes in a catalog, with NodeOverlays applied, as the controller does.
type Offers struct {
	catalog  Catalog
	classes  map[string]*awsv1.EC2NodeClass
	overlays overlay.Overlays
	// known are the types of node classes without overlays, by name; that of the whole catalog is empty.
	known map[string][]*catalog.InstanceType
}

// NewOffers evaluates the overlays of a cluster state. Notes report those that are not valid: they change nothing.
func NewOffers(w *manifest.ClusterState, c Catalog) (_ *Offers, notes []string, _ error) {
	o := &Offers{catalog: c, classes: w.NodeClasses, known: map[string][]*catalog.InstanceType{}}
	if len(w.NodeOverlays) == 0 {
		return o, nil, nil
	}
	var pools []overlay.Pool
	for _, pool := range w.NodePools {
		if pool.DeletionTimestamp != nil {
			continue
		}
		types, err := o.ofClass(pool)
		if err != nil {
			return nil, nil, err
		}
		pools = append(pools, overlay.Pool{NodePool: pool, InstanceTypes: types})
	}
	var verdicts []overlay.Validation
	o.overlays, verdicts = overlay.Evaluate(w.NodeOverlays, pools, overlay.Terms{Labels: Labels(), Resources: awsv1.Resources()})
	for _, v := range verdicts {
		if v.Reason != "" {
			notes = append(notes, fmt.Sprintf("NodeOverlay %s changes nothing: %s", v.Overlay.Name, v.Message))
		}
	}
	return o, notes, nil
}

// Of lists what a pool can launch.
func (o *Offers) Of(pool *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	types, err := o.ofClass(pool)
	if err != nil {
		return nil, err
	}
	return o.Overlaid(pool, types), nil
}

// Overlaid applies the overlays to instance types of a pool.
func (o *Offers) Overlaid(pool *karpv1.NodePool, types []*catalog.InstanceType) []*catalog.InstanceType {
	return o.overlays.Apply(pool, types)
}

// class is the node class of a pool; nil if it is not among the inputs.
func (o *Offers) class(pool *karpv1.NodePool) *awsv1.EC2NodeClass {
	if ref := pool.Spec.Template.Spec.NodeClassRef; awsv1.IsEC2NodeClass(ref) {
		return o.classes[ref.Name]
	}
	return nil
}

// ofClass lists what the pool's node class can launch, without overlays.
func (o *Offers) ofClass(pool *karpv1.NodePool) ([]*catalog.InstanceType, error) {
	class, key := o.class(pool), ""
	if class != nil {
		key = class.Name
	}
	if types, known := o.known[key]; known {
		return types, nil
	}
	types, err := o.catalog.Types(class)
	if err != nil {
		return nil, err
	}
	o.known[key] = types
	return types, nil
}
