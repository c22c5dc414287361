// Package planner plans a world that was read from files: what nodes would be bought for its pods, and why some
// pods would get none. No cluster and no cloud is asked.
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

// Catalog is what can be bought. A nil class stands for any.
type Catalog interface {
	Types(class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
}

// Config is what a plan depends on besides the world.
type Config struct {
	Catalog  Catalog
	Settings snapshot.Settings
	// NominationWindow is how long an initialized node keeps the room of a pod that it was bought for.
	NominationWindow time.Duration
}

// Labels is what label keys mean to the planner.
func Labels() requirement.Labels { return requirement.Labels{Vocabulary: awsv1.Vocabulary()} }

// Cut makes a Snapshot of a world as the controller would. A NodePool whose class is not part of the world may buy
// the whole catalog. Notes say which pools buy nothing.
func Cut(w *manifest.World, c Config) (_ *snapshot.Snapshot, notes []string, _ error) {
	objects := w.Objects
	known := map[string][]*catalog.InstanceType{}
	for _, pool := range w.NodePools {
		ref := pool.Spec.Template.Spec.NodeClassRef
		entry := cluster.Pool{NodePool: pool, NodeClassLabel: [2]string{ref.Group + "/" + strings.ToLower(ref.Kind), ref.Name}}
		if !cluster.Open(pool) {
			notes = append(notes, fmt.Sprintf("NodePool %s buys nothing: %s", pool.Name, closed(pool)))
			objects.Pools = append(objects.Pools, entry)
			continue
		}
		var class *awsv1.EC2NodeClass
		key := "" // that of the whole catalog
		if awsv1.IsEC2NodeClass(ref) && w.NodeClasses[ref.Name] != nil {
			class, key = w.NodeClasses[ref.Name], ref.Name
		} else if awsv1.IsEC2NodeClass(ref) && len(w.NodeClasses) > 0 {
			notes = append(notes, fmt.Sprintf("NodePool %s: EC2NodeClass %s is not among the inputs, so that the pool may buy the whole catalog", pool.Name, ref.Name))
		}
		if _, done := known[key]; !done {
			types, err := c.Catalog.Types(class)
			if err != nil {
				return nil, nil, err
			}
			known[key] = types
			if class != nil && len(class.Status.Subnets) > 0 && !anyAvailable(types) {
				notes = append(notes, fmt.Sprintf("EC2NodeClass %s: nothing in the catalog is sold in the zones of its subnets", class.Name))
			}
		}
		entry.InstanceTypes = known[key]
		objects.Pools = append(objects.Pools, entry)
	}
	snap := cluster.Cut(objects, cluster.Facts{
		Now: w.Now, Settings: c.Settings, Labels: Labels(), NominationWindow: c.NominationWindow,
	})
	switch {
	case len(snap.Pods) == 0:
		notes = append(notes, "no pod among the inputs waits for a node: there is nothing to plan")
	case len(w.NodePools) == 0:
		notes = append(notes, "no NodePool is among the inputs, so that nothing can be bought: add one with -f")
	}
	return snap, notes, nil
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

// RegionOf is the region that nodes and node classes of the world are in; empty if they do not say, or say
// different things.
func RegionOf(w *manifest.World) string {
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

// NewFile reads a catalog file. Its types are the same for every node class, except that one which has found
// its subnets buys only in their zones.
func NewFile(data []byte) (Catalog, error) {
	types, err := catalogfile.Decode(data, Labels())
	if err != nil {
		return nil, err
	}
	return file{types}, nil
}

// Types of the file, as the class can buy them.
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
				o.Available, o.Why = false, "no subnet in the zone"
			}
		}
		out[i] = &within
	}
	return out, nil
}
