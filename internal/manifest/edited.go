package manifest

import (
	"fmt"
	"maps"
	"slices"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// WithNodePool returns the cluster state in which a NodePool has been edited: the state, the other objects and the UID of the pool stay,
// and the NodeClaims that would drift are marked, with the fields in Drifted. It shares with s what does not change.
func (s *ClusterState) WithNodePool(edited *karpv1.NodePool) (*ClusterState, error) {
	i := slices.IndexFunc(s.NodePools, func(p *karpv1.NodePool) bool { return p.Name == edited.Name })
	if i < 0 {
		return nil, fmt.Errorf("the cluster has no NodePool %q", edited.Name)
	}
	next, before, id := s.toEdit(), s.NodePools[i], identity{kind: "NodePool", name: edited.Name}
	edited = edited.DeepCopy()
	inherit(edited, before)
	next.NodePools[i] = edited
	r := &reader{
		world: next, objects: map[identity]*object{id: {Object: edited}}, overridden: map[identity]*object{id: {Object: before}},
	}
	return next, r.drift()
}

// WithNodeClass returns the cluster state in which a node class has been edited, as WithNodePool does: its NodeClaims drift where a field
// has changed that instances are launched with. What its selectors find, which is in no object, stays as it is, and Notes state which
// have changed.
func (s *ClusterState) WithNodeClass(edited *awsv1.EC2NodeClass) (*ClusterState, error) {
	before := s.NodeClasses[edited.Name]
	if before == nil {
		return nil, fmt.Errorf("the cluster has no EC2NodeClass %q", edited.Name)
	}
	next, id := s.toEdit(), identity{kind: "EC2NodeClass", name: edited.Name}
	edited = edited.DeepCopy()
	inherit(edited, before)
	next.NodeClasses = maps.Clone(s.NodeClasses)
	next.NodeClasses[edited.Name] = edited
	now := &object{Object: edited, document: document{kind: nodeClassKind}}
	r := &reader{
		world: next, objects: map[identity]*object{id: now}, order: []*object{now}, overridden: map[identity]*object{id: {Object: before}},
	}
	for _, pool := range s.NodePools {
		r.objects[identity{kind: "NodePool", name: pool.Name}] = &object{Object: pool}
	}
	return next, r.drift()
}

// toEdit is a copy with its own lists of NodePools, NodeClaims and notes.
func (s *ClusterState) toEdit() *ClusterState {
	next := *s
	next.NodePools, next.NodeClaims, next.Notes = slices.Clone(s.NodePools), slices.Clone(s.NodeClaims), slices.Clone(s.Notes)
	return &next
}
