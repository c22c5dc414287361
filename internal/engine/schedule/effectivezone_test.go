package schedule_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func TestEffectiveZones(t *testing.T) {
	web := func(edit ...func(*corev1.Pod)) *corev1.Pod { return Pod("web", app("web", edit...)...) }
	in3 := func(p *corev1.Pod, of string) *snapshot.Snapshot {
		return withNodes(
			world(p),
			Node("n1", "general", full, runningPods(1, of)),
			Node("n2", "general", full, inZone("z2"), runningPods(1, of)),
		)
	}
	oneVolume := func(p *corev1.Pod, zones ...string) *snapshot.Snapshot {
		Claims("data")(p)
		return storage(world(p), disk{name: "data", volume: volumeIn(zoned(zones...))})
	}
	tests := []struct {
		name  string
		world *snapshot.Snapshot
		want  string
	}{
		{"nothing is asked for", world(web()), "flexible"},
		{"a zone is", world(web(Selects(Zone, "z2"))), "z2"},
		{"alternatives of one zone", world(web(Needs(Expr(Zone, in, "z2")), Needs(Expr(Zone, in, "z2"), Expr(Arch, in, "arm64")))), "z2"},
		{"alternatives, one of which says nothing", world(web(Needs(Expr(Zone, in, "z2")), Needs(Expr(Arch, in, "amd64")))), "flexible"},
		{"contradictory zones", world(web(Selects(Zone, "z2"), Needs(Expr(Zone, in, "z1")))), "none"},
		{"a volume of two zones", oneVolume(web(), "z1", "z2"), "flexible"},
		{"of one", oneVolume(web(), "z2"), "z2"},
		{"of another than the selector's", oneVolume(web(Selects(Zone, "z1")), "z2"), "none"},
		{"of two, the pod excludes one", oneVolume(web(Needs(Expr(Zone, notIn, "z1"))), "z1", "z2"), "z2"},
		{"a volume that may be anywhere", storage(world(web(Claims("data"))), disk{name: "data", class: "wait"}), "flexible"},
		{"a preference", world(web(Prefers(1, Expr(Zone, in, "z1")))), "flexible"},
		{"near what is in z1", withNodes(world(web(Near(Zone, "db"))), Node("n", "general", full, runningPods(1, "db"))), "z1"},
		{"apart from what is in z1 and z2", in3(web(Apart(Zone, "db")), "db"), "z3"},
		{"a spread leaves z3", in3(web(Spread(Zone, 1, "web")), "web"), "z3"},
		{"of the zones that a spread leaves, the volume's", oneVolume(web(Spread(Zone, 1, "web")), "z2"), "z2"},
		{"a soft spread leaves all", in3(web(Spread(Zone, 1, "web", anyway)), "web"), "flexible"},
		{"the first of its family chooses", world(web(Near(Zone, "web"))), "flexible"},
		{"affinity to pods that do not exist", world(web(Near(Zone, "db"))), "none"},
		{
			"apart from what is everywhere",
			withNodes(in3(web(Apart(Zone, "db")), "db"), Node("n3", "general", full, inZone("z3"), runningPods(1, "db"))),
			"none",
		},
		{
			"minDomains beyond the zones there are",
			withNodes(
				World(pool(Require(Zone, in, "z1", "z2")), web(Spread(Zone, 1, "web", minDomains(3)))),
				Node("n1", "general", full, runningPods(1, "web")),
				Node("n2", "general", full, inZone("z2"), runningPods(1, "web")),
			),
			"none",
		},
		{
			"others keep it out of all zones but z3",
			withNodes(world(web()), Node("n1", "general", full, declaring("web")), Node("n2", "general", full, inZone("z2"), declaring("web"))),
			"z3",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := schedule.Solve(tt.world, schedule.Budget{})
			if diff := cmp.Diff(map[string]int{tt.want: 1}, p.Zones); diff != "" {
				t.Errorf("pods by zone (-want +got):\n%s", diff)
			}
		})
	}
	s := world(
		append(
			Pods(3, "a", Selects(Zone, "z1")),
			Bound(Pod("moves", Selects(Zone, "z1")), "gone"),
			Pod("b"),
			Pod("refused", Claims("nothing")),
		)...)
	if diff := cmp.Diff(map[string]int{"z1": 3, "flexible": 1}, schedule.Solve(s, schedule.Budget{}).Zones); diff != "" {
		t.Errorf("pods by zone (-want +got):\n%s", diff)
	}
}

// declaring adds a running pod that keeps pods labeled app=name out of its zone.
func declaring(name string) func(*snapshot.Node) {
	return func(n *snapshot.Node) {
		n.Pods = append(n.Pods, Bound(Pod("alone-"+n.Name, Apart(Zone, name)), n.Name))
	}
}
