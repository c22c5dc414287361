package workload

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// RunningCluster is a fragmented cluster: nodes with random types, zones and capacity types of pool general with 2 to 16 CPUs,
// and deployments at random that request about the share use of their CPUs, about seven pods per node. All nodes are a
// day old and consolidatable.
func RunningCluster(nodes int, use float64, seed uint64, list []*catalog.InstanceType) (*snapshot.Snapshot, error) {
	pool := GeneralPool("general", list)
	s := Snapshot([]snapshot.Pool{pool}, nil, true)
	reqs, err := s.Labels.FromPool(pool.NodePool, pool.NodeClassLabel)
	if err != nil {
		return nil, fmt.Errorf("read the pool: %w", err)
	}
	var small []*catalog.InstanceType
	for _, it := range list {
		if _, ok := it.Cheapest(reqs); ok && reqs.Overlaps(it.Requirements) && it.Capacity.Cpu().Value() >= 2 &&
			it.Capacity.Cpu().Value() <= 16 {
			small = append(small, it)
		}
	}
	if len(small) == 0 {
		return nil, fmt.Errorf("the catalog has no instance type with 2 to 16 CPUs")
	}
	draw := source(seed)
	total := int64(0)
	for i := range nodes {
		it := pick(&draw, small...)
		n := Node(fmt.Sprintf("node-%05d", i), pool.NodePool, it, pick(&draw, it.Offerings...))
		n.CreatedAt = s.Now.AddDate(0, 0, -1)
		s.Nodes = append(s.Nodes, n)
		total += it.Allocatable.Cpu().MilliValue()
	}
	fill(s, &draw, int64(use*float64(total)), use*float64(total)/float64(7*nodes))
	return s, nil
}

// Node is an initialized node of the pool, with one offering of a type.
func Node(name string, pool *karpv1.NodePool, it *catalog.InstanceType, o catalog.Offering) snapshot.Node {
	labels := map[string]string{
		karpv1.LabelNodePool: pool.Name, karpv1.LabelRegistered: "true", karpv1.LabelInitialized: "true", corev1.LabelHostname: name,
	}
	maps.Copy(labels, pool.Spec.Template.Labels)
	for _, set := range [...]requirement.Set{it.Requirements, o.Requirements} {
		for _, r := range set.All() {
			if value, ok := r.Single(); ok {
				labels[r.Key()] = value
			}
		}
	}
	return snapshot.Node{
		Name: name, Claim: name, ClaimUID: types.UID("uid-" + name), Pool: pool.Name, Labels: labels, Taints: pool.Spec.Template.Spec.Taints,
		Allocatable: it.Allocatable, Capacity: it.Capacity, Launched: true, Registered: true, Initialized: true, Ready: true,
		Consolidatable: true, Price: o.Price,
	}
}

// freeRoom describes what a node has left: millicores, bytes and pods.
type freeRoom struct{ cpu, memory, pods int64 }

// fill places deployments wherever there is room, until their pods request most millicores; mean is about the request
// of one pod.
func fill(s *snapshot.Snapshot, draw *source, most int64, mean float64) {
	free := make([]freeRoom, len(s.Nodes))
	for i := range s.Nodes {
		a := s.Nodes[i].Allocatable
		free[i] = freeRoom{a.Cpu().MilliValue() - 300, a.Memory().Value() - 500<<20, a.Pods().Value() - 2}
	}
	asked := int64(0)
	for app := 0; asked < most; app++ {
		cpu := int64(mean/50*pick(draw, 0.2, 0.5, 1, 1, 1.5, 2))*50 + 50
		mebi := cpu * pick[int64](draw, 1, 2, 3, 4, 6, 8) * 1024 / 1000
		name := fmt.Sprintf("app-%04d", app)
		for k := range 1 + draw.intn(60) {
			for range 20 {
				i := draw.intn(len(s.Nodes))
				if f := &free[i]; f.cpu >= cpu && f.memory >= mebi<<20 && f.pods >= 1 {
					*f = freeRoom{f.cpu - cpu, f.memory - mebi<<20, f.pods - 1}
					pod := enginetest.Pod(
						fmt.Sprintf("%s-%03d", name, k),
						enginetest.Labeled("app", name),
						requests(cpu, mebi),
						enginetest.OwnedBy("apps/v1", "ReplicaSet"),
					)
					s.Nodes[i].Pods = append(s.Nodes[i].Pods, enginetest.Bound(pod, s.Nodes[i].Name))
					asked += cpu
					break
				}
			}
		}
	}
}
