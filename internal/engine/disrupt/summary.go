package assess

import (
	"cmp"

	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// notReached states why a node stays that a search did not come to before its bound.
const notReached = "the search stopped before it"

// summaries are the reasons of the engine without names and numbers.
var summaries = map[disrupt.Reason]string{
	disrupt.AlreadyDisrupting:     "candidate is already being disrupted",
	disrupt.NoNode:                "nodeclaim does not have an associated node",
	disrupt.Rebooting:             "node is rebooting",
	disrupt.NotInitialized:        "node isn't initialized",
	disrupt.Deleting:              "node is deleting or marked for deletion",
	disrupt.Nominated:             "node is nominated for a pending pod",
	disrupt.NodeDoNotDisrupt:      "disruption is blocked through an annotation of the node",
	disrupt.NoLabel:               "node doesn't have required label",
	disrupt.NoNodePool:            "nodepool not found",
	disrupt.DoNotRepair:           "repair is blocked through an annotation",
	disrupt.PodDoNotDisrupt:       `pod has "karpenter.sh/do-not-disrupt" annotation`,
	disrupt.PDB:                   "pdb prevents pod evictions",
	disrupt.PodGroupTogether:      "its PodGroup is disrupted as a whole, and has pods on other nodes",
	disrupt.Unplannable:           "a plan without one of its pods cannot be made",
	disrupt.NotEmpty:              "its pods would have to move",
	disrupt.BufferPods:            "it has buffer pods",
	disrupt.ConsolidationDisabled: "its NodePool has consolidation disabled",
	disrupt.NotConsolidatable:     "Pods came or went too lately",
	disrupt.StaticPool:            "its NodePool keeps a fixed number of nodes",
	disrupt.PoolClosed:            "its NodePool is not ready, so it can launch no replacement",
	disrupt.UnknownType:           "Instance Type not found",
	disrupt.NoCapacityType:        `Node does not have label "karpenter.sh/capacity-type"`,
	disrupt.NoZone:                `Node does not have label "topology.kubernetes.io/zone"`,
	disrupt.NodeEmpty:             "Node is empty",
	disrupt.WhenEmptyPolicy:       "its NodePool has consolidation policy WhenEmpty, but node is not empty",
	disrupt.OverBudget:            "The budgets of its NodePool allow no further disruption now",
	disrupt.EmptyOverBudget:       "the node is empty, and a budget of its NodePool holds it back for now",
	disrupt.Unschedulable:         "Not all pods would schedule",
	disrupt.SharedPending:         "a pod waits for a node that would be shared",
	disrupt.ReservationWaits:      "nodes of a capacity reservation go one after the other",
	disrupt.DevicesTaken:          "Devices are given out by another command first",
	disrupt.SeveralLaunches:       "Can't remove without creating several nodes",
	disrupt.NotCheaper:            "Can't replace with a cheaper node",
	disrupt.SpotToSpotOff:         "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
	disrupt.TooFewSpotTypes:       "too few cheaper types to replace a spot node with a spot node",
	disrupt.SameType:              "Can't replace with a node other than those that would be terminated",
	disrupt.TooFewValues:          "minValues is not met by the cheaper instance types",
	disrupt.TooDisruptive:         "It would disturb more than it saves",
	disrupt.TooYoung:              "Node is young",
	disrupt.TakesPods:             "It takes in pods of nodes that are terminated",
}

// summary is a reason of the engine without the names and numbers in it, so that nodes that stay for one reason are counted together.
func summary(why disrupt.Why) string {
	switch {
	case why.Reason == "":
		return cmp.Or(why.Message, notReached)
	case why.Budgets > 1:
		return "eviction does not support multiple PDBs"
	}
	return cmp.Or(summaries[why.Reason], why.Message)
}
