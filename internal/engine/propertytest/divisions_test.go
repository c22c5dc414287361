package propertytest

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// divisionWorlds sets how many worlds TestDivisions generates. 600 take four seconds.
const divisionWorlds = 600

// zonalTypes are types with other prices in each zone, some of which are unavailable in a zone.
func (d random) zonalTypes() []*catalog.InstanceType {
	out := Types()
	for i, it := range out {
		var offerings []catalog.Offering
		for _, zone := range Zones() {
			o := Offering(zone, "on-demand", 0.05*float64(int(1)<<i)*(1+float64(d.n(8))/10))
			o.Available = !d.maybe(8)
			offerings = append(offerings, o)
		}
		out[i] = WithOfferings(it, offerings...)
	}
	return out
}

// zonalSpread is a spread over zones of the pods with a label.
func (d random) zonalSpread(key, value string) edit {
	skew := int32(d.from(1, 3))
	when, domains, policy := corev1.DoNotSchedule, int32(0), corev1.NodeInclusionPolicyHonor
	switch {
	case d.maybe(15):
		when = corev1.ScheduleAnyway
	case d.maybe(20):
		domains = int32(d.from(1, 4))
	}
	if d.maybe(20) {
		policy = corev1.NodeInclusionPolicyIgnore
	}
	return Spread(Zone, skew, value, func(c *corev1.TopologySpreadConstraint) {
		c.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
		c.WhenUnsatisfiable, c.NodeAffinityPolicy = when, &policy
		if domains > 0 {
			c.MinDomains = &domains
		}
	})
}

// zonalWorld has apps that spread over zones, alone or together with others, pods of them that run already, pods that
// count without being spread, zones without capacity, and limits.
func (d random) zonalWorld() *snapshot.Snapshot {
	var limits []func(*karpv1.NodePool)
	if d.maybe(25) {
		limits = append(limits, Limit("cpu", fmt.Sprint(d.from(4, 40))))
	}
	s := World([]snapshot.Pool{Pool("general", d.zonalTypes(), limits...)})
	teamed := d.zonalSpread("team", "x")
	for n := range d.from(1, 3) {
		app := fmt.Sprintf("app%d", n)
		rules := []func(*corev1.Pod){Labeled("app", app), Labeled("team", pick(d, "x", "y"))}
		spread := rules
		if d.maybe(90) {
			spread = append(spread[:len(spread):len(spread)], d.zonalSpread("app", app))
		}
		if d.maybe(25) {
			spread = append(spread[:len(spread):len(spread)], teamed)
		}
		if d.maybe(15) {
			spread = append(spread[:len(spread):len(spread)], Needs(Expr(Zone, corev1.NodeSelectorOpIn, some(d, 2, Zones()...)...)))
		}
		for size := range d.from(1, 2) {
			requests := Requests("cpu", fmt.Sprintf("%dm", 250*d.from(1, 8)), "memory", fmt.Sprintf("%dMi", 512*d.from(1, 8)))
			s.Pods = append(s.Pods, Pods(d.from(1, 12), fmt.Sprintf("%s-%d", app, size), append(spread, requests)...)...)
		}
		if d.maybe(15) {
			s.Pods = append(s.Pods, Pods(d.from(1, 3), app+"-counted", append(rules, Requests("cpu", "100m"))...)...)
		}
		for k := range d.n(3) {
			name := fmt.Sprintf("n%d%d", n, k)
			running := Bound(Pod(fmt.Sprintf("%s-running-%d", app, k), append(rules, Requests("cpu", "500m"))...), name)
			s.Nodes = append(s.Nodes, Node(name, "general", func(n *snapshot.Node) {
				n.Labels[Zone] = pick(d, Zones()...)
				n.Allocatable = Resources("cpu", "2", "memory", "8Gi", "pods", "20")
				n.Pods = append(n.Pods, running)
			}))
		}
	}
	s.Pods = append(s.Pods, Pods(d.n(20), "plain", Requests("cpu", "300m", "memory", "2Gi"))...)
	return s
}

// Divided over zones or not, plans keep all rules, and first fit neither schedules more pods nor costs less.
func TestDivisions(t *testing.T) {
	rejected, launched := 0, 0
	for seed := range uint64(divisionWorlds) {
		s := seeded(seed).zonalWorld()
		p := schedule.Solve(s, schedule.Budget{})
		if err := validate.Plan(s, p); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, Describe(p))
		}
		rejected, launched = rejected+len(p.Rejected), launched+len(p.Launches)
		plain := schedule.Solve(s, schedule.Budget{FirstFitOnly: true})
		if len(plain.Rejected) < len(p.Rejected) {
			t.Errorf("seed %d: first fit schedules %d pods more", seed, len(p.Rejected)-len(plain.Rejected))
		}
		if len(plain.Rejected) == len(p.Rejected) && plain.Stats.RelaxedPreferences <= p.Stats.RelaxedPreferences &&
			plain.Stats.HourlyCost < p.Stats.HourlyCost*(1-1e-9) {
			t.Errorf("seed %d: the plan costs %.4f, first fit %.4f", seed, p.Stats.HourlyCost, plain.Stats.HourlyCost)
		}
	}
	if rejected < divisionWorlds || launched < 3*divisionWorlds {
		t.Errorf("%d rejected pods and %d launches are too few to prove anything", rejected, launched)
	}
}
