// Package lp is the linear program that relaxes a plan: launch fractions of nodes, and fill them with fractions of pods,
// at the least price. It yields dual prices, and from these the value of each pod, a lower bound on the cost of any
// plan, and patterns that state how many nodes of which offering hold which pods.
//
// # Duality
//
// Each offering o has a dual price y(o, r) per unit of each resource r, such that the dual prices of its whole room add
// up to no more than its price: the prices are dual-feasible. The value of a pod is the least that its requests cost, at
// dual prices, on any offering that it can use and that holds it. The pods of any node, however it is packed, are worth
// no more than its price, and all pods together no more than any plan costs. This is weak duality. It holds for any
// dual-feasible prices, after any number of rounds, so stopping early makes the bound lower and never wrong.
//
// # Column generation
//
// Good prices come from column generation (Gilmore and Gomory 1961). Pods that can use the same offerings are a demand
// class; pods of a demand class with similar proportions of resources are a bucket. The master LP has one row per
// bucket and one column per pattern, which is what one node of an offering holds. At the master's dual prices of
// buckets, a pricing LP per offering finds the pattern with the most value. Patterns worth more than their price join
// the master. Dual smoothing (Wentges 1997) keeps the prices from oscillating. Lower bound and master value enclose the
// optimum, and the search stops when they are close. Only offerings take part that no larger one beats in
// room per dollar.
//
// # Use
//
// New takes offerings and pods as plain values and solves the program. Resolve solves it again for the pods that are
// left. Nothing here knows of pools, claims, topology or existing nodes, except for Program.ExistingRoomDuals, which
// bounds the value of room that is paid for already. Equal inputs give equal outputs, bit for bit.
package lp
