package podreport

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// vocabulary describes what labels of nodes can be: those of instance types, of NodePools and of existing nodes.
type vocabulary map[string]map[string]bool

// vocabularyOf collects the labels. Cost: one pass over types and nodes.
func vocabularyOf(s *snapshot.Snapshot) vocabulary {
	v := vocabulary{}
	types := map[any]bool{}
	for i := range s.Pools {
		for _, t := range s.Pools[i].InstanceTypes {
			if types[t] {
				continue
			}
			types[t] = true
			for _, r := range t.Requirements.All() {
				v.add(r.Key(), r.Values()...)
			}
		}
		np := s.Pools[i].NodePool
		for key, value := range np.Spec.Template.Labels {
			v.add(key, value)
		}
		for _, r := range np.Spec.Template.Spec.Requirements {
			if r.Operator == corev1.NodeSelectorOpIn && v[r.Key] == nil { // instance types define the values of other labels
				v.add(r.Key, r.Values...)
			}
		}
	}
	for i := range s.Nodes {
		for key, value := range s.Nodes[i].Labels {
			v.add(key, value)
		}
	}
	return v
}

func (v vocabulary) add(key string, values ...string) {
	if v[key] == nil {
		v[key] = map[string]bool{}
	}
	for _, value := range values {
		v[key][value] = true
	}
}

// keys are the labels, values the values of one; both sorted.
func (v vocabulary) keys() []string             { return slices.Sorted(maps.Keys(v)) }
func (v vocabulary) values(key string) []string { return slices.Sorted(maps.Keys(v[key])) }
func (v vocabulary) has(key, value string) bool { return v[key][value] }
