// Package sizing decides what a new node becomes, and which of the waiting pods it is filled with.
//
// A search that opens a node for one pod knows only that this pod must have it. What the node should be depends on the pods
// behind it in the queue: a Sizer looks ahead. It fills a few types of different price with what waits, on paper, and
// chooses the one with the least price per value of what it would hold. Values and prices of room are those of a
// price.Market. The search places pods itself; the package states what it planned with them.
//
// # State
//
// Pods are a class of pods with how many of them wait and what one is worth. Several classes that a new node need not report
// apart are a PackingClass. A Sizer has the packing classes of one run, and keeps what most decisions share: the orders in
// which rooms are packed, until the market is solved again, and the last decision, which holds for the next node too
// while queues have long runs of equal pods.
//
// # Filling a room
//
// Pods that keep apart on hosts come first, since each node can have few of them. Then come the pods of a pattern of the
// linear program, where the node follows one. The rest is greedy: first pods that are worth what they take of the room at
// dual prices, then pods that nearly are, in balance of CPU and memory.
//
// # Cost
//
// A decision takes one packing per type on the shortlist. A packing is linear in the packing classes that fit. None
// of it allocates, once orders are known.
//
// # Source
//
// The linear program is that of Gilmore and Gomory, "A linear programming approach to the cutting-stock problem" (1961).
// Filling one node at a time by the value of pods is their pricing problem, a knapsack, solved greedily in the order of value
// per cost, as in Dantzig, "Discrete-variable extremum problems" (1957).
package sizing
