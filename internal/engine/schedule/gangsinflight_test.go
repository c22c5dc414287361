package schedule_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

// inFlight is a node of onePodNodes for a pod, launched and not registered.
func inFlight(name string, pod *corev1.Pod) snapshot.Node {
	return Node(name, "general", func(n *snapshot.Node) {
		n.Registered, n.Initialized, n.Claim = false, false, name
		n.Allocatable, n.Nominated = Resources("cpu", "2", "memory", "8Gi", "pods", "110"), []types.UID{pod.UID}
	})
}

// Whatever keeps a part of a gang off all nodes, no node is launched for the other part.
func TestAGangThatDoesNotFitGetsNoNodeWhateverTheCause(t *testing.T) {
	pool := func(types []*catalog.InstanceType, pods ...*corev1.Pod) *snapshot.Snapshot {
		return World([]snapshot.Pool{Pool("general", types)}, pods...)
	}
	limited := func(driver string, volumes int) []*catalog.InstanceType {
		sold := onePodNodes()
		sold[0].VolumeLimits = map[string]int{driver: volumes}
		return sold
	}
	mounts := func(s *snapshot.Snapshot, names ...string) *snapshot.Snapshot {
		wait, class := storagev1.VolumeBindingWaitForFirstConsumer, "disks"
		s.Volumes.Claims = map[types.NamespacedName]*corev1.PersistentVolumeClaim{}
		s.Volumes.StorageClasses = map[string]*storagev1.StorageClass{class: {
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &wait,
		}}
		for _, name := range names {
			Claims(name)(s.Pods[0])
			s.Volumes.Claims[types.NamespacedName{Namespace: "default", Name: name}] = &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
			}
		}
		return s
	}
	last := func(edit ...func(*corev1.Pod)) []*corev1.Pod {
		pods := gangPods(3, "train", 0)
		for _, e := range edit {
			e(pods[2])
		}
		return pods
	}
	for _, c := range []struct {
		name string
		s    *snapshot.Snapshot
		why  string
	}{
		{
			"limits", World([]snapshot.Pool{Pool("general", onePodNodes(), Limit("nodes", "2"))}, last()...), "limit of 2 nodes",
		},
		{
			"EC2 has no capacity", pool(func() []*catalog.InstanceType {
				sold := onePodNodes()
				for i := range sold[0].Offerings {
					sold[0].Offerings[i].Available = false
				}
				return sold
			}(), last()...), "0 of its 3 pods fit",
		},
		{
			"EC2 has none where one of them must run", pool(func() []*catalog.InstanceType {
				sold := onePodNodes()
				for i := range sold[0].Offerings {
					sold[0].Offerings[i].Available = sold[0].Offerings[i].Zone != "z2"
				}
				return sold
			}(), last(Selects(Zone, "z2"))...), "2 of its 3 pods fit",
		},
		{
			"a taint", World([]snapshot.Pool{
				Pool("general", onePodNodes()), Pool("special", onePodNodes(), PoolTaint("special", corev1.TaintEffectNoSchedule)),
			}, last(Selects("karpenter.sh/nodepool", "special"))...), "special",
		},
		{"a topology", pool(onePodNodes(), last(Near(Zone, "nobody"))...), "nobody"},
		{
			"a spread over a zone where nothing is sold", pool([]*catalog.InstanceType{WithOfferings(onePodNodes()[0], Offering("z1", "on-demand", 1))},
				gangPods(3, "train", 0, Labeled("app", "train"), Spread(Zone, 1, "train", func(c *corev1.TopologySpreadConstraint) {
					two := int32(2)
					c.MinDomains = &two
				}))...), "1 of its 3 pods fit",
		},
		{
			"a host port that a DaemonSet has", func() *snapshot.Snapshot {
				s := pool(onePodNodes(), last(HostPort("", 80, corev1.ProtocolTCP))...)
				s.DaemonSets = []snapshot.DaemonSet{{Namespace: "default", Name: "proxy", Pod: Pod("proxy", HostPort("", 80, corev1.ProtocolTCP))}}
				return s
			}(), "port",
		},
		{"attach limits", mounts(pool(limited("ebs.csi.aws.com", 1), last()...), "a", "b"), "2 of its 3 pods fit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := solveValid(t, WithGroups(c.s, Gang("train", 3)))
			if len(p.Launches) != 0 || len(p.Rejected) != 3 {
				t.Fatalf("%d launches, %d rejected", len(p.Launches), len(p.Rejected))
			}
			for _, r := range p.Rejected {
				if why := wording.Reason(r.Reasons[0]); r.Reasons[0].Code != schedule.PodGroup || !strings.Contains(why, c.why) {
					t.Errorf("%s: %s %s", r.Pod.Name, r.Reasons[0].Code, why)
				}
			}
		})
	}
}

// minCount is raised above the number of pods while nodes are in flight: kube-scheduler holds the group, so that no node is launched for
// it, and the pods of others get no node where one of the gang's has room.
func TestAGangThatIsHeldGetsNoMoreNodes(t *testing.T) {
	pods := gangPods(3, "train", 0)
	s := World([]snapshot.Pool{Pool("general", onePodNodes())}, pods...)
	s.Nodes = []snapshot.Node{inFlight("c1", pods[0]), inFlight("c2", pods[1])}
	before := *s
	if p := solveValid(t, WithGroups(&before, Gang("train", 3))); len(p.Launches) != 1 {
		t.Fatalf("%d launches while the gang is whole, want 1", len(p.Launches))
	}
	p := solveValid(t, WithGroups(s, Gang("train", 4)))
	if len(p.Launches) != 0 || len(p.Rejected) != 3 {
		t.Errorf("%d launches, %d rejected", len(p.Launches), len(p.Rejected))
	}
}

// What a gang was planned with changes while two of its three nodes boot. These stay, and of the rest no more is launched than the gang can
// use.
func TestAGangThatChangesWhileItsNodesBoot(t *testing.T) {
	general := Pool("general", onePodNodes())
	other := Pool("other", onePodNodes())
	for _, c := range []struct {
		name                       string
		pools                      []snapshot.Pool
		group                      *schedulingv1beta1.PodGroup // nil: it is deleted
		onNodes, launches, refused int                         // pods on nodes in flight, launches, rejected pods
	}{
		{"nothing changes", []snapshot.Pool{general}, Gang("train", 3), 2, 1, 0},
		{"minCount is lowered", []snapshot.Pool{general}, Gang("train", 2), 2, 1, 0},
		{"the PodGroup is deleted", []snapshot.Pool{general}, nil, 0, 0, 3},
		{"the NodePool is deleted, and there is no other", nil, Gang("train", 3), 0, 0, 3},
		{"the NodePool is deleted, and minCount have nodes", nil, Gang("train", 2), 2, 0, 1},
		{"the NodePool is deleted, and there is another", []snapshot.Pool{other}, Gang("train", 3), 2, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			pods := gangPods(3, "train", 0)
			s := World(c.pools, pods...)
			s.Nodes = []snapshot.Node{inFlight("c1", pods[0]), inFlight("c2", pods[1])}
			if c.group != nil {
				WithGroups(s, c.group)
			} else {
				s.PodGroups = []snapshot.PodGroup{{Namespace: "default", Name: "train", Members: pods}}
			}
			p := solveValid(t, s)
			onNodes := 0
			for i := range p.Placements {
				onNodes += len(p.Placements[i].Pods)
			}
			if onNodes != c.onNodes || len(p.Launches) != c.launches || len(p.Rejected) != c.refused {
				t.Errorf("%d pods on nodes in flight, %d launches, %d rejected; want %d, %d, %d",
					onNodes, len(p.Launches), len(p.Rejected), c.onNodes, c.launches, c.refused)
			}
		})
	}
}

// While a gang waits for the last of its nodes, another pod is bound to one that is ready. Nothing reserves it: what is missing now is
// launched, and nothing else.
func TestOfAGangThePartThatOthersTookIsPlannedAgain(t *testing.T) {
	pods := gangPods(3, "train", 0)
	ready := func(name string, pod *corev1.Pod, taken ...*corev1.Pod) snapshot.Node {
		n := inFlight(name, pod)
		n.Registered, n.Initialized, n.Settling = true, true, true
		n.LaunchedFor = string(pod.UID)
		if n.Pods = taken; len(taken) > 0 {
			n.TakenFrom = []types.UID{pod.UID}
		}
		return n
	}
	web := Bound(Pod("web", Requests("cpu", "1")), "c1")
	for _, c := range []struct {
		name     string
		last     snapshot.Node
		launches int
	}{
		{"the last node is in flight", inFlight("c3", pods[2]), 1},
		{"the last node is ready", ready("c3", pods[2]), 1},
		{"a node of others has room", Node("c3", "general", func(n *snapshot.Node) {
			n.Allocatable = Resources("cpu", "4", "memory", "16Gi", "pods", "110")
		}), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := World([]snapshot.Pool{Pool("general", onePodNodes())}, pods...)
			s.Nodes = []snapshot.Node{ready("c1", pods[0], web), ready("c2", pods[1]), c.last}
			p := solveValid(t, WithGroups(s, Gang("train", 3)))
			if len(p.Launches) != c.launches || len(p.Rejected) != 0 {
				t.Errorf("%d launches, want %d; %d rejected", len(p.Launches), c.launches, len(p.Rejected))
			}
		})
	}
}

// greedy has kube-scheduler place the pods one by one, in their order, on any of the nodes with the most room left: it does not take
// another back for a pod that finds none.
func greedy(nodes []int64, pods []int64) bool {
	free := slices.Clone(nodes)
	for _, want := range pods {
		best := -1
		for i := range free {
			if free[i] >= want && (best < 0 || (free[i]-want)*nodes[best] > (free[best]-want)*nodes[i]) {
				best = i
			}
		}
		if best < 0 {
			return false
		}
		free[best] -= want
	}
	return true
}

// A gang has a large pod behind small ones: these may take the only node that holds it, since kube-scheduler takes the pods in their order.
// The nodes of the plan hold all of them in this order.
func TestAGangWithALargePodBehindSmallOnesFitsInTheirOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		types []*catalog.InstanceType
		small int
	}{
		{"a large node and a small one", []*catalog.InstanceType{
			Type("small", 1, "cpu", "2", "memory", "8Gi"), Type("large", 2, "cpu", "4", "memory", "16Gi"),
		}, 1},
		{"small ones fill a node of their own", []*catalog.InstanceType{Type("large", 2, "cpu", "4", "memory", "16Gi")}, 2},
		{"many small ones", []*catalog.InstanceType{
			Type("small", 1, "cpu", "2", "memory", "8Gi"), Type("large", 2, "cpu", "4", "memory", "16Gi"),
			Type("huge", 4.5, "cpu", "8", "memory", "32Gi"),
		}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			pods := slices.Concat(gangPods(c.small, "train", 0), []*corev1.Pod{Pod("driver", InGroup("train"), Requests("cpu", "3500m"))})
			pods[c.small].CreationTimestamp.Time = Now()
			s := World([]snapshot.Pool{Pool("general", c.types)}, pods...)
			p := solveValid(t, WithGroups(s, Gang("train", int32(len(pods)))))
			if len(p.Rejected) != 0 {
				t.Fatalf("rejected: %+v", p.Rejected)
			}
			var nodes, order []int64
			for i := range p.Launches {
				nodes = append(nodes, p.Launches[i].InstanceTypes[0].Allocatable.Cpu().MilliValue())
			}
			for range c.small {
				order = append(order, 1500)
			}
			if order = append(order, 3500); !greedy(nodes, order) {
				t.Errorf("nodes of %v do not hold the pods in their order", nodes)
			}
		})
	}
}
