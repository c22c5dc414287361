// Package schedule turns a Snapshot into a Plan: which pods go onto existing or in-flight nodes, which NodeClaims to
// create for the others, and why each remaining pod cannot be scheduled. Equal snapshots give equal plans.
//
// # Model
//
// The solver groups pods into equivalence classes, from coarse to fine:
//
//   - podclass.Constraints are equal scheduling constraints, whatever the requests. They are compiled once: requirements,
//     tolerations, volumes, topology groups, and relaxation levels, one per step of dropping preferences.
//   - A podclass.Class has equal constraints and equal requests: pods that the scheduler cannot tell apart.
//   - A sizing.PackingClass joins classes that a new node need not tell apart, such as pods with a volume each in one zone.
//
// A template is a NodePool with its instance types: see package nodepool. An offering is a type in a zone and capacity
// type, at a price. A bin is a planned NodeClaim: requirements, pods, and the types that still hold them. Sets of
// requirements are interned, and the types that each set leaves are listed once, cheapest first. So the check whether a
// bin takes a pod is a table lookup, a walk along a price list and a comparison of a few numbers, without an allocation.
// Slots of capacity reservations are counted by package reservation.
//
// The objective is the price of all new nodes plus a fixed cost per node. Among plans within 1 % of each other, the one
// with fewer nodes wins. NodePool weight, limits, topology and all other rules are constraints.
//
// # Parts
//
// What the search requests each pod and node is in packages of its own, each with its own state: amounts and host ports
// (resources), which pods are equal and what they require at each relaxation level (podclass), pods per domain and what
// the counts allow (topology), what volumes require and nodes can attach (volume), the existing nodes (existing), NodePools as
// models for new nodes (nodepool), the new nodes and what they hold (bin), free slots of capacity reservations (reservation), devices
// (devices), what pods are worth and no plan can cost less than (price, with the linear program in lp), and what a new node
// becomes and is filled with (sizing), and which zones spread pods get (zonedivision). The result is data (plan).
//
// # Storeys
//
// A plan is made in four storeys. Solve compiles the snapshot into a solver, which all plans of it share, and finds the
// PodGroups and the mode for preferences that its queues are planned with. A portfolio has the attempts for one queue: its
// strategies, one after the other, and repetitions with what a run has found out. A run is one attempt: it places all pods
// of the queue, and leaves an outcome with the merit by which the portfolio chooses. placePod places one pod. What a run changes,
// its undo restores, so that runs depend on each other only through their attempts. Retries are portfolios of the same
// queue in another order, or with a set of pods in another domain.
//
// # Search
//
// The queue has large pods first. A pod goes onto an existing node, else into a bin that can grow to hold it, else it
// opens a bin in the heaviest NodePool that takes it: first fit decreasing. What a new bin becomes is decided for the
// whole queue (sizing.Sizer): of a few types per price tier, the one with the least price per value that it would hold. The
// bin is filled at once, then the queue goes on. When a good part of the queue is placed, the LP is solved again for the
// rest. Pods that would pay more in their heaviest pool than elsewhere wait, since nodes launched for others may have
// room for them. In the end, bins that hold equal pods are replaced by the exact optimum (coverExactly).
//
// Pods that spread over zones are divided over them before new nodes are sized (zonedivision). From then on the pods of
// a class in one zone are a class of their own, which requires the zone. Among pools of equal weight a new bin goes to
// the one with the least price per value (cheapestNewBin).
//
// When nothing else lets a waiting pod follow the pods that it has affinity to, a node that could come up in several
// domains gets the cheapest one (run.decide). Pods that are left then are tried again in other orders of the queue:
// in all orders if there are few, else in some (package orders defines which). The number of placed pods comes
// before cost.
//
// Small queues are planned with several strategies, one of which puts each pod on the planned node with the fewest
// pods, as Karpenter does. First fit decreasing always runs too, so that no plan costs more; it stops once it has cost
// more than the best plan. The budget counts steps, not seconds. When it is spent, the rest is placed by first fit.
//
// # Preferences
//
// Pods have relaxation levels, one per step of dropping preferences, and a pod is placed at the first level that can be
// met. Under the policy Priced a level counts only if it costs little more than dropping all preferences does
// (placePriced). Such plans are compared with one that respects and one that ignores preferences: see pricing.
//
// # Explanation
//
// Package explain finds the reasons why pods are left. It sees the search through a prober, which opens a new node for a
// pod as if some rules did not count, with the same code that plans (bin bin.Growth). It changes nothing about the plan and
// takes no steps.
//
// # Pods with very many terms
//
// Package podclass bounds the terms of a pod that count. Pods with many terms come last in the queue, and each class of
// their constraints has a share of the step budget.
//
// # Complexity
//
// Compiling is linear in pods, and in types per distinct set of requirements. A pod that equals the one before it
// checks only the bins opened since that have room for it (roomtree.Tree), and those that wait for a domain only once it is
// open (bin.List). Opening a bin costs a few types times a bounded number of packing classes, and less when it becomes
// the same as the bin before it (sizing.Sizer). So the time per pod does not grow from 1,000 to
// 200,000 pods: see BenchmarkSolve.
// Solving the LP costs rounds times offerings times buckets, none of which grows with the number of pods. A what-if
// (Problem.WhatIf) copies only what it touches: its cost grows with the pods that it moves and, for pods that find no
// room, with the number of nodes.
package schedule
