// Package topology counts pods per domain for topology spread, pod affinity and pod anti-affinity, and states what the
// counts allow.
//
// # Model
//
// A domain is a value of a label: a zone, a host. A Group counts pods by domain, for all pods with the same constraint;
// Registry has all groups of a snapshot, finds those that count a pod, and keeps the counts. A View is a group from the
// perspective of one pod: may this pod join that domain? Registry.Choices turns the views of a pod into requirements on
// a new node.
//
// As in kube-scheduler, anti-affinity works in both directions: a group of type AntiAffinity counts the pods that
// another must avoid, one of type Inverse counts the pods that declare it, and keeps out those that it selects.
//
// # Nodes
//
// The package knows nothing of how pods are placed. Of an existing node it knows a Node, of a planned one a NewNode, of
// the nodes that a pool can launch a Pool. A node that may still come up in one of several domains counts in all of them
// for pods that keep apart, and in none, as undecided, for those that follow or spread.
//
// # Counts
//
// Counts change in place, on a copy that is made at the first change (copy on write). Registry.Undo restores all of them,
// at a cost in proportion to the groups that were changed. Removals takes existing nodes out of the counts.
package topology
