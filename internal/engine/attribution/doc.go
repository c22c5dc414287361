// Package attribution finds out what the rules of pods and NodePools cost: it plans the same pods again without a rule,
// and compares the prices.
//
// A Rule is a sort of constraint, such as zone spread. Its cost is what the plan costs more than the plan without it. The
// owners of a rule are the workloads that declare it, and NodePools. What one owner's rule costs is measured in the same
// way, with the rule in force for all others. Rules overlap, so costs need not add up: where zone spread and host rules
// each force a third node, leaving out one of them saves nothing.
//
// Rules are left out of copies of the pods and pools, so every comparison is between two plans of schedule.Solve. The
// work is bounded: one plan per sort of rule that any pod declares, and plans for the largest owners within a budget of
// steps. Equal snapshots give equal results.
package attribution
