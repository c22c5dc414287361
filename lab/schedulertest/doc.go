// Package schedulertest holds plans against kube-scheduler itself: its PreFilter and Filter plugins, of the version in the lab's go.mod,
// decide in process which pods run on which nodes.
//
// DynamicResources takes part with its Reserve: a pod that is bound takes the devices which the plugin allocates to it.
//
// PlannedWorld has a generated cluster and the nodes of its plan as objects, for a whole kube-scheduler.
//
// Package propertytest of the engine has the generated clusters and carries the plans out; here is the Filter that it calls. A Filter of
// the scheduler over a cluster with a few nodes takes some ten microseconds, since nothing is watched: the informers hold the objects of
// one cluster.
package schedulertest
