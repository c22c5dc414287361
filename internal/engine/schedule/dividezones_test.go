package schedule_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// typesByZone are types of three proportions in four sizes, with the given price factor in each zone.
func typesByZone(factors map[string]float64) []*catalog.InstanceType {
	var out []*catalog.InstanceType
	for _, family := range []struct {
		name           string
		memory, perCPU int
	}{{"c", 2, 40}, {"m", 4, 50}, {"r", 8, 66}} {
		for _, cpus := range []int{4, 8, 16, 48} {
			it := Type(fmt.Sprintf("%s.%d", family.name, cpus), 1, "cpu", fmt.Sprint(cpus), "memory", fmt.Sprintf("%dGi", cpus*family.memory))
			var offerings []catalog.Offering
			for _, zone := range Zones() {
				offerings = append(offerings, Offering(zone, "on-demand", float64(cpus*family.perCPU)/1000*factors[zone]))
			}
			out = append(out, WithOfferings(it, offerings...))
		}
	}
	return out
}

// webs are deployments of n pods each, spread over zones by the edit.
func webs(n int, spread func(app string, i int) func(*corev1.Pod)) []*corev1.Pod {
	var out []*corev1.Pod
	for k, requests := range [][]string{{"cpu", "2", "memory", "3Gi"}, {"cpu", "1", "memory", "7Gi"}, {"cpu", "500m", "memory", "2Gi"}} {
		app := fmt.Sprintf("web%d", k)
		for i := range n {
			out = append(out, Pod(fmt.Sprintf("%s-%03d", app, i), Requests(requests...), Labeled("app", app), spread(app, i)))
		}
	}
	return append(out, Pods(n, "plain", Requests("cpu", "700m", "memory", "1Gi"))...)
}

func overZones(skew int32) func(string, int) func(*corev1.Pod) {
	return func(app string, _ int) func(*corev1.Pod) { return Spread(Zone, skew, app) }
}

// A spread over zones costs what it costs to pin the pods to the zones by hand.
func TestSpreadCostsNoMoreThanPinnedPods(t *testing.T) {
	pools := []snapshot.Pool{Pool("general", typesByZone(map[string]float64{"z1": 1, "z2": 1.1, "z3": 1.2}))}
	spread := solveValid(t, World(pools, webs(200, overZones(1))...))
	pinned := solveValid(t, World(pools, webs(200, func(_ string, i int) func(*corev1.Pod) { return Selects(Zone, Zones()[i%3]) })...))
	if len(spread.Rejected) > 0 || spread.Stats.HourlyCost > pinned.Stats.HourlyCost*1.005 {
		t.Errorf("%d pods rejected; spread costs $%.3f/h, pinned $%.3f/h", len(spread.Rejected), spread.Stats.HourlyCost, pinned.Stats.HourlyCost)
	}
}

// Where maxSkew leaves a choice, the cheaper zones get more pods.
func TestCheaperZonesGetMorePods(t *testing.T) {
	pools := []snapshot.Pool{Pool("general", typesByZone(map[string]float64{"z1": 1.5, "z2": 1, "z3": 1.3}))}
	p := solveValid(t, World(pools, webs(200, overZones(20))...))
	in := map[string]int{}
	for i := range p.Launches {
		for _, pod := range p.Launches[i].Pods {
			if pod.Labels["app"] == "web1" {
				in[p.Launches[i].Offering.Zone]++
			}
		}
	}
	if in["z2"]-in["z1"] < 19 || in["z3"] < in["z1"] || in["z2"] < in["z3"] || in["z1"]+in["z2"]+in["z3"] != 200 {
		t.Errorf("pods by zone: %v", in)
	}
}

// A zone without capacity leaves the pods that maxSkew allows in the others.
func TestDividedZoneRunsDry(t *testing.T) {
	types := typesByZone(map[string]float64{"z1": 1, "z2": 1.1, "z3": 1.2})
	for _, it := range types {
		it.Offerings[2].Available = it.Name == "c.4" // which holds no pod of web1 beside what limits allow
	}
	s := World([]snapshot.Pool{Pool("general", types, Limit("cpu", "150"))}, webs(200, overZones(1))...)
	p, plain := solveValid(t, s), schedule.Solve(s, schedule.Budget{FirstFitOnly: true})
	if len(p.Rejected) == 0 || len(p.Rejected) > len(plain.Rejected) {
		t.Errorf("%d pods are rejected, by first fit %d", len(p.Rejected), len(plain.Rejected))
	}
}
