package schedule_test

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// firstFit is the simple first-fit-decreasing packer that every plan is compared with: pods by size, each into the
// first node that still has a type for it, else onto a new one. It implements the required constraints that package
// workload makes, and nothing else.
type firstFit struct {
	s     *snapshot.Snapshot
	pools []*snapshot.Pool
	reqs  map[*snapshot.Pool]requirement.Set
	extra [3]int64 // what daemons take: milli CPU, bytes, pods
	bins  []*firstFitBin
	zones []string
	apps  map[string]map[string]int // pods per app and zone
}

type firstFitBin struct {
	pool  *snapshot.Pool
	reqs  requirement.Set
	total [3]int64
	types []*catalog.InstanceType
	apps  map[string]int
}

func amounts(l corev1.ResourceList) [3]int64 {
	cpu, memory, pods := l[corev1.ResourceCPU], l[corev1.ResourceMemory], l[corev1.ResourcePods]
	return [3]int64{cpu.MilliValue(), memory.Value(), pods.Value()}
}

// baseline returns what first fit decreasing costs per hour, and how many pods it leaves unscheduled.
func baseline(s *snapshot.Snapshot, zones []string) (cost float64, left int) {
	f := &firstFit{s: s, reqs: map[*snapshot.Pool]requirement.Set{}, zones: zones, apps: map[string]map[string]int{}}
	for i := range s.Pools {
		f.pools = append(f.pools, &s.Pools[i])
		f.reqs[&s.Pools[i]], _ = s.Labels.FromPool(s.Pools[i].NodePool, s.Pools[i].NodeClassLabel)
	}
	slices.SortFunc(f.pools, func(a, b *snapshot.Pool) int { return cmp.Compare(weightOf(b.NodePool), weightOf(a.NodePool)) })
	for _, d := range s.DaemonSets {
		for i, x := range amounts(snapshot.DaemonRequests(d.Pod)) {
			f.extra[i] += x
		}
	}
	type item struct {
		pod  *corev1.Pod
		asks [3]int64
	}
	var items []item
	for _, p := range s.Pods {
		items = append(items, item{p, amounts(snapshot.Requests(p))})
	}
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(b.asks[0], a.asks[0]), cmp.Compare(b.asks[1], a.asks[1]))
	})
	for _, it := range items {
		if !f.place(it.pod, it.asks) {
			left++
		}
	}
	for _, b := range f.bins {
		o, _ := cheapestOf(b.types, b.reqs)
		cost += o
	}
	return cost, left
}

func weightOf(np *karpv1.NodePool) int32 {
	if np.Spec.Weight == nil {
		return 0
	}
	return *np.Spec.Weight
}

func cheapestOf(list []*catalog.InstanceType, reqs requirement.Set) (float64, bool) {
	best := math.Inf(1)
	for _, it := range list {
		if o, ok := it.Cheapest(reqs); ok {
			best = min(best, o.Price)
		}
	}
	return best, !math.IsInf(best, 1)
}

func (f *firstFit) place(pod *corev1.Pod, asks [3]int64) bool {
	node, err := f.s.Labels.FromPod(&pod.Spec)
	if err != nil {
		return false
	}
	wants := node.Selector
	for _, v := range pod.Spec.Volumes {
		claim := f.s.Volumes.Claims[nameIn(pod.Namespace, v.PersistentVolumeClaim.ClaimName)]
		affinity := f.s.Volumes.Volumes[claim.Spec.VolumeName].Spec.NodeAffinity
		zone, _ := f.s.Labels.FromExpressions(affinity.Required.NodeSelectorTerms[0].MatchExpressions)
		wants = wants.Intersect(zone)
	}
	for _, b := range f.bins {
		if f.add(b, pod, asks, wants) {
			return true
		}
	}
	for _, p := range f.pools {
		b := &firstFitBin{pool: p, reqs: f.reqs[p], types: p.InstanceTypes, apps: map[string]int{}}
		if f.add(b, pod, asks, wants) {
			f.bins = append(f.bins, b)
			return true
		}
	}
	return false
}

func (f *firstFit) add(b *firstFitBin, pod *corev1.Pod, asks [3]int64, wants requirement.Set) bool {
	total := b.total
	for i := range total {
		total[i] += asks[i]
	}
	if !slices.ContainsFunc(b.types, func(it *catalog.InstanceType) bool { return f.holds(it, total) }) {
		return false
	}
	if _, blocked := snapshot.Untolerated(pod.Spec.Tolerations, b.pool.NodePool.Spec.Template.Spec.Taints); blocked ||
		!b.reqs.Compatible(wants, f.s.Labels.WellKnown) {
		return false
	}
	app := pod.Labels["app"]
	reqs, zonal := b.reqs.Intersect(wants), false
	for _, c := range pod.Spec.TopologySpreadConstraints {
		switch {
		case c.WhenUnsatisfiable != corev1.DoNotSchedule:
		case c.TopologyKey == Host && b.apps[app] > 0:
			return false
		case c.TopologyKey == Zone:
			zone, ok := f.leastUsed(reqs, app)
			if !ok {
				return false
			}
			reqs, zonal = reqs.With(requirement.In(Zone, zone)), true
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil &&
		len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 &&
		b.apps[app] > 0 {
		return false
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		zone, ok := f.affinityZone(reqs, app)
		if !ok {
			return false
		}
		reqs, zonal = reqs.With(requirement.In(Zone, zone)), true
	}
	var types []*catalog.InstanceType
	for _, it := range b.types {
		if !f.holds(it, total) || !reqs.Overlaps(it.Requirements) {
			continue
		}
		if _, ok := it.Cheapest(reqs); ok {
			types = append(types, it)
		}
	}
	if len(types) == 0 {
		return false
	}
	b.reqs, b.total, b.types = reqs, total, types
	b.apps[app]++
	if zone, ok := reqs.Get(Zone).Single(); ok && zonal {
		if f.apps[app] == nil {
			f.apps[app] = map[string]int{}
		}
		f.apps[app][zone]++
	}
	return true
}

func (f *firstFit) holds(it *catalog.InstanceType, total [3]int64) bool {
	for i, has := range amounts(it.Allocatable) {
		if total[i]+f.extra[i] > has {
			return false
		}
	}
	return true
}

// leastUsed is the zone with the fewest pods of the app, if the node can be there.
func (f *firstFit) leastUsed(reqs requirement.Set, app string) (string, bool) {
	least := math.MaxInt
	for _, z := range f.zones {
		least = min(least, f.apps[app][z])
	}
	for _, z := range f.zones {
		if f.apps[app][z] == least && reqs.Get(Zone).Has(z) {
			return z, true
		}
	}
	return "", false
}

// affinityZone is the zone that the app is in, or any zone for its first pod.
func (f *firstFit) affinityZone(reqs requirement.Set, app string) (string, bool) {
	for _, z := range f.zones {
		if (len(f.apps[app]) == 0 || f.apps[app][z] > 0) && reqs.Get(Zone).Has(z) {
			return z, true
		}
	}
	return "", false
}
