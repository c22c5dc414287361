// Package planner plans for a cluster state that was read from files: which nodes would be launched for its pods, and
// why some pods would get none. It calls no cluster and no cloud.
package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/catalogfile"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// Catalog lists what can be launched. A nil class means any class.
type Catalog interface {
	Types(class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
}

// Config describes what a plan depends on besides the cluster state.
type Config struct {
	Catalog  Catalog
	Settings snapshot.Settings
	// NominationWindow states how long an initialized node reserves capacity for a pod that it was launched for.
	NominationWindow time.Duration
	// LifecycleConditions follows the conditions of Nodes about maintenance: the feature gate NodeLifecycleConditions.
	LifecycleConditions bool
}

// Labels returns the meaning of label keys to the planner.
func Labels() requirement.Labels { return requirement.Labels{Vocabulary: awsv1.Vocabulary()} }

// BuildSnapshot makes a Snapshot of a cluster state as the controller would. A NodePool with a class that is not part of it may
// launch the whole catalog. Notes report which pools launch nothing.
func BuildSnapshot(w *manifest.ClusterState, c Config) (_ *snapshot.Snapshot, notes []string, _ error) {
	objects := w.Objects
	offers, notes, err := NewOffers(w, c.Catalog)
	if err != nil {
		return nil, nil, err
	}
	noted := map[*awsv1.EC2NodeClass]bool{}
	for _, pool := range w.NodePools {
		ref := pool.Spec.Template.Spec.NodeClassRef
		entry := cluster.Pool{NodePool: pool, NodeClassLabel: [2]string{ref.Group + "/" + strings.ToLower(ref.Kind), ref.Name}}
		if !cluster.LaunchesForPods(pool) {
			notes = append(notes, fmt.Sprintf("NodePool %s launches nothing: %s", pool.Name, closed(pool)))
			objects.Pools = append(objects.Pools, entry)
			continue
		}
		class := offers.class(pool)
		if class == nil && awsv1.IsEC2NodeClass(ref) && len(w.NodeClasses) > 0 {
			notes = append(notes, fmt.Sprintf("NodePool %s: EC2NodeClass %s is not among the inputs, so the pool may launch the whole catalog", pool.Name, ref.Name))
		}
		if entry.InstanceTypes, err = offers.Of(pool); err != nil {
			return nil, nil, err
		}
		if class != nil && !noted[class] && len(class.Status.Subnets) > 0 && !anyAvailable(entry.InstanceTypes) {
			noted[class] = true
			notes = append(notes, fmt.Sprintf("EC2NodeClass %s: the catalog has no offering in the zones of its subnets", class.Name))
		}
		entry.KubeletFeatures = cluster.KubeletFeatures(class)
		objects.Pools = append(objects.Pools, entry)
	}
	snap := cluster.BuildSnapshot(objects, cluster.Facts{
		Now: w.Now, Settings: c.Settings, Labels: Labels(), NominationWindow: c.NominationWindow, LifecycleConditions: c.LifecycleConditions,
	})
	return snap, notes, nil
}

// Missing notes what a plan of the inputs lacks: pods to plan, or NodePools; nil if it lacks nothing.
func Missing(w *manifest.ClusterState, snap *snapshot.Snapshot) (notes []string) {
	switch {
	case len(snap.Pods) == 0 && len(snap.Virtual) > 0:
	case len(snap.Pods) == 0:
		return []string{"no pod among the inputs waits for a node: there is nothing to plan"}
	case len(w.NodePools) == 0:
		return []string{"no NodePool is among the inputs, so nothing can be launched: add one with -f, such as examples/plan/pool.yaml"}
	}
	return nil
}

func closed(pool *karpv1.NodePool) string {
	if pool.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	return "it has a fixed number of replicas"
}

func anyAvailable(types []*catalog.InstanceType) bool {
	return slices.ContainsFunc(types, func(t *catalog.InstanceType) bool {
		return slices.ContainsFunc(t.Offerings, func(o catalog.Offering) bool { return o.Available })
	})
}

// RegionOf returns the region of the nodes and node classes; empty if they have none, or different ones.
func RegionOf(w *manifest.ClusterState) string {
	regions := map[string]bool{}
	for _, class := range w.NodeClasses {
		for _, subnet := range class.Status.Subnets {
			regions[strings.TrimRight(subnet.Zone, "abcdefghi")] = true
		}
	}
	for _, node := range w.Nodes {
		regions[node.Labels[corev1.LabelTopologyRegion]] = true
	}
	delete(regions, "")
	if len(regions) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(regions))[0]
}

// file is a catalog from a file.
type file struct{ types []*catalog.InstanceType }

// NewFile reads a catalog file. Its types are the same for every node class, except that a class with resolved subnets
// launches only in their zones.
func NewFile(data []byte) (Catalog, error) {
	types, err := catalogfile.Decode(data, Labels())
	if err != nil {
		return nil, err
	}
	return file{types}, nil
}

// Types returns the types of the file, as the class can launch them.
func (f file) Types(class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	if class == nil || len(class.Status.Subnets) == 0 {
		return f.types, nil
	}
	out := make([]*catalog.InstanceType, len(f.types))
	for i, t := range f.types {
		within := *t
		within.Offerings = slices.Clone(t.Offerings)
		for j := range within.Offerings {
			o := &within.Offerings[j]
			if !slices.ContainsFunc(class.Status.Subnets, func(s awsv1.Subnet) bool { return s.Zone == o.Zone }) {
				o.Available, o.UnavailableMessage = false, "no subnet in the zone"
			}
		}
		out[i] = &within
	}
	return out, nil
}
