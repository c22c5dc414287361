// Package schedule turns a Snapshot into a Plan: which pods go onto nodes that exist or are on their way,
// which claims to create for the others, and why the rest has no home. Equal snapshots give equal plans.
//
// # Model
//
// Pods that the scheduler cannot tell apart are a class with a count; classes that differ in amounts only are of one kind,
// which is compiled once: requirements, tolerations, volumes, the groups that count its pods, and its shapes, which are what
// it asks for at each step of giving up preferences. Classes that new nodes need not tell apart, such as
// pods with a disk each in one zone, are a family. A pool is a template of instance types, an offering is a price at
// which one can be had, and a bin is a claim in the making: requirements, pods, and the types that still hold them. Requirements
// are interned, and the types that they leave are listed once, cheapest first, so that whether a bin takes a pod of a class
// is a look into a table, a walk along a list of prices, and a comparison of a few numbers, without an allocation.
//
// The objective is the price of all new nodes, plus what is paid for each besides; among plans within a hundredth of each
// other, the number of nodes. Pools by weight, limits, topology and all other rules are constraints.
//
// # Bound
//
// Let each offering o have a rent y(o, r) per unit of each resource r, such that the rents of its whole room are no more
// than its price. A pod of class c is worth v(c), the least rent that it would pay on any offering that it can use and fits.
// Whatever a node of o holds pays at least what it is worth, and no more than the price; so all pods together are worth
// no more than any plan that places them costs, less what room is worth that need not be bought (nodes that exist, reservations).
// That is weak duality of the linear program "buy fractions of nodes, fill them with fractions of pods", so it is sound
// for any rents, and brute force confirms it on small worlds. With a cost per node, prices are meant with it.
//
// Good rents are found by column generation over buckets of pods with like proportions (market.solve): a covering
// program chooses among patterns of what a node holds, at the prices of its buckets a fractional filling of each offering finds
// patterns that it lacks, and prices are kept between the best sound ones known and those of the program, without which they
// would swing. It does not know of topology; where that decides, plans are further from the bound than they need be from the best.
//
// # Search
//
// The queue has large pods first. A pod goes onto a node that exists, else into a bin that may grow to hold it, else it opens
// a bin in the heaviest pool that takes it. What that bin is to become is decided for the whole queue (solver.size): of a few
// types of each tier of price, the one that costs least for the worth of what it would hold. What it would hold comes from the
// program's patterns where they buy whole nodes, and is topped up with pods that pay the full rent there, in balance of cores
// and memory, then with those that pay nearly that. The bin is filled at once; then the queue goes on. When a good deal of
// the queue is gone, rents are found anew for the rest. Pods that must buy in a pool dearer for them than others wait, since
// they may find room where others buy. Bins that hold equal pods are in the end replaced by the exact best (recount).
//
// Small queues are planned in several ways, and first fit decreasing is tried for every queue, so that no plan is dearer;
// it is given up when it has cost too much. A budget counts steps, not seconds; when it is spent, nodes are bought by first fit.
//
// # Pods of very many terms
//
// An API object holds some 10,000 terms, and one pod of that many must not hold up others. So each sort of preferences has at most
// MaxSoftTerms steps of relaxation; what is beyond them is one step, the first, in which terms of one topology key are joined into one
// group. Required anti-affinity is joined alike, which is exact; other required terms have bounds (MaxRequiredTerms, MaxAlternatives).
// Such pods come after all others in the queue, and each kind of them has a share of the budget.
//
// # Complexity
//
// Compiling is linear in pods and in types per distinct set of requirements. A pod that is like the one before it looks only at bins
// opened since. Opening a bin costs a few types times the families looked ahead at, at most a thousand; an appraisal costs
// rounds of columns times buckets, neither of which grows with the number of pods. A what-if (Problem.WhatIf) copies what
// it touches, and costs in proportion to the pods it moves and, for those that find no room, the number of nodes.
package schedule
