package schedule_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// onlyIn is a type that is offered in one zone.
func onlyIn(zone string, it *catalog.InstanceType) *catalog.InstanceType {
	var offerings []catalog.Offering
	for _, o := range it.Offerings {
		if o.Zone == zone {
			offerings = append(offerings, o)
		}
	}
	return WithOfferings(it, offerings...)
}

// Small clusters, found by random tests, in which plans were once wrong.
func TestRegressionsFromRandomClusters(t *testing.T) {
	sidecar := func(port int32) func(*corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{
				{Name: "sidecar", RestartPolicy: &always, Ports: []corev1.ContainerPort{{HostPort: port}}},
			}
		}
	}
	softNode := Node("n1", "general", func(n *snapshot.Node) {
		n.Taints = []corev1.Taint{{Key: "soft", Effect: prefer}}
	})
	soft := daemons(
		withNodes(World(pool(), Pod("a", Requests("cpu", "3900m"), Tolerates("soft"))), softNode),
		Pod("agent", Requests("cpu", "200m")),
	)
	far := []snapshot.Pool{Pool("general", []*catalog.InstanceType{
		Type("small", 0.1, "cpu", "2", "memory", "8Gi"), onlyIn("z3", Type("large", 0.4, "cpu", "8", "memory", "32Gi")),
	})}
	// Nodes of one type have a label that one pod excludes, and by which others keep apart.
	build := []snapshot.Pool{Pool("general", []*catalog.InstanceType{
		WithLabel(
			Type("named", 0.1, "cpu", "2", "memory", "8Gi"),
			corev1.LabelWindowsBuild,
			"1",
		), Type("nameless", 0.4, "cpu", "8", "memory", "32Gi"),
	})}
	checkPlans(t, []planCase{
		{"nodes without the label have no domain to keep away from", World(build, append(
			Pods(2, "a", Labeled("app", "a"), Apart(corev1.LabelWindowsBuild, "a"), Requests("cpu", "100m")),
			Pod("big", Requests("cpu", "7"), Needs(Expr(corev1.LabelWindowsBuild, absent))),
			Pod(
				"first",
				Labeled("app", "a"),
				Apart(corev1.LabelWindowsBuild, "a"),
				Requests("cpu", "1"),
				Selects(corev1.LabelWindowsBuild, "1"),
			),
		)...,
		), []string{"general named: first", "general nameless: a x2, big"}},
		{"a sidecar's host port", World(pool(), Pods(2, "a", sidecar(80))...), []string{"general m.small: a", "general m.small: a"}},
		{
			"one value demanded, and none",
			World(pool(TemplateLabel("rack", "r1")), Pod("a", Selects("rack", "r1"), Needs(Expr("rack", absent)))),
			[]string{"unschedulable (Requirements): a"},
		},
		{
			"a pool that contradicts itself",
			World(pool(Require("team", in, "x"), Require("team", absent)), Pod("a")),
			[]string{"unschedulable (Requirements): a"},
		},
		{
			"a contradiction about pools is no opting out",
			World(pool(), Pod("a", Prefers(1, Expr(karpv1.LabelNodePool, in, "x"), Expr(karpv1.LabelNodePool, notIn, "x")))),
			[]string{"general m.small: a"},
		},
		{
			"a label that one pod excludes is not on its node",
			World(pool(), Pod("a", Needs(Expr("team", notIn, "x"))), Pod("b", Needs(Expr("team", in, "y")))),
			[]string{"general m.small: a", "unschedulable (Requirements): b"},
		},
		{"daemons run in spite of soft taints", soft, []string{"general m.xlarge: a"}},
		{
			"pods that require a label to be absent do not share a domain",
			World(pool(), Pod("a", Labeled("app", "a"), Needs(Expr("rack", absent)), Apart("rack", "a"))),
			[]string{"general m.small: a"},
		},
		{
			"keep away from what can only be in one zone",
			World(far, Pod("big", Requests("cpu", "7"), Labeled("app", "big")), Pod("a", Apart(Zone, "big"))),
			[]string{"general large z3: big", "general small: a"},
		},
		{
			"follow what can only be in one zone",
			World(far, Pod("big", Requests("cpu", "7"), Labeled("app", "big")), Pod("a", Requests("cpu", "1500m"), Near(Zone, "big"))),
			[]string{"general large z3: big", "general small z3: a"},
		},
	})
}

// A claim lists no fewer capacity types than its minValues, or the API server rejects it.
func TestMinValuesOfCapacityTypes(t *testing.T) {
	it := Type("only", 0.1, "cpu", "2", "memory", "8Gi")
	for i := range it.Offerings {
		it.Offerings[i].Available = it.Offerings[i].CapacityType != karpv1.CapacityTypeSpot
	}
	p := schedule.Solve(
		World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{it}, Require(Capacity, exists), MinValues(2))}, Pod("a")),
		schedule.Budget{},
	)
	if len(p.Launches) != 1 {
		t.Fatal(describe(p))
	}
	for _, r := range p.Launches[0].ClaimRequirements() {
		if r.Key == Capacity && (r.MinValues == nil || len(r.Values) < *r.MinValues) {
			t.Errorf("%v with minValues %v", r.Values, r.MinValues)
		}
	}
}
