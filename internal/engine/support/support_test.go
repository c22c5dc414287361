package support_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
)

const (
	driver  = "ebs.csi.aws.com"
	feature = "RestartAllContainersOnContainerExits"
)

func restartsAll(p *corev1.Pod) {
	p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
}

// installer is a DaemonSet as that of the EBS CSI driver.
func installer(edit ...func(*corev1.Pod)) snapshot.DaemonSet {
	edit = append(edit, func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "plugin-dir", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins/" + driver + "/"},
		}})
	})
	return snapshot.DaemonSet{Namespace: "kube-system", Name: "ebs-csi-node", Pod: Pod("ebs-csi-node", edit...)}
}

// world has a pod with a volume of the driver, which must be installed, and tolerates the taint of the pool.
func world(edit ...func(*snapshot.Snapshot)) *snapshot.Snapshot {
	s := World([]snapshot.Pool{Pool("p", Types(), PoolTaint("t", corev1.TaintEffectNoSchedule))}, Pod("web", Requests("cpu", "100m"), Claims("disk"), Tolerates("t")))
	class, mode := "gp3", storagev1.VolumeBindingWaitForFirstConsumer
	s.Volumes = snapshot.Volumes{
		Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{{Namespace: "default", Name: "disk"}: {
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "disk"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
		}},
		StorageClasses: map[string]*storagev1.StorageClass{
			class: {ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: driver, VolumeBindingMode: &mode},
		},
		MustBeInstalled: map[string]bool{driver: true},
	}
	for _, e := range edit {
		e(s)
	}
	return s
}

// featured is a pod that needs a kubelet with the feature, and a pool.
func featured(edit ...func(*snapshot.Snapshot)) *snapshot.Snapshot {
	s := World([]snapshot.Pool{Pool("p", Types())}, Pod("web", Requests("cpu", "100m"), restartsAll))
	for _, e := range edit {
		e(s)
	}
	return s
}

func daemons(sets ...snapshot.DaemonSet) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) { s.DaemonSets = sets }
}

// node adds a node of the pool that is full or has room.
func node(name string, full bool, edit ...func(*snapshot.Node)) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		s.Nodes = append(s.Nodes, Node(name, "p", append(edit, func(n *snapshot.Node) {
			if full {
				n.Pods = append(n.Pods, Bound(Pod("full-"+name, Requests("cpu", n.Allocatable.Cpu().String())), name))
			}
		})...))
	}
}

func has(drivers ...string) func(*snapshot.Node) {
	return func(n *snapshot.Node) { n.CSIDrivers = drivers }
}

// runs has the pod of a DaemonSet on the node.
func runs(set snapshot.DaemonSet) func(*snapshot.Node) {
	return func(n *snapshot.Node) {
		pod := set.Pod.DeepCopy()
		OwnedBy("apps/v1", "DaemonSet")(pod)
		pod.OwnerReferences[0].Name = set.Name
		n.Pods = append(n.Pods, Bound(pod, n.Name))
	}
}

func declares(n *snapshot.Node) { n.DeclaredFeatures = []string{feature} }

func inFlight(n *snapshot.Node) { n.Initialized, n.Registered = false, false }

func TestPodsGoOnlyWhereKubeletAndDriversSuitThem(t *testing.T) {
	declared := func(s *snapshot.Snapshot) { s.Pools[0].KubeletFeatures = []string{feature} }
	for _, tt := range []struct {
		name string
		in   *snapshot.Snapshot
		// want is "new", the name of a node, or what the reason states.
		want string
	}{
		{
			"a driver whose DaemonSet does not tolerate the pool", world(daemons(installer())),
			`DaemonSet kube-system/ebs-csi-node, which installs it, does not tolerate taint t:NoSchedule of the pool`,
		},
		{"a driver whose DaemonSet runs there", world(daemons(installer(Tolerates("t")))), "new"},
		{
			"a driver whose DaemonSet selects other nodes", world(daemons(installer(Tolerates("t"), Selects("disks", "yes")))),
			"its node selection excludes them",
		},
		{"a driver that no DaemonSet installs is taken for part of the image", world(), "new"},
		{
			"until a node of the pool is without it", world(node("n", true)),
			`CSI driver "ebs.csi.aws.com" on its node, and no initialized node of the pool has it`,
		},
		{"the image has the driver all the same", world(daemons(installer()), node("n", true, has(driver))), "new"},
		{
			"an old node has it from the DaemonSet, which does not tolerate the taint that the pool has now",
			world(daemons(installer()), node("n", true, has(driver), runs(installer()))), "does not tolerate taint",
		},
		{"a driver that need not be installed", world(daemons(installer()), func(s *snapshot.Snapshot) { s.Volumes.MustBeInstalled = nil }), "new"},
		{"an existing node with the driver", world(daemons(installer()), node("n", false, has(driver))), "n"},
		{"an existing node without it, the DaemonSet to come elsewhere", world(daemons(installer(Tolerates("t"))), node("n", false)), "new"},
		{"a node in flight, whose driver is to come", world(daemons(installer(Tolerates("t"))), node("n", false, inFlight)), "n"},
		{"a node in flight, whose driver never comes", world(daemons(installer()), node("n", false, inFlight)), "does not tolerate taint"},

		{"an image that is not known to have the feature", featured(), `a kubelet that declares feature "` + feature + `"`},
		{"an image that has it", featured(declared), "new"},
		{"initialized nodes decide, whatever the image says", featured(declared, node("n", true)), "nodes of the pool are not known to have one"},
		{"nodes that declare it", featured(node("n", true, declares)), "new"},
		{"not all nodes declare it", featured(node("n", true, declares), node("m", true)), "nodes of the pool are not known to have one"},
		{"an existing node that declares it", featured(node("n", false), node("m", false, declares)), "m"},
		{"a node in flight of an image that has it", featured(declared, node("n", false, inFlight)), "n"},
		{"a pod that needs no feature", World([]snapshot.Pool{Pool("p", Types())}, Pod("web")), "new"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := schedule.Solve(tt.in, schedule.Budget{})
			if err := validate.Plan(tt.in, plan); err != nil {
				t.Error(err)
			}
			if err := validate.Choices(tt.in, plan); err != nil {
				t.Error(err)
			}
			got := outcome(plan)
			if got != tt.want && (len(plan.Rejected) == 0 || !strings.Contains(got, tt.want)) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// A DaemonSet that selects an architecture installs its driver on instances of that one alone.
func TestPodsGoToTypesOnWhichTheirDriversAreInstalled(t *testing.T) {
	s := world(daemons(installer(Tolerates("t"), Selects(Arch, "arm64"))), func(s *snapshot.Snapshot) {
		arm := WithLabel(Type("arm.large", 1, "cpu", "4", "memory", "16Gi"), Arch, "arm64") // for more than the others
		s.Pools[0].InstanceTypes = append(s.Pools[0].InstanceTypes, arm)
	})
	plan := schedule.Solve(s, schedule.Budget{})
	if err := validate.Plan(s, plan); err != nil {
		t.Error(err)
	}
	if len(plan.Launches) != 1 || len(plan.Launches[0].InstanceTypes) != 1 || plan.Launches[0].InstanceTypes[0].Name != "arm.large" {
		t.Errorf("got %+v, want one node of arm.large", plan)
	}
	s.Volumes.MustBeInstalled = nil
	cheaper := schedule.Solve(s, schedule.Budget{})
	s.Volumes.MustBeInstalled = map[string]bool{driver: true}
	if err := validate.Plan(s, cheaper); err == nil || !strings.Contains(err.Error(), "needs "+driver) {
		t.Errorf("the checker: got %v, want the driver", err)
	}
}

// outcome returns where the pod goes, or the message of why it waits.
func outcome(p schedule.Plan) string {
	switch {
	case len(p.Launches) > 0:
		return "new"
	case len(p.Rejected) > 0:
		return wording.Reason(p.Rejected[0].Reasons[0])
	}
	return p.Placements[0].Node
}

// The checker finds what the search would have to get wrong: the same plan in a cluster with nodes that lack what the pod needs.
func TestTheCheckerRefusesNodesThatLackWhatPodsNeed(t *testing.T) {
	for name, tt := range map[string]struct{ planned, real *snapshot.Snapshot }{
		"driver":  {world(daemons(installer(Tolerates("t")))), world(daemons(installer()))},
		"feature": {featured(func(s *snapshot.Snapshot) { s.Pools[0].KubeletFeatures = []string{feature} }), featured()},
		"node":    {featured(node("n", false, declares)), featured(node("n", false))},
	} {
		t.Run(name, func(t *testing.T) {
			tt.real.Pods = tt.planned.Pods // plans are about objects
			plan := schedule.Solve(tt.planned, schedule.Budget{})
			if err := validate.Plan(tt.real, plan); err == nil || !slices.ContainsFunc([]string{driver, feature}, func(want string) bool {
				return strings.Contains(err.Error(), "needs "+want)
			}) {
				t.Errorf("got %v, want what the node lacks", err)
			}
		})
	}
}
