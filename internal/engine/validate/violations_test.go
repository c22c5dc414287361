package validate_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

func general(edit ...func(*karpv1.NodePool)) []snapshot.Pool {
	return []snapshot.Pool{Pool("general", Types(), edit...)}
}

// onNode is a world with a roomy node in z1 and one that the plan need not use.
func onNode(pods ...*corev1.Pod) *snapshot.Snapshot {
	s := World(general(), pods...)
	s.Nodes = []snapshot.Node{Node("n1", "general")}
	return s
}

// together is one launch of all pods, whatever they demand of each other.
func together(_ *snapshot.Snapshot, p *schedule.Plan) {
	for len(p.Launches) > 1 {
		p.Launches[0].Pods = append(p.Launches[0].Pods, p.Launches[1].Pods...)
		p.Launches = slices.Delete(p.Launches, 1, 2)
	}
}

func ofNamespaces(labels map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector = &metav1.LabelSelector{
			MatchLabels: labels,
		}
	}
}

func ignoring(resource string, s *snapshot.Snapshot) *snapshot.Snapshot {
	s.Settings.Profiles = map[string]snapshot.SchedulerProfile{corev1.DefaultSchedulerName: {IgnoredResources: []string{resource}}}
	return s
}

func withEarlierZone(s *snapshot.Snapshot) *snapshot.Snapshot {
	s.Nodes[0].Labels[corev1.LabelFailureDomainBetaZone] = s.Nodes[0].Labels[Zone]
	return s
}

func in(namespace string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Namespace = namespace }
}

// TestPlanFindsEachMistake carries out what an engine with some rule missing would: of a world in which the rule does
// not apply yet, or of which the plan is then changed.
func TestPlanFindsEachMistake(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	for _, c := range []struct {
		name string
		s    *snapshot.Snapshot
		edit func(*snapshot.Snapshot, *schedule.Plan)
		want string
	}{
		{"daemons forgotten on a new node", World(general(), Pod("a", Requests("cpu", "900m"))), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.DaemonSets = []snapshot.DaemonSet{{Name: "agent", Pod: Pod("agent", Requests("cpu", "200m"))}}
		}, "1100m cpu requested"},
		{"daemons forgotten on a node that exists", onNode(Pod("a", Requests("cpu", "3900m"))), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.DaemonSets = []snapshot.DaemonSet{{Name: "agent", Pod: Pod("agent", Requests("cpu", "200m"))}}
		}, "4100m cpu requested"},
		{"daemons forgotten for a soft taint", onNode(Pod("a", Requests("cpu", "3900m"), Tolerates("soft"))), func(s *snapshot.Snapshot,
			_ *schedule.Plan,
		) {
			s.Nodes[0].Taints = []corev1.Taint{{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}}
			s.DaemonSets = []snapshot.DaemonSet{{Name: "agent", Pod: Pod("agent", Requests("cpu", "200m"))}}
		}, "4100m cpu requested"},
		{
			"a label that the node has only under its other name",
			withEarlierZone(onNode(Pod("a", Selects(corev1.LabelFailureDomainBetaZone, "z1")))),
			func(s *snapshot.Snapshot, _ *schedule.Plan) {
				delete(s.Nodes[0].Labels, corev1.LabelFailureDomainBetaZone)
			},
			"nodeSelector is not satisfied",
		},
		{
			"a topology key that the node has only under its other name",
			withEarlierZone(onNode(Pod("a", Labeled("app", "a"), Spread(corev1.LabelFailureDomainBetaZone, 1, "a")))),
			func(s *snapshot.Snapshot, _ *schedule.Plan) {
				delete(s.Nodes[0].Labels, corev1.LabelFailureDomainBetaZone)
			},
			"is spread over topology.kubernetes.io/zone, but its node may come up in",
		},
		{"node affinity that the scheduler adds", World(general(), Pod("a")), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			pod := Pod("like-it", Needs(Expr("team", corev1.NodeSelectorOpExists)))
			s.Settings.Profiles = map[string]snapshot.SchedulerProfile{
				corev1.DefaultSchedulerName: {AddedAffinity: pod.Spec.Affinity.NodeAffinity},
			}
		}, "required node affinity is not satisfied"},
		{
			"a resource that the scheduler ignores no more",
			ignoring("example.com/license", World(general(), Pod("a", Requests("example.com/license", "1")))),
			func(s *snapshot.Snapshot, _ *schedule.Plan) { s.Settings.Profiles = nil },
			"example.com/license",
		},
		{"a daemon that the pod keeps off", World(general(), Pod("a", Apart(Host, "agent"))), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.DaemonSets = []snapshot.DaemonSet{{Name: "agent", Pod: Pod("agent", Labeled("app", "agent"))}}
		}, "pods default/a and default/agent may share kubernetes.io/hostname"},
		{"a daemon that a spread counts", onNode(Pod("a", Requests("cpu", "5"), Labeled("app", "a"), Spread(Zone, 1, "a"), Selects(Zone, "z2"))), func(
			s *snapshot.Snapshot, _ *schedule.Plan,
		) {
			s.DaemonSets = []snapshot.DaemonSet{{Namespace: "default", Name: "agent", Pod: Pod("agent", Labeled("app", "a"))}}
			s.Pods[0].Spec.TopologySpreadConstraints[0].NodeAffinityPolicy = &ignore
		}, "topology.kubernetes.io/zone z2 has 2 pods, another only 0, maxSkew is 1"},
		{"a daemon that keeps off the pod", World(general(), Pod("a", Labeled("app", "a"))), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.DaemonSets = []snapshot.DaemonSet{{Name: "agent", Pod: Pod("agent", Apart(Zone, "a"), Selects(Arch, "amd64"))}}
		}, "pods default/agent and default/a may share topology.kubernetes.io/zone"},
		{
			"a first pod although its app runs elsewhere", World(general(), Pod("a", Labeled("app", "web"), Selects(Zone, "z2"), Near(Zone, "web"))),
			func(s *snapshot.Snapshot, _ *schedule.Plan) {
				s.Nodes = []snapshot.Node{Node("n1", "general")}
				s.Nodes[0].Pods = []*corev1.Pod{Bound(Pod("old", Labeled("app", "web")), "n1")}
			}, "away from all pods that affinity demands over topology.kubernetes.io/zone",
		},
		{
			"a first pod although the last of its app only terminates", World(general(), Pod("a", Labeled("app", "web"), Selects(Zone, "z2"), Near(Zone, "web"))),
			func(s *snapshot.Snapshot, _ *schedule.Plan) {
				old := Bound(Pod("old", Labeled("app", "web")), "n1")
				old.DeletionTimestamp = &metav1.Time{Time: Now()}
				s.Nodes = []snapshot.Node{Node("n1", "general")}
				s.Nodes[0].Pods = []*corev1.Pod{old}
			}, "away from all pods that affinity demands over topology.kubernetes.io/zone",
		},
		{"one term by one pod and the other by another", onNode(Pod("a")), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Nodes[0].Pods = []*corev1.Pod{
				Bound(Pod("web", Labeled("app", "web")), "n1"), Bound(Pod("db", Labeled("app", "db")), "n1"),
			}
			Near(Zone, "web")(s.Pods[0])
			Near(Zone, "db")(s.Pods[0])
		}, "away from all pods that affinity demands over topology.kubernetes.io/zone"},
		{"init containers forgotten", World(general(), Pod("a", Requests("cpu", "500m"))), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Pods[0].Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: Resources("cpu", "3")}}}
		}, "3 cpu requested"},
		{"sidecars forgotten", World(general(), Pod("a", Requests("cpu", "900m"))), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Pods[0].Spec.InitContainers = []corev1.Container{{RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: Resources("cpu", "300m")}}}
		}, "1200m cpu requested"},
		{"overhead forgotten", World(general(), Pod("a", Requests("cpu", "900m"))), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Pods[0].Spec.Overhead = Resources("cpu", "200m")
		}, "1100m cpu requested"},
		{"resources of the pod as a whole forgotten", World(general(), Pod("a", Requests("cpu", "100m"))), func(s *snapshot.Snapshot,
			_ *schedule.Plan,
		) {
			s.Pods[0].Spec.Resources = &corev1.ResourceRequirements{Requests: Resources("cpu", "5")}
		}, "5 cpu requested"},
		{"a sidecar's host port forgotten", onNode(Pod("a", HostPort("", 80, corev1.ProtocolTCP))), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Nodes[0].Pods = []*corev1.Pod{Bound(Pod("old", func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{RestartPolicy: &always, Ports: []corev1.ContainerPort{{HostPort: 80, HostIP: "10.0.0.1"}}}}
			}), "n1")}
		}, "host port 80"},
		{"a disk that a pod names itself forgotten", onNode(Pod("a", ebsDisk)), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Nodes[0].Pods = []*corev1.Pod{Bound(Pod("old", ebsDisk), "n1")}
		}, "EBS volume vol-1"},
		{"a daemon's host port forgotten", World(general(), Pod("a", HostPort("", 80, corev1.ProtocolTCP))), func(s *snapshot.Snapshot,
			_ *schedule.Plan,
		) {
			s.DaemonSets = []snapshot.DaemonSet{{Name: "agent", Pod: Pod("agent", HostPort("::", 80, corev1.ProtocolTCP))}}
		}, "host port 80 of daemon agent"},
		{"attach limits forgotten", func() *snapshot.Snapshot {
			s := onNode(Pod("a", Claims("x")), Pod("b", Claims("y")), Pod("c", Claims("y")))
			class := "wait"
			mode := storagev1.VolumeBindingWaitForFirstConsumer
			s.Volumes.StorageClasses = map[string]*storagev1.StorageClass{class: {Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &mode}}
			s.Volumes.Claims = map[types.NamespacedName]*corev1.PersistentVolumeClaim{}
			for _, n := range []string{"x", "y"} {
				s.Volumes.Claims[types.NamespacedName{Namespace: "default", Name: n}] = &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}}
			}
			return s
		}(), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Nodes[0].VolumeLimits = map[string]int32{"ebs.csi.aws.com": 1}
		}, "2 volumes of ebs.csi.aws.com"},
		{"a shared claim in two zones", func() *snapshot.Snapshot {
			s := World(general(), Pod("a", Claims("x"), Selects(Zone, "z1")), Pod("b", Claims("x"), Selects(Zone, "z2")))
			class, mode := "wait", storagev1.VolumeBindingWaitForFirstConsumer
			s.Volumes.StorageClasses = map[string]*storagev1.StorageClass{class: {Provisioner: "nfs.example.com", VolumeBindingMode: &mode}}
			s.Volumes.Claims = map[types.NamespacedName]*corev1.PersistentVolumeClaim{
				{Namespace: "default", Name: "x"}: {Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}},
			}
			return s
		}(), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Volumes.StorageClasses["wait"].Provisioner = "ebs.csi.aws.com"
		}, "share volume claim x, which has no volume yet, but may be in two zones"},
		{
			"a limit on nodes, off by one", World(general(Limit("nodes", "2")), Pods(2, "a", Labeled("app", "a"), Apart(Host, "a"))...),
			func(s *snapshot.Snapshot, _ *schedule.Plan) {
				s.Pools[0].NodePool.Spec.Limits = Resources("nodes", "1")
			}, "above the limit of 1 nodes",
		},
		{"minValues lowered where they are strict", World(general(Require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists),
			MinValues(2)), Pod("a")), func(s *snapshot.Snapshot, p *schedule.Plan) {
			l := &p.Launches[0]
			l.Requirements = l.Requirements.Replace(l.Requirements.Get(corev1.LabelInstanceTypeStable).WithMinValues(1))
		}, "lower minValues than its pool"},
		{"fewer types than minValues", World(general(Require(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpExists), MinValues(2)),
			Pod("a")), func(_ *snapshot.Snapshot, p *schedule.Plan) {
			p.Launches[0].InstanceTypes = p.Launches[0].InstanceTypes[:1]
		}, "its types have 1 values"},
		{"requirements of the pool forgotten", World(general(), Pod("a")), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			Require(Zone, corev1.NodeSelectorOpIn, "z1")(s.Pools[0].NodePool)
		}, "which its pool does not allow"},
		{
			"an offering that is not available", World(general(), Pod("a", Selects(Zone, "z1"), Selects(Capacity, "spot"))),
			func(s *snapshot.Snapshot, p *schedule.Plan) {
				for _, it := range s.Pools[0].InstanceTypes {
					for i := range it.Offerings {
						it.Offerings[i].Available = it.Offerings[i].Available && (it.Offerings[i].Zone != "z1" || it.Offerings[i].CapacityType != "spot")
					}
				}
			}, "is not available",
		},
		{"minDomains forgotten", World(general(Require(Zone, corev1.NodeSelectorOpIn, "z1", "z2")), Pods(4, "a", Labeled("app", "a"),
			Spread(Zone, 1, "a"))...), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			three := int32(3)
			for _, p := range s.Pods {
				p.Spec.TopologySpreadConstraints[0].MinDomains = &three
			}
		}, "another only 0, maxSkew is 1"},
		{"a policy on taints ignored", func() *snapshot.Snapshot {
			s := World(general(Require(Zone, corev1.NodeSelectorOpIn, "z1", "z2")), Pods(4, "a", Labeled("app", "a"), Spread(Zone, 1, "a", func(c *corev1.TopologySpreadConstraint) { c.NodeTaintsPolicy = &honor }))...)
			s.Nodes = []snapshot.Node{Node("n3", "general", func(n *snapshot.Node) {
				n.Labels[Zone], n.Taints = "z3", []corev1.Taint{{Key: "hard", Effect: corev1.TaintEffectNoSchedule}}
			})}
			return s
		}(), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			for _, p := range s.Pods {
				p.Spec.TopologySpreadConstraints[0].NodeTaintsPolicy = nil
			}
		}, "another only 0, maxSkew is 1"},
		{"matchLabelKeys ignored", World(general(), Pods(2, "a", Labeled("app", "a"), Labeled("rev", "1"), Spread(Host, 1, "a",
			func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"rev"} }))...), together, "maxSkew is 1"},
		{"a pod spread over a zone that is not known", World(general(), Pod("a")), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			Labeled("app", "a")(s.Pods[0])
			Spread(Zone, 1, "a")(s.Pods[0])
		}, "its node may come up in"},
		{"namespaces selected by label forgotten", func() *snapshot.Snapshot {
			s := World(general(), Pod("a", Labeled("app", "a"), Apart(Host, "b"), ofNamespaces(map[string]string{"tier": "back"})), Pod("b", Labeled("app", "b"), in("other")))
			s.Namespaces["other"] = map[string]string{"tier": "back"}
			return s
		}(), together, "which anti-affinity forbids"},
		{"anti-affinity of others forgotten", onNode(Pod("a", Labeled("app", "a"))), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Nodes[0].Pods = []*corev1.Pod{Bound(Pod("old", Apart(Zone, "a")), "n1")}
		}, "which anti-affinity forbids"},
		{"pods that wait for each other", World(general(), Pods(2, "a", Labeled("app", "a"))...), func(s *snapshot.Snapshot, p *schedule.Plan) {
			s.Pods[0].Labels["app"], s.Pods[1].Labels["app"] = "x", "y"
			Near(Host, "y")(s.Pods[0])
			Near(Host, "x")(s.Pods[1])
		}, "away from all pods"},
		{"a family in two places", World(general(), Pods(2, "a", Requests("cpu", "7"), Labeled("app", "a"))...), func(s *snapshot.Snapshot,
			_ *schedule.Plan,
		) {
			for _, p := range s.Pods {
				Near(Host, "a")(p)
			}
		}, "away from all pods"},
		{"a claim that is not launched gets more", onNode(Pod("a")), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			s.Nodes[0].Launched, s.Nodes[0].Initialized = false, false
		}, "other pods than those nominated"},
		{"a volume that is about to be bound", func() *snapshot.Snapshot {
			s := World(general(), Pod("a", Claims("x")))
			class, mode := "wait", storagev1.VolumeBindingWaitForFirstConsumer
			s.Volumes.StorageClasses = map[string]*storagev1.StorageClass{class: {VolumeBindingMode: &mode}}
			s.Volumes.Claims = map[types.NamespacedName]*corev1.PersistentVolumeClaim{{Namespace: "default", Name: "x"}: {Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class}}}
			return s
		}(), func(s *snapshot.Snapshot, _ *schedule.Plan) {
			*s.Volumes.StorageClasses["wait"].VolumeBindingMode = storagev1.VolumeBindingImmediate
		}, "is about to be bound"},
		{
			"sums that are wrong", World(general(), Pod("a")), func(_ *snapshot.Snapshot, p *schedule.Plan) { p.Stats.HourlyCost *= 2 },
			"the plan has",
		},
		{
			"a bound above the cost", World(general(), Pod("a")), func(_ *snapshot.Snapshot, p *schedule.Plan) { p.Stats.LowerBound = 9 },
			"its lower bound is 9",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := schedule.Solve(c.s, schedule.Budget{})
			if err := validate.Plan(c.s, p); err != nil || len(p.Rejected) > 0 {
				t.Fatalf("before: %v, rejected %v", err, p.Rejected)
			}
			c.edit(c.s, &p)
			if err := validate.Plan(c.s, p); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestChoicesFindMissedPlacements(t *testing.T) {
	t.Run("a rejected pod that fits on a fresh node", func(t *testing.T) {
		s := World(general(Limit("cpu", "2")), Pods(2, "a", Requests("cpu", "900m"), Labeled("app", "a"), Apart(Host, "a"))...)
		p := schedule.Solve(s, schedule.Budget{})
		if err := validate.Choices(s, p); err != nil {
			t.Fatal(err)
		}
		left := p.Launches[0].Pods[0]
		p.Launches = p.Launches[1:]
		p.Rejected = []schedule.Rejection{{Pod: left, Reasons: []schedule.Reason{{Code: schedule.Limits, Rule: &rejection.Rule{Stated: "forgotten"}}}}}
		if err := validate.Choices(s, p); err == nil || !strings.Contains(err.Error(), "fits alone on m.small") {
			t.Errorf("got %v", err)
		}
		s.Pools[0].Used = Resources("cpu", "1")
		if err := validate.Choices(s, p); err != nil {
			t.Errorf("the limit leaves no room, but %v", err)
		}
	})
	t.Run("the pool of lower weight", func(t *testing.T) {
		s := World([]snapshot.Pool{Pool("light", Types()), Pool("heavy", Types(), Weight(9))}, Pod("a"))
		p := schedule.Solve(s, schedule.Budget{})
		s.Pools[0].NodePool.Spec.Weight, s.Pools[1].NodePool.Spec.Weight = s.Pools[1].NodePool.Spec.Weight, nil
		if err := validate.Choices(s, p); err == nil || !strings.Contains(err.Error(), "pool light of higher weight") {
			t.Errorf("got %v", err)
		}
	})
}

// ebsDisk has the pod name an EBS volume itself.
func ebsDisk(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{
		AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"},
	}})
}

// A zone is not one that a spread leaves empty if the anti-affinity of a pod there keeps the spread's pods out of it.
func TestAZoneThatAnotherPodKeepsFreeIsNotEmptier(t *testing.T) {
	two := WithOfferings(Type("m.two", 0.1, "cpu", "4", "memory", "16Gi", "pods", "110"), Offering("z1", "on-demand", 0.1), Offering("z2", "on-demand", 0.1))
	world := func(running ...func(*corev1.Pod)) *snapshot.Snapshot {
		s := World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{two})},
			Pods(2, "a", Labeled("app", "a"), Selects(corev1.LabelInstanceTypeStable, "m.two"), Spread(Zone, 1, "a"))...)
		s.Nodes = []snapshot.Node{Node("n1", "general", func(n *snapshot.Node) {
			n.Labels[Zone], n.Pods = "z1", []*corev1.Pod{Bound(Pod("alone", running...), "n1")}
		})}
		return s
	}
	s := world(Apart(Zone, "a"))
	p := schedule.Solve(s, schedule.Budget{})
	if len(p.Rejected) > 0 || len(p.Launches) != 1 {
		t.Fatalf("%d pods rejected, %d launches", len(p.Rejected), len(p.Launches))
	}
	if err := validate.Plan(s, p); err != nil {
		t.Error(err)
	}
	without := world()
	p.Launches[0].Pods = without.Pods
	if err := validate.Plan(without, p); err == nil || !strings.Contains(err.Error(), "z1 none, where a node could be launched") {
		t.Errorf("without the anti-affinity: got %v", err)
	}
}
