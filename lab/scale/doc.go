// Package scale measures the controller at a size at which no lab can run the nodes: thousands of nodes, a hundred thousand pods.
//
// The API server, etcd, the simulated AWS and the controller are those of every world. A few nodes join for real, and one pod of each
// workload runs on them. Then everything but these four stops, and the rest is copied: an instance in the simulated account, and its
// NodeClaim, Node, CSINode and pods in etcd, byte by byte what the API server would have written. The API server finds them as after
// the restore of a backup. Leases of nodes are absent, since the controller does not read them; the status of each node is renewed
// every five minutes, as kubelet does.
package scale
