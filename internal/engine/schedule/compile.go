package schedule

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/bin"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/existing"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// compile brings the snapshot, and more pods besides the pending ones, into the form that the search works on. The
// order does not depend on the order of the snapshot. It returns all pods in queue order.
func (sv *solver) compile(more []*corev1.Pod) []*queuedPod {
	s := sv.s
	pods := make([]*corev1.Pod, 0, len(s.Pods)+len(more))
	for _, p := range s.Pods {
		if !sv.pending[p.UID] {
			sv.pending[p.UID] = true
			pods = append(pods, p)
		}
	}
	for _, p := range more {
		if !sv.pending[p.UID] {
			pods = append(pods, p)
		}
	}
	sv.readDaemons()
	sv.topology = topology.NewRegistry(s, sv.pending)
	for _, d := range sv.daemons {
		sv.topology.AddDaemon(d.Name(), d.Pod(), d.Alternatives, d.Contested)
	}
	queue := sv.classify(pods)
	// A node that is overcommitted on any of these takes nothing more, whatever the pod requests.
	requests := []corev1.ResourceList{{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}, corev1.ResourcePods: {}}}
	for _, c := range sv.allClasses {
		requests = append(requests, c.ResourceList())
	}
	for _, d := range sv.daemons {
		requests = append(requests, d.Requests)
	}
	sv.volumes = volume.NewLimits(s, sv.pending)
	requests = append(requests, sv.volumes.Axes())
	sv.axes = sv.boundedAxes(requests)
	sv.bins = bin.NewSet(bin.Config{
		Axes: sv.axes, Topology: sv.topology, Volumes: sv.volumes, Devices: sv.devices, Slots: &sv.slots,
		ReservationLabel: s.Labels.ReservationID, BestEffort: sv.bestEffort, Steps: &sv.steps,
	})
	for _, d := range sv.daemons {
		d.Amounts = sv.axes.Vec(d.Requests)
	}

	sv.nodes = existing.NewSet(existing.Config{
		Snapshot: s, Axes: sv.axes, Topology: sv.topology, Volumes: sv.volumes, Devices: sv.devices, Daemons: sv.daemons,
		Pending: sv.pending, Steps: &sv.steps,
	})
	for _, n := range sv.nodes.All() {
		sv.softTaints = sv.softTaints || n.TakesPods() && snapshot.HasSoft(n.Source().Taints)
	}
	sv.pools = sv.newModels()
	sv.sizer = sv.newSizer()
	for _, t := range sv.pools.All() {
		sv.topology.AddPool(t.ForTopology(), t.LimitsExhausted())
		sv.softTaints = sv.softTaints || snapshot.HasSoft(t.Taints())
	}
	sv.slots.TakeInFlight(s.Nodes, s.Labels.ReservationID)
	return sv.order(queue)
}

// newModels models the snapshot's pools.
func (sv *solver) newModels() *nodepool.Models {
	daemons := make([]*nodepool.Daemon, len(sv.daemons))
	for i, d := range sv.daemons {
		daemons[i] = &d.Daemon
	}
	return nodepool.NewModels(nodepool.Config{
		Labels: sv.s.Labels, JoinValues: sv.s.JoinValues(), Axes: sv.axes, NodeCost: sv.s.Settings.NodeCost, Daemons: daemons,
		Slots: &sv.slots, Steps: &sv.steps,
		LimitVolumes: func(room resources.Vec, limits, attached map[string]int) {
			sv.volumes.LimitType(room, sv.axes, limits, attached)
		},
		StoreVolumes: func(room resources.Vec, it *catalog.InstanceType) { sv.volumes.StoreOnType(room, sv.axes, it) },
	}, sv.s.Pools)
}
