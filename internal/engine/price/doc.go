// Package price states what pods are worth, and from that what no plan can cost less than.
//
// A Market prices pods against the offerings of NodePools: the linear program of package lp gives each pod a value in
// $/h and each offering dual prices of its resources. Values report a search which pods pay for a node; the sum of values
// is a lower bound on the cost of any plan that schedules the same pods.
//
// # Lower bound
//
// The pods of any node together are worth at most its price. So all pods together have no more value than any plan
// costs, less the value of room that is paid for already: existing nodes and capacity reservations. It holds for any
// dual-feasible prices. A Bound adds what topology proves, where a plan costs more than the bound:
//
//   - A host rule, which is hostname spread or anti-affinity, proves a number of nodes (hostRule).
//   - A zone rule, which is a required spread over zones, proves a number of pods per zone (zoneRule).
//   - A program with one more axis per host rule, and with the pods of zone rules divided over zones, finds what several
//     of them prove together (ruleProgram).
//
// Other topology is not modeled: where it decides, the bound is further below the best plan.
//
// # Use
//
// NewMarket solves the program; Resolve solves it again for the pods that are left, which changes values and no bound.
// The package knows pods as classes with a count, by their index in Problem.Pods, and nothing of queues or planned
// nodes. Equal problems give equal prices, bit for bit.
package price
