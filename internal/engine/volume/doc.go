// Package volume states what the volumes of pods require of nodes and of each other.
//
//   - Where they can be used: Alternatives combines the topologies of the volumes of a pod, or says why the pod must wait.
//   - How many a node can attach: Limits has an axis per CSI driver, Attached is what one node has attached.
//   - Who uses them: a claim with access mode ReadWriteOncePod has one user (Users). A claim that is bound by the first
//     pod that uses it decides the zone of the others (UnboundZonal).
//
// All of it follows from claims, volumes and storage classes of the snapshot, as kube-scheduler's plugins VolumeBinding,
// VolumeZone, NodeVolumeLimits and VolumeRestrictions read them.
package volume
