// Package deletioncost decides the values of the annotation controller.kubernetes.io/pod-deletion-cost, so that a
// ReplicaSet that is scaled down removes the pods of the nodes that will be disrupted next, and not those of nodes that
// stay. It calls no API: [Rank] orders the nodes, and [Changes] returns the annotations to write.
//
// A ReplicaSet compares the values of its own pods only, so values are chosen for each ReplicaSet apart, with the fewest
// writes that put its pods in the order of their nodes. Values that others have set are never changed.
package deletioncost
