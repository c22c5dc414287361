package schedulertest_test

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/propertytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// happening is a propertytest.Happening of worlds.
func happening(what string, share float64, in func(*snapshot.Snapshot) bool) propertytest.Happening {
	return propertytest.Happening{What: what, Share: share, In: func(s *snapshot.Snapshot, _ *schedule.Plan) bool { return in(s) }}
}

func ofPods(what string, share float64, in func(*corev1.Pod) bool) propertytest.Happening {
	return happening(what, share, func(s *snapshot.Snapshot) bool { return slices.ContainsFunc(s.Pods, in) })
}

func ofNodes(what string, share float64, in func(*snapshot.Node) bool) propertytest.Happening {
	return happening(what, share, func(s *snapshot.Snapshot) bool {
		return slices.ContainsFunc(s.Nodes, func(n snapshot.Node) bool { return in(&n) })
	})
}

func ofTypes(what string, share float64, in func(*catalog.InstanceType) bool) propertytest.Happening {
	return happening(what, share, func(s *snapshot.Snapshot) bool {
		return slices.ContainsFunc(s.Pools, func(p snapshot.Pool) bool { return slices.ContainsFunc(p.InstanceTypes, in) })
	})
}

func ofClaims(what string, share float64, in func(*corev1.PersistentVolumeClaim) bool) propertytest.Happening {
	return happening(what, share, func(s *snapshot.Snapshot) bool {
		for _, c := range s.Volumes.Claims {
			if in(c) {
				return true
			}
		}
		return false
	})
}

func ofVolumes(what string, share float64, in func(*corev1.PersistentVolume) bool) propertytest.Happening {
	return happening(what, share, func(s *snapshot.Snapshot) bool {
		for _, pv := range s.Volumes.Volumes {
			if in(pv) {
				return true
			}
		}
		return false
	})
}

func hasClaims(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
}

func nominated(p *corev1.Pod) bool { return p.Status.NominatedNodeName != "" }

// statesEarlierName reports whether the pod states a label by its earlier name.
func statesEarlierName(p *corev1.Pod) bool {
	for _, earlier := range propertytest.EarlierNames {
		if _, has := p.Spec.NodeSelector[earlier]; has || slices.ContainsFunc(p.Spec.TopologySpreadConstraints,
			func(c corev1.TopologySpreadConstraint) bool { return c.TopologyKey == earlier }) {
			return true
		}
	}
	return false
}

// What is in the worlds of each kind besides what is in all kinds.

func fullHostsHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		ofNodes("a full node", 0.5, func(n *snapshot.Node) bool {
			left := n.Allocatable.Cpu().DeepCopy()
			for _, p := range n.Pods {
				left.Sub(*p.Spec.Containers[0].Resources.Requests.Cpu())
			}
			return left.IsZero()
		}),
	}
}

func storageHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		ofPods("a pod with claims", 0.3, hasClaims),
		happening("a driver that must be installed", 0.3, func(s *snapshot.Snapshot) bool { return len(s.Volumes.MustBeInstalled) > 0 }),
		ofTypes("a type with an attach limit", 0.5, func(it *catalog.InstanceType) bool { return len(it.VolumeLimits) > 0 }),
		ofNodes("a node with an attach limit", 0.4, func(n *snapshot.Node) bool { return len(n.VolumeLimits) > 0 }),
		ofNodes("a volume that is left over", 0.15, func(n *snapshot.Node) bool { return len(n.LeftoverVolumes) > 0 }),
		ofNodes("a pod that is nominated", 0.15, func(n *snapshot.Node) bool { return slices.ContainsFunc(n.Pods, nominated) }),
		ofPods("a pod that needs a feature", 0.1, func(p *corev1.Pod) bool { return len(p.Spec.Containers[0].RestartPolicyRules) > 0 }),
	}
}

func podFieldsHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		ofPods("an init container", 0.3, func(p *corev1.Pod) bool { return len(p.Spec.InitContainers) > 0 }),
		ofPods("overhead", 0.2, func(p *corev1.Pod) bool { return len(p.Spec.Overhead) > 0 }),
		ofPods("a port on one address", 0.15, func(p *corev1.Pod) bool {
			return slices.ContainsFunc(p.Spec.Containers[0].Ports, func(port corev1.ContainerPort) bool {
				return strings.HasPrefix(port.HostIP, "10.")
			})
		}),
		happening("a taint that evicts", 0.2, func(s *snapshot.Snapshot) bool {
			return slices.ContainsFunc(s.Pools, func(p snapshot.Pool) bool {
				return slices.ContainsFunc(p.NodePool.Spec.Template.Spec.Taints, func(t corev1.Taint) bool {
					return t.Effect == corev1.TaintEffectNoExecute
				})
			})
		}),
	}
}

func profilesHappenings() []propertytest.Happening {
	profile := func(s *snapshot.Snapshot) snapshot.SchedulerProfile {
		return s.Settings.Profiles[corev1.DefaultSchedulerName]
	}
	return []propertytest.Happening{
		happening("an added affinity", 0.4, func(s *snapshot.Snapshot) bool { return profile(s).AddedAffinity != nil }),
		happening("an ignored resource", 0.4, func(s *snapshot.Snapshot) bool { return len(profile(s).IgnoredResources) > 0 }),
		happening("an ignored group of resources", 0.4, func(s *snapshot.Snapshot) bool { return len(profile(s).IgnoredResourceGroups) > 0 }),
		ofPods("an extended resource", 0.3, func(p *corev1.Pod) bool { return len(p.Spec.Containers[0].Resources.Requests) > 1 }),
	}
}

func earlierNamesHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		happening("a node without one of the names", 0.4, func(s *snapshot.Snapshot) bool { return len(s.Labels.Lacking) > 0 }),
		ofPods("a pod that states an earlier name", 0.3, statesEarlierName),
	}
}

func staticVolumesHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		ofPods("a pod with claims", 0.5, hasClaims),
		ofVolumes("a volume with the label of a zone", 0.15, func(pv *corev1.PersistentVolume) bool {
			return pv.Labels[corev1.LabelTopologyZone]+pv.Labels[corev1.LabelFailureDomainBetaZone] != ""
		}),
		ofVolumes("a volume with node affinity", 0.3, func(pv *corev1.PersistentVolume) bool { return pv.Spec.NodeAffinity != nil }),
		ofVolumes("a local volume", 0.15, func(pv *corev1.PersistentVolume) bool { return pv.Spec.Local != nil }),
		ofVolumes("a volume that is free", 0.15, func(pv *corev1.PersistentVolume) bool { return pv.Status.Phase == corev1.VolumeAvailable }),
		ofVolumes("a volume that is being deleted", 0.1, func(pv *corev1.PersistentVolume) bool { return pv.DeletionTimestamp != nil }),
		ofClaims("a claim for which a node is chosen", 0.1, func(c *corev1.PersistentVolumeClaim) bool {
			return c.Annotations["volume.kubernetes.io/selected-node"] != ""
		}),
	}
}

func capacityHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		ofPods("a pod with claims", 0.5, hasClaims),
		happening("published capacity", 0.6, func(s *snapshot.Snapshot) bool { return len(s.Volumes.Capacities) > 0 }),
		happening("a driver without capacity", 0.07, func(s *snapshot.Snapshot) bool {
			return !s.Volumes.ChecksCapacity["net.csi.example.com"]
		}),
	}
}

func inFlightHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		ofNodes("a nominated pod on a node that is not initialized", 0.3, func(n *snapshot.Node) bool {
			return !n.Initialized && len(n.Nominated) > 0
		}),
		ofNodes("a node that is registered and not initialized", 0.15, func(n *snapshot.Node) bool { return !n.Initialized && n.Registered }),
	}
}

func deletingHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		ofNodes("a node that is being deleted", 0.4, func(n *snapshot.Node) bool { return n.Deleting }),
		ofPods("a pod that moves", 0.2, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }),
	}
}

func reservedHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		ofTypes("a reservation", 0.5, func(it *catalog.InstanceType) bool {
			return slices.ContainsFunc(it.Offerings, func(o catalog.Offering) bool { return o.ReservationID != "" })
		}),
		{What: "a new node of a reservation", Share: 0.18, In: func(_ *snapshot.Snapshot, plan *schedule.Plan) bool {
			return slices.ContainsFunc(plan.Launches, func(l schedule.Launch) bool { return l.Offering.ReservationID != "" })
		}},
	}
}

func twoSpreadsHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		happening("a node that lacks the key of one of two spreads", 0.5, func(s *snapshot.Snapshot) bool {
			return slices.ContainsFunc(s.Nodes, func(n snapshot.Node) bool { return propertytest.LacksKey(s, &n) })
		}),
	}
}

func devicesHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		ofPods("a pod with claims for devices", 0.4, func(p *corev1.Pod) bool { return len(p.Spec.ResourceClaims) > 0 }),
		ofPods("an extended resource", 0.2, func(p *corev1.Pod) bool { return len(p.Spec.Containers[0].Resources.Requests) > 1 }),
		ofTypes("a type with devices", 0.6, func(it *catalog.InstanceType) bool { return len(it.DeviceSlices) > 0 }),
	}
}

func groupsHappenings() []propertytest.Happening {
	return []propertytest.Happening{
		happening("a PodGroup", 0.6, func(s *snapshot.Snapshot) bool { return len(s.PodGroups) > 0 }),
		happening("a PodGroup of one zone", 0.17, func(s *snapshot.Snapshot) bool {
			return slices.ContainsFunc(s.PodGroups, func(g snapshot.PodGroup) bool { return g.Object.Spec.SchedulingConstraints != nil })
		}),
	}
}
