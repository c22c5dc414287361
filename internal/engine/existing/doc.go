// Package existing models the existing and in-flight nodes of a cluster while pods are planned: what room they have left,
// whether they take one pod more, and what a plan has put on them.
//
// A Node is a node of the snapshot, or a NodeClaim with a node that has not come up yet. Its room is what is allocatable, less what its
// pods and the DaemonSets that belong there request. A Set is all of them, in the order in which they are filled.
//
// # Invariants
//
// Closed nodes take no pods: those that are terminating, await repair, or are claims of unknown size. Removed ones do not
// exist in the current simulation.
//
// What Join changes about a node is saved before the first change. Undo takes back all changes, and Keep makes them
// permanent, each at a cost in proportion to the nodes that were changed. What topology counts and which devices are free
// is undone by their owners.
//
// A refusal that is final stays for the rest of the run: see List, which never queries such a node again.
package existing
