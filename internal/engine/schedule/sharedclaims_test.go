package schedule_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

func oncePod(c *corev1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
}

// withAttachLimit are the common types, each of which can attach n EBS volumes.
func withAttachLimit(n int) []*catalog.InstanceType {
	var out []*catalog.InstanceType
	for _, it := range Types() {
		limited := *it
		limited.VolumeLimits = map[string]int{"ebs.csi.aws.com": n}
		out = append(out, &limited)
	}
	return out
}

func solveValid(t *testing.T, s *snapshot.Snapshot) schedule.Plan {
	t.Helper()
	p := schedule.Solve(s, schedule.Budget{})
	if err := validate.Plan(s, p); err != nil {
		t.Error(err)
	}
	return p
}

// A pod with a claim of ReadWriteOncePod that another pod uses waits, and no node is launched for it.
func TestPodWaitsForAReadWriteOncePodClaimInUse(t *testing.T) {
	world := func(pods ...*corev1.Pod) *snapshot.Snapshot {
		s := World([]snapshot.Pool{Pool("general", Types())}, pods...)
		return storage(s, disk{name: "data", volume: volumeIn(zoned("z1")), edit: oncePod})
	}
	t.Run("by a pod that runs", func(t *testing.T) {
		s := world(Pod("new", Claims("data")))
		s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) {
			n.Pods = []*corev1.Pod{Bound(Pod("old", Claims("data"), Requests("cpu", "3")), "n1")}
		})}
		p := solveValid(t, s)
		if len(p.Launches)+len(p.Placements) > 0 || len(p.Rejected) != 1 {
			t.Fatalf("%d launches, %d placements, %d rejected", len(p.Launches), len(p.Placements), len(p.Rejected))
		}
		why := p.Rejected[0].Reasons[0]
		if want := `volume claim "data" has access mode ReadWriteOncePod, and pod "old" uses it or is planned to; the pod waits until that one is gone`; why.Code != schedule.VolumeInUse ||
			wording.Reason(why) != want {
			t.Errorf("got %s %q", why.Code, wording.Reason(why))
		}
		if !p.Rejected[0].Ignored() {
			t.Error("the pod counts as unschedulable")
		}
	})
	t.Run("by another pending pod", func(t *testing.T) {
		for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
			p := solveValid(t, world(Pod(order[0], Claims("data")), Pod(order[1], Claims("data"))))
			if len(p.Launches) != 1 || len(p.Launches[0].Pods) != 1 || p.Launches[0].Pods[0].Name != "a" || len(p.Rejected) != 1 {
				t.Errorf("of two pods that share the claim, not just a is planned, but %d launches, %d rejected", len(p.Launches), len(p.Rejected))
			}
		}
	})
	t.Run("not by a pod that has ended", func(t *testing.T) {
		s := world(Pod("new", Claims("data")))
		s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) {
			old := Bound(Pod("old", Claims("data")), "n1")
			old.Status.Phase = corev1.PodSucceeded
			n.Pods = []*corev1.Pod{old}
		})}
		if p := solveValid(t, s); len(p.Rejected) > 0 {
			t.Errorf("rejected: %v", p.Rejected[0].Reasons)
		}
	})
	t.Run("what-if moves its user", func(t *testing.T) {
		s := world()
		s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) {
			n.Pods = []*corev1.Pod{Bound(Pod("old", Claims("data")), "n1")}
		})}
		p := schedule.Compile(s).WhatIf([]int{0}, s.Nodes[0].Pods, schedule.Budget{})
		if len(p.Launches) != 1 || len(p.Rejected) > 0 {
			t.Errorf("the pod that uses the claim cannot move: %d rejected", len(p.Rejected))
		}
	})
}

// Pods that share a claim without a volume yet go to one zone: the volume comes up in the zone of the first.
func TestPodsSharingAnUnboundClaimGoToOneZone(t *testing.T) {
	pods := Pods(6, "web", Claims("shared"), Requests("cpu", "6"))
	spread := Pods(6, "calm", app("calm", Spread(Zone, 1, "calm"), Requests("cpu", "6"))...)
	s := storage(World([]snapshot.Pool{Pool("general", Types())}, append(pods, spread...)...), disk{name: "shared", class: "wait"})
	p := solveValid(t, s)
	if len(p.Rejected) > 0 {
		t.Fatalf("rejected: %v", p.Rejected[0].Reasons)
	}
	zones := map[string]bool{}
	for _, l := range p.Launches {
		for _, pod := range l.Pods {
			if strings.HasPrefix(pod.Name, "web") {
				zone, single := l.Requirements.Get(Zone).Single()
				if !single {
					t.Errorf("%s is on a node that can come up in several zones", pod.Name)
				}
				zones[zone] = true
			}
		}
	}
	if len(zones) != 1 || len(p.Launches) < 3 {
		t.Errorf("pods that share a claim are in zones %v, on %d nodes in all", zones, len(p.Launches))
	}
}

// A new node holds no more pods with volumes than its type can attach.
func TestNewNodesAttachNoMoreVolumesThanTheirTypeCan(t *testing.T) {
	var pods []*corev1.Pod
	var disks []disk
	for i := range 50 {
		name := fmt.Sprintf("data-%02d", i)
		pods = append(pods, Pod("db-"+name, Claims(name), Requests("cpu", "10m")))
		disks = append(disks, disk{name: name, class: "wait"})
	}
	world := func(list []*catalog.InstanceType) *snapshot.Snapshot {
		return storage(World([]snapshot.Pool{Pool("general", list)}, pods...), disks...)
	}
	if p := solveValid(t, world(withAttachLimit(26))); len(p.Launches) != 2 || len(p.Rejected) > 0 {
		t.Errorf("50 volumes, 26 a node: %d nodes, %d pods rejected", len(p.Launches), len(p.Rejected))
	}
	if p := solveValid(t, world(Types())); len(p.Launches) != 1 {
		t.Errorf("without a limit that is known: %d nodes", len(p.Launches))
	}
	t.Run("a shared volume is one", func(t *testing.T) {
		s := storage(
			World([]snapshot.Pool{Pool("general", withAttachLimit(1))}, Pods(5, "web", Claims("shared"), Requests("cpu", "10m"))...),
			disk{name: "shared", class: "wait"},
		)
		if p := solveValid(t, s); len(p.Launches) != 1 || len(p.Rejected) > 0 {
			t.Errorf("%d nodes, %d pods rejected", len(p.Launches), len(p.Rejected))
		}
	})
	t.Run("more than any type can", func(t *testing.T) {
		s := storage(World([]snapshot.Pool{Pool("general", withAttachLimit(1))}, Pod("db", Claims("data-00"), Claims("data-01"))), disks...)
		p := solveValid(t, s)
		if len(p.Rejected) != 1 {
			t.Fatalf("%d rejected", len(p.Rejected))
		}
		if got := wording.Reason(p.Rejected[0].Reasons[0]); !strings.Contains(got, "2 attachable-volumes-csi-ebs.csi.aws.com") ||
			!strings.Contains(got, "has 1 for pods") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a node that is not up yet", func(t *testing.T) {
		s := world(withAttachLimit(26))
		s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) {
			n.Registered, n.Initialized = false, false
			n.Labels[corev1.LabelInstanceTypeStable] = Types()[0].Name
		})}
		for _, placed := range solveValid(t, s).Placements {
			if len(placed.Pods) > 26 {
				t.Errorf("%d pods with a volume each are to go to a node that can attach 26", len(placed.Pods))
			}
		}
	})
}
