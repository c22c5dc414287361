// Package consolidate finds nodes that cost more than they need to: sets of nodes with pods that fit on other nodes, or
// on new nodes that cost less. It takes a snapshot and candidates, and returns commands, with a reason for every node
// that stays.
//
// # Moves
//
// A move removes a set of nodes S and launches a set of node claims L, such that every pod of S fits on L or on nodes
// that stay, by all rules of scheduling, and L costs strictly less than S even if each claim becomes the most
// expensive node that it may. S and L are of any size; L is empty where there is enough free room. A command is one
// or several moves that are carried out together.
//
// # Search
//
// Dual prices guide the search. All pods of the candidates are valued as if every node were new (see package schedule):
// the linear program "launch fractions of nodes, fill them with fractions of pods" has a dual value for each pod, and
// so for what the free room of a node could hold. If the values of a node's pods and of its free room reach its
// price, the node is worth keeping, provided that there are pods to fill it. Of any other node, the reduced cost (price
// less the value of its pods) could be saved. So the candidates split into a removal set, and nodes that are filled
// with the pods of the removal set:
//
//   - a node that cannot be filled for its price is in the removal set, be it for its type or for what runs on it;
//   - other candidates stay, the fullest first, as long as there are pods to fill them; the rest is in the removal set;
//   - nodes that are no candidates stay anyway, and their room is free;
//   - of the removal set, as many as the budgets allow are removed now, those first that save most per pod that moves.
//     The others can take pods meanwhile.
//
// Nodes of the removal set take none of each other's pods, so that no pod moves twice. Multi-node consolidation
// simulates their removal in groups: large enough that the last node of each group does not matter, small enough that
// one failure does not undo much. One simulation plans a group as a whole: its pods fill the nodes that stay, and the
// rest launches new nodes, which the scheduler sizes for all of them together. The plan falls into the connected
// components of pods that share a new node. Each is evaluated by itself; a component that is rejected is simulated
// again without the node that is the reason, then in halves. Single-node consolidation then simulates the removal of
// each remaining candidate alone. Accepted plans stay applied to the problem, so all moves can be started at once.
// This is a local search from several starting points (see runTrials).
//
// # Rules
//
// The price of a claim is the highest at which it may be launched. A claim that may be both spot and on-demand
// becomes spot. Spot nodes are not replaced by spot nodes unless that is enabled, and a single one only if 15 types
// are cheaper. No node is replaced by an equal one. minValues are never relaxed. No pod moves to a node that is not
// initialized, or that is inside its pool's consolidateAfter. A pool of policy Balanced approves a move only if its
// share of the pool's cost is at least half its share of the pool's disruption cost.
//
// # Stability
//
// The result is a function of the snapshot, and every move lowers the cost of the fleet, so on a constant workload the
// search terminates. A young node is not replaced for a small saving: while its replacement boots, both are paid for,
// and the saving must repay that within the age of the youngest node (see checkSavings).
package consolidate
