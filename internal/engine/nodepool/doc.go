// Package nodepool models NodePools for a plan: what each of them can launch, under any set of requirements, at which
// price, with how much room for pods, and within its limits. It knows nothing of the pods of the plan.
//
// # Model
//
// A Template is a NodePool as the model for its NodeClaims. A Type is an instance type that the pool admits, with the
// room that daemon pods leave on it. Types with offerings of different capacity or different daemons are split into
// variants, so that all offerings of a Type are alike; launches join the variants again.
//
// Candidates are what a set of requirements leaves of a template, cheapest first. The list for a set is made once. What
// a list becomes under the requirements of one more pod is looked up by the number of the interned set
// (Candidates.Narrow). So the check whether a node can meet a pod's requirements costs one slice access.
//
// # State
//
// Limits are the only state that a plan changes: Template.Reserve takes from them, Mark and Undo bring them back.
// Everything else is a cache.
package nodepool
