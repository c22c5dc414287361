// Package consolidate looks for nodes that are not worth their price: sets whose pods have room elsewhere, or on new
// nodes that cost less. Snapshot and candidates in, commands out, with a reason for every node that stays.
//
// # What is looked for
//
// A move ends a set of nodes S and launches a set of claims L, such that every pod of S has a place on L or on nodes that stay,
// by all rules of scheduling, and L costs strictly less than S even if each claim becomes the dearest node that it may. S and
// L are of any size; L is empty where there is room. A command is one or several moves that are carried out as one.
//
// # Search
//
// Where to look is told by prices. All pods of the candidates are appraised as if every node were bought anew (see package
// schedule): the linear program "buy fractions of nodes, fill them with fractions of pods" says what a pod is worth, and
// what the free room of a node could hold. A node whose pods, and what else it could hold, are worth its price is worth keeping,
// if there are pods to fill it; of all others the price less the worth of their pods could be saved. So the candidates fall into
// those that are doomed and those that are filled up with their pods:
//
//   - a node that cannot be filled for its price is doomed, be it for its type or for what is on it already;
//   - nodes that can are kept, the fullest first, as long as the pods of the doomed will fill them; the rest is doomed;
//   - nodes that are no candidates are there anyway, and their room costs nothing;
//   - of the doomed, those go now that save most for each pod that moves, as many as the budgets allow. Those that have to
//     wait can take pods meanwhile.
//
// The doomed are closed to one another's pods, so that no pod moves twice, and are asked about in groups, large enough that
// the last node of each group does not matter, small enough that one failure does not undo much. One question plans a
// group as a whole: its pods fill what is kept, and the rest buys new nodes, which the engine sizes for all of them
// together. Its answer falls into parts that share no new node; each is judged by itself, and what falls
// through is asked about again without the node that is at fault, then in halves. At last each candidate
// that is left is asked about alone. Plans that are accepted hold (schedule.Problem.Hold), so all moves can be started at once.
//
// # Rules that others can see
//
// The price of a claim is the worst that it may be launched at. What may be both spot and on-demand becomes spot.
// Spot nodes are not replaced by spot nodes unless that is enabled, and one alone only if 15 types are cheaper. No node is
// replaced by an equal one. minValues are never relaxed, nobody moves onto a node that is not initialized or was too lately
// disturbed, and a pool of policy Balanced approves only of what saves at least half as much of its cost as it disturbs of
// its pods.
//
// # Calm
//
// Everything is a function of the snapshot, and every move lowers the cost of the fleet, so on a workload that stands still the
// search ends. What is young is not replaced for little: while a replacement boots both are paid for, which must be
// repaid within a time as long as the youngest node has existed (see worthwhile).
package consolidate
