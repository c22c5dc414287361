package propertytest

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	in     = corev1.NodeSelectorOpIn
	notIn  = corev1.NodeSelectorOpNotIn
	exists = corev1.NodeSelectorOpExists
	absent = corev1.NodeSelectorOpDoesNotExist
	gt     = corev1.NodeSelectorOpGt
	lt     = corev1.NodeSelectorOpLt
	gte    = karpv1.OperatorGte
	lte    = karpv1.OperatorLte

	// Labels that types have, and one that each zone has.
	cores  = "example.com/cores"
	gpu    = "example.com/gpu-name"
	zoneID = "example.com/zone-id"

	gpus = "nvidia.com/gpu"
)

// vocabulary is the core's and that of a small cloud.
func vocabulary() requirement.Labels {
	labels := requirement.CoreLabels()
	for _, key := range []string{cores, gpu, zoneID} {
		labels.WellKnown[key] = true
	}
	return labels
}

func (d random) instanceTypes() []*catalog.InstanceType {
	var out []*catalog.InstanceType
	for i := range d.from(1, 7) {
		n := pick(d, 2, 1, 4, 8, 16)
		memory := n * pick(d, 4, 2, 8)
		resources := []string{"cpu", fmt.Sprint(n), "memory", fmt.Sprintf("%dGi", memory), "pods", fmt.Sprint(pick(d, 110, 4, 8, 29))}
		price := float64(n)*0.03 + float64(memory)*0.004 + float64(d.n(32))/1000
		accelerated := d.maybe(15)
		if accelerated {
			resources = append(resources, gpus, fmt.Sprint(d.from(1, 2)))
			price += 0.5
		}
		it := Type(fmt.Sprintf("t%d", i), price, resources...)
		it = WithLabel(it, Arch, pick(d, "amd64", "amd64", "amd64", "arm64"))
		it = WithLabel(it, cores, fmt.Sprint(n))
		it = WithLabel(it, corev1.LabelTopologyRegion, "r1")
		if it = WithLabel(it, corev1.LabelWindowsBuild); d.maybe(12) {
			it = WithLabel(WithLabel(it, corev1.LabelOSStable, "windows"), corev1.LabelWindowsBuild, "10.0.20348")
		}
		if d.maybe(25) {
			it.VolumeLimits = map[string]int{"ebs.csi.aws.com": d.n(4)}
		}
		if it = WithLabel(it, gpu); accelerated {
			it = WithLabel(it, gpu, pick(d, "t4", "a10"))
		}
		if d.maybe(40) {
			it.Allocatable["cpu"] = Resources("cpu", fmt.Sprintf("%dm", n*1000-80))["cpu"]
			it.Allocatable["memory"] = Resources("memory", fmt.Sprintf("%dMi", memory*1024-300))["memory"]
		}
		out = append(out, d.offerings(it, price))
	}
	return out
}

// offerings are some of all: a zone may lack the type, or spot, or have none to give at the moment.
func (d random) offerings(it *catalog.InstanceType, price float64) *catalog.InstanceType {
	var offered []catalog.Offering
	var ids []string
	for _, zone := range some(d, 3, "z1", "z1", "z2", "z3")[:] {
		for _, kind := range [][2]any{{karpv1.CapacityTypeOnDemand, 1.0}, {karpv1.CapacityTypeSpot, 0.4}} {
			if d.maybe(20) {
				continue
			}
			o := Offering(zone, kind[0].(string), price*kind[1].(float64)+float64(d.n(16))/1000)
			o.Available = !d.maybe(15)
			o.Requirements = o.Requirements.With(requirement.In(zoneID, zone+"-id"))
			offered, ids = append(offered, o), append(ids, zone+"-id")
		}
	}
	return WithLabel(WithOfferings(it, offered...), zoneID, ids...)
}

// unsold lets a type be sold in one zone only, or not in one of the zones. As in catalogs of EC2, the type then does not
// name the others, of which it may list offerings all the same, as unavailable ones.
func (d random) unsold(it *catalog.InstanceType) {
	zone, only := pick(d, Zones()...), d.maybe(50)
	sold := func(o catalog.Offering) bool { return (o.Zone == zone) == only }
	if !slices.ContainsFunc(it.Offerings, sold) {
		return
	}
	price := it.Offerings[0].Price
	for _, z := range Zones() {
		listed := slices.ContainsFunc(it.Offerings, func(o catalog.Offering) bool { return o.Zone == z })
		if o := Offering(z, karpv1.CapacityTypeOnDemand, price); !listed && !sold(o) && d.maybe(50) {
			o.Requirements = o.Requirements.With(requirement.In(zoneID, z+"-id"))
			it.Offerings = append(it.Offerings, o)
		}
	}
	for i := range it.Offerings {
		if o := &it.Offerings[i]; !sold(*o) {
			o.Available, o.UnavailableReason = false, catalog.ReasonNotOffered
		}
	}
	nameZones(it)
}

// closeZone lets no type be sold in the zone, unless one is sold nowhere else. Pools may still list the zone, and nodes of
// other origin may be there.
func closeZone(types []*catalog.InstanceType, zone string) {
	elsewhere := func(o catalog.Offering) bool {
		return o.Zone != zone && o.UnavailableReason != catalog.ReasonNotOffered
	}
	for _, it := range types {
		if !slices.ContainsFunc(it.Offerings, elsewhere) {
			return
		}
	}
	for _, it := range types {
		for i := range it.Offerings {
			if o := &it.Offerings[i]; o.Zone == zone {
				o.Available, o.UnavailableReason = false, catalog.ReasonNotOffered
			}
		}
		nameZones(it)
	}
}

// nameZones lets the type name the zones in which it is sold.
func nameZones(it *catalog.InstanceType) *catalog.InstanceType {
	var zones, ids []string
	for _, o := range it.Offerings {
		if o.UnavailableReason != catalog.ReasonNotOffered {
			zones, ids = append(zones, o.Zone), append(ids, o.Zone+"-id")
		}
	}
	return WithLabel(WithLabel(it, Zone, zones...), zoneID, ids...)
}

// requirement is one of a pool's, on a label of types, offerings, or its own.
func (d random) requirement() func(*karpv1.NodePool) {
	switch d.n(12) {
	case 0:
		return Require(Zone, in, some(d, 3, "z1", "z2", "z3")...)
	case 1:
		return Require(Arch, in, some(d, 2, "amd64", "arm64")...)
	case 2:
		return Require(Capacity, in, some(d, 2, karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand)...)
	case 3:
		return Require(cores, pick(d, gt, lt, gte, lte), fmt.Sprint(pick(d, 2, 4, 8)))
	case 4:
		return Require("team", in, some(d, 3, "x", "y", "z")...)
	case 5:
		return Require("team", pick(d, exists, absent))
	case 6:
		return Require("team", notIn, some(d, 2, "x", "y", "z")...)
	case 7:
		return Require("size", pick(d, gt, lt, gte, lte), fmt.Sprint(d.n(4)))
	case 8:
		return Require(corev1.LabelInstanceTypeStable, notIn, some(d, 2, "t0", "t1", "t2")...)
	case 9:
		return Require("beta.kubernetes.io/arch", in, "amd64")
	case 10:
		return Require(gpu, pick(d, absent, exists))
	default:
		return Require(Zone, notIn, pick(d, "z1", "z2", "z3"))
	}
}

func (d random) pool(name string, types []*catalog.InstanceType) snapshot.Pool {
	var edit []func(*karpv1.NodePool)
	add := func(percent int, e func() func(*karpv1.NodePool)) {
		if d.maybe(percent) {
			edit = append(edit, e())
		}
	}
	for range 3 {
		add(35, d.requirement)
	}
	add(25, func() func(*karpv1.NodePool) { return TemplateLabel("rack", pick(d, "r1", "r2")) })
	add(5, func() func(*karpv1.NodePool) { return TemplateLabel(Zone, pick(d, "z1", "z2")) })
	add(20, func() func(*karpv1.NodePool) {
		return PoolTaint("hard", pick(d, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute))
	})
	add(15, func() func(*karpv1.NodePool) { return PoolTaint("soft", corev1.TaintEffectPreferNoSchedule) })
	add(10, func() func(*karpv1.NodePool) {
		return func(np *karpv1.NodePool) {
			np.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "starting", Effect: corev1.TaintEffectNoSchedule}}
		}
	})
	add(40, func() func(*karpv1.NodePool) { return Weight(int32(1 + d.n(4))) })
	add(45, func() func(*karpv1.NodePool) {
		switch d.n(4) {
		case 0:
			return Limit("cpu", fmt.Sprint(d.n(40)))
		case 1:
			return Limit("nodes", fmt.Sprint(d.n(4)))
		case 2:
			return Limit("memory", fmt.Sprintf("%dGi", d.n(100)), "cpu", fmt.Sprint(d.n(30)))
		default:
			return Limit(gpus, fmt.Sprint(d.n(3)), "nodes", fmt.Sprint(d.n(6)))
		}
	})
	add(15, func() func(*karpv1.NodePool) {
		key := pick(d, corev1.LabelInstanceTypeStable, Zone, Arch, cores, Capacity)
		n := d.from(1, 3)
		return func(np *karpv1.NodePool) { Require(key, exists)(np); MinValues(n)(np) }
	})
	add(3, func() func(*karpv1.NodePool) {
		return func(np *karpv1.NodePool) { np.Spec.Replicas = new(int64) }
	})
	p := Pool(name, types, edit...)
	if d.maybe(25) {
		p.Used = Resources("cpu", fmt.Sprint(d.n(12)), "memory", fmt.Sprintf("%dGi", d.n(30)), "nodes", fmt.Sprint(d.n(3)))
	}
	return p
}
