package manifest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Lister returns all objects of a kind, of which it gets an empty list: relevant ones only, reduced as Scrub does.
type Lister func(kind client.ObjectList) ([]client.Object, error)

// Collect makes the state of a live cluster of its objects, as Read makes it of the file that Dump writes: without that file, which
// costs the time and memory of all objects several times.
//
// The state shares its objects with the lister, and nobody may change them any more. Collect itself completes objects in place, such as
// a StorageClass without a volume binding mode; never Nodes, pods, NodeClaims, NodePools and node classes, and no object twice: so a
// lister may return the same ones again while others read them.
//
// Cost: O(objects), with a logarithm for sorting them.
func Collect(takenAt time.Time, list Lister) (*ClusterState, error) {
	now := takenAt.UTC().Truncate(time.Second) // as a file has it
	r := &reader{world: &ClusterState{NodeClasses: map[string]*awsv1.EC2NodeClass{}, Now: now, Drifted: map[string]Drift{}}, live: true}
	err := eachDumped(list, func(objects []client.Object) error {
		if !slices.IsSortedFunc(objects, byName) {
			objects = slices.SortedFunc(slices.Values(objects), byName) // the lister's own order stays
		}
		r.collect(objects)
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.sort()
	if err := r.complete(); err != nil {
		return nil, err
	}
	r.world.Notes = boundedNotes(r.world.Notes)
	return r.world, nil
}

func byName(a, b client.Object) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
}

// collect adds objects of one kind. Pods are most of a cluster, and nothing requests one by its name.
func (r *reader) collect(objects []client.Object) {
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Pod:
			r.world.Pods = append(r.world.Pods, o)
			continue
		case *karpv1.NodePool:
			if err := o.RuntimeValidate(awsv1.Vocabulary()); err != nil { // the cluster has it, and the engine tolerates it
				r.note("NodePool %s: %v", o.Name, err)
			}
		}
		r.order = append(r.order, &object{Object: o})
	}
}
