package propertytest

import "github.com/dovetail-k8s/dovetail/internal/engine/snapshot"

// SchedulerWorld is a small cluster in which topology rules and node selection depend on each other, made from a stream of random bytes.
func SchedulerWorld(next func() byte) *snapshot.Snapshot { return random{next}.schedulerWorld() }

// FullHostsWorld is such a cluster with pods that spread over hosts, most of which have no room for more of them.
func FullHostsWorld(next func() byte) *snapshot.Snapshot { return random{next}.fullHostsWorld() }

// StorageWorld is such a cluster with volumes, CSI drivers, attach limits, host ports of several addresses, features of kubelets, and pods
// that are nominated to nodes.
func StorageWorld(next func() byte) *snapshot.Snapshot { return random{next}.storageWorld() }
