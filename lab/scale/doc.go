// Package scale fills clusters with nodes that are written as objects, thousands of them with a hundred thousand pods, and measures the
// controller at that size, at which no lab can run the nodes.
//
// The API server, etcd, the simulated AWS and the controller are those of every world. A few nodes join for real, and one pod of each
// workload runs on them. The rest is copied: an instance in the simulated account, and its NodeClaim, Node, CSINode and pods in etcd, byte
// by byte what the API server would have written. The API server finds them as after the restore of a backup.
//
// For a measurement, everything but these four stops. Leases of nodes are absent, since the controller does not read them; the status of
// each node is renewed every five minutes, as kubelet does. [Fill] has the nodes take part in a cluster that goes on, without a simulator
// for each: see kubelets.
package scale
