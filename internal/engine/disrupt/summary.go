package disrupt

import "cmp"

// summaries are the reasons of the engine without names and numbers.
var summaries = map[Reason]string{
	AlreadyDisrupting:     "candidate is already being disrupted",
	NoNode:                "nodeclaim does not have an associated node",
	Rebooting:             "node is rebooting",
	NotInitialized:        "node isn't initialized",
	Deleting:              "node is deleting or marked for deletion",
	Nominated:             "node is nominated for a pending pod",
	NodeDoNotDisrupt:      "disruption is blocked through an annotation of the node",
	NoLabel:               "node doesn't have required label",
	NoNodePool:            "nodepool not found",
	DoNotRepair:           "repair is blocked through an annotation",
	PodDoNotDisrupt:       `pod has "karpenter.sh/do-not-disrupt" annotation`,
	PDB:                   "pdb prevents pod evictions",
	PodGroupTogether:      "its PodGroup is disrupted as a whole, and has pods on other nodes",
	Unplannable:           "a plan without one of its pods cannot be made",
	NotEmpty:              "its pods would have to move",
	BufferPods:            "it has buffer pods",
	ConsolidationDisabled: "its NodePool has consolidation disabled",
	NotConsolidatable:     "Pods came or went too lately",
	StaticPool:            "its NodePool keeps a fixed number of nodes",
	PoolClosed:            "its NodePool is not ready, so it can launch no replacement",
	UnknownType:           "Instance Type not found",
	NoCapacityType:        `Node does not have label "karpenter.sh/capacity-type"`,
	NoZone:                `Node does not have label "topology.kubernetes.io/zone"`,
	NodeEmpty:             "Node is empty",
	WhenEmptyPolicy:       "its NodePool has consolidation policy WhenEmpty, but node is not empty",
	OverBudget:            "The budgets of its NodePool allow no further disruption now",
	EmptyOverBudget:       "the node is empty, and a budget of its NodePool holds it back for now",
	Unschedulable:         "Not all pods would schedule",
	SharedPending:         "a pod waits for a node that would be shared",
	ReservationWaits:      "nodes of a capacity reservation go one after the other",
	DevicesTaken:          "Devices are given out by another command first",
	SeveralLaunches:       "Can't remove without creating several nodes",
	NotCheaper:            "Can't replace with a cheaper node",
	SpotToSpotOff:         "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
	TooFewSpotTypes:       "too few cheaper types to replace a spot node with a spot node",
	SameType:              "Can't replace with a node other than those that would be terminated",
	TooFewValues:          "minValues is not met by the cheaper instance types",
	TooDisruptive:         "It would disturb more than it saves",
	TooYoung:              "Node is young",
	TakesPods:             "It takes in pods of nodes that are terminated",
}

// Summary is the reason without the names and numbers in it, so that nodes that stay for one reason are counted together; empty for none.
func (w Why) Summary() string {
	if w.Budgets > 1 {
		return "eviction does not support multiple PDBs"
	}
	return cmp.Or(summaries[w.Reason], w.Message)
}
