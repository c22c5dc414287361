package disrupt

import "fmt"

// Why states why a node stays. The zero value is no reason.
type Why struct {
	Reason Reason
	// Message is the text of events.
	Message string
	// Budgets counts how many PodDisruptionBudgets select the pod that keeps the node. It is 0 where the reason is not PDB, or a budget that
	// allows fewer evictions than its pods on nodes that leave.
	Budgets int
}

// Because is a reason with its text.
func Because(r Reason, format string, args ...any) Why {
	return Why{Reason: r, Message: fmt.Sprintf(format, args...)}
}

// Reason describes what keeps a node.
type Reason string

// The reasons why a node is blocked, in the order in which they are checked; Unplannable comes after Deleting. The reasons of the second
// group only keep a node from being removed as empty.
const (
	AlreadyDisrupting Reason = "AlreadyDisrupting"
	NoNode            Reason = "NoNode"
	Rebooting         Reason = "Rebooting"
	NotInitialized    Reason = "NotInitialized"
	Deleting          Reason = "Deleting"
	Nominated         Reason = "Nominated"
	NodeDoNotDisrupt  Reason = "NodeDoNotDisrupt"
	NoLabel           Reason = "NoNodePoolLabel"
	NoNodePool        Reason = "NoNodePool"
	DoNotRepair       Reason = "DoNotRepair"
	PodDoNotDisrupt   Reason = "PodDoNotDisrupt"
	PDB               Reason = "PDB"
	Unplannable       Reason = "Unplannable"
	// PodGroupTogether: pods of a PodGroup with disruptionMode all are on other nodes, too.
	PodGroupTogether Reason = "PodGroupTogether"

	NotEmpty              Reason = "NotEmpty"
	BufferPods            Reason = "BufferPods"
	ConsolidationDisabled Reason = "ConsolidationDisabled"
	NotConsolidatable     Reason = "NotConsolidatable"
)

// The reasons why a node stays that nothing protects: budgets, room or prices keep it.
const (
	StaticPool      Reason = "StaticNodePool"
	PoolClosed      Reason = "NodePoolNotReady"
	UnknownType     Reason = "UnknownInstanceType"
	NoCapacityType  Reason = "NoCapacityTypeLabel"
	NoZone          Reason = "NoZoneLabel"
	NodeEmpty       Reason = "Empty"
	WhenEmptyPolicy Reason = "WhenEmpty"
	OverBudget      Reason = "Budget"
	// EmptyOverBudget: the node is empty, and goes as soon as a budget lets it.
	EmptyOverBudget Reason = "EmptyBudget"
	Unschedulable   Reason = "Unschedulable"
	// SharedPending: a pod waits for a node that the pods of the node would share.
	SharedPending Reason = "SharedPending"
	// ReservationWaits: nodes in its capacity reservation go one after the other.
	ReservationWaits Reason = "ReservationWaits"
	DevicesTaken     Reason = "DevicesTaken"
	SeveralLaunches  Reason = "SeveralLaunches"
	NotCheaper       Reason = "NotCheaper"
	SpotToSpotOff    Reason = "SpotToSpotDisabled"
	TooFewSpotTypes  Reason = "TooFewSpotTypes"
	SameType         Reason = "SameType"
	TooFewValues     Reason = "MinValues"
	TooDisruptive    Reason = "TooDisruptive"
	TooYoung         Reason = "TooYoung"
	TakesPods        Reason = "TakesPods"
)

// Quiet reports whether the reason is the usual state of such a node, of which no event is published: only explain commands show it.
func (r Reason) Quiet() bool {
	switch r {
	case StaticPool, PoolClosed, NodeEmpty, NotConsolidatable, OverBudget, DevicesTaken, TooDisruptive, TakesPods:
		return true
	}
	return false
}
