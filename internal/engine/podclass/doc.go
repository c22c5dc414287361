// Package podclass states which pods a scheduler cannot distinguish , so that a plan looks at each kind of pod once.
//
// Key has everything about a pod that decides where it can run: what it requests, and its constraints. Pods with equal
// keys can be exchanged for each other in any plan. What the scheduler does not read, such as images and commands, is not
// in it.
//
// # Constraints
//
// A Compiler turns what pods with equal constraints have in common into Constraints, once: requirements, tolerations,
// volumes, host ports, devices, topology groups, and one Level per step of dropping preferences. The caller reads all
// classes, then compiles them, then finds the groups that count their pods: each step needs the one before for all.
//
// Invariant: compiled Constraints do not change. What they return belongs to them. Cost: linear in terms, plus the
// candidates of each distinct set of requirements; O(1) for all that the inner loops of a search query.
//
// # Pods with very many terms
//
// An API object holds some 10,000 terms, and one such pod must not delay others. So each sort of preference has at most
// MaxSoftTerms relaxation levels. Terms beyond them are one step, the first to be dropped, and are joined into one group
// per topology key. Required anti-affinity is joined in the same way, which is exact. Other required terms have bounds
// (MaxRequiredTerms, MaxAlternatives).
package podclass
