// Package bin holds the nodes that a plan is going to launch: what pods are in them, what they can still become, and
// whether they take one pod more.
//
// A Bin is a planned NodeClaim: a pool, requirements, pods, and the instance types that still hold them. It grows pod by
// pod. Grow states what a bin becomes with a pod more, and changes nothing. Add makes it so. Between the two, nothing else may
// happen. A Set is all bins of a run, with all that they share: what is counted per domain, free slots of reservations,
// devices. Clear stops the run, and leaves it to the owners of those to undo what bins have taken.
//
// # Invariants
//
// A bin has a type in the list of its candidates that holds all its pods within limits: the first. Bins never get
// emptier, and requirements only narrow, so a type that was passed over stays so.
//
// What a bin may count against limits and reservations is taken as it grows, and covers at least its first type. What
// topology counts of its pods is as exact as its requirements: narrowing a bin counts them anew.
//
// A refusal that is final stays for the rest of the run: see List, which never queries such a bin again.
//
// # Cost
//
// Grow checks first what is cheap and refuses most: taints, room, ports. Requirements are a table lookup, since sets of
// requirements are interned (package nodepool). A walk along the price list then finds the type. None of it allocates
// unless topology leaves several domains to choose from, or the pod has devices. Put finds the first bin that takes a pod
// in O(log n) where room decides (package roomtree).
//
// # Source
//
// First fit with bins of variable size: bins start as any type, and become the cheapest that holds what is in them. See
// Johnson, "Fast algorithms for bin packing" (1974), and Friesen and Langston, "Variable sized bin packing" (1986).
package bin
