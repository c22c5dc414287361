package v1

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
)

// Labels on NodeClaims and Nodes.
const (
	// LabelNodePool is the name of the pool that a claim or node belongs to.
	LabelNodePool = Group + "/nodepool"
	// LabelCapacityType is one of the CapacityType values.
	LabelCapacityType = Group + "/capacity-type"
	// LabelRegistered is "true" on a Node once registration is complete.
	LabelRegistered = Group + "/registered"
	// LabelInitialized is "true" on a Node once initialization is complete.
	LabelInitialized = Group + "/initialized"
	// LabelDoNotSyncTaints is "true" on a Node that has the claim's taints from its bootstrap.
	LabelDoNotSyncTaints = Group + "/do-not-sync-taints"
	// LabelExcludeFromExternalLoadBalancers keeps new connections off a Node that is being terminated;
	// its value is then ExcludedByTermination.
	LabelExcludeFromExternalLoadBalancers = corev1.LabelNodeExcludeBalancers
	// ExcludedByTermination distinguishes an exclusion from load balancers by node termination from any other.
	ExcludedByTermination = "karpenter"
)

// Values of LabelCapacityType.
const (
	CapacityTypeOnDemand = "on-demand"
	CapacityTypeSpot     = "spot"
	CapacityTypeReserved = "reserved"
)

// Annotations.
const (
	// AnnotationDoNotDisrupt blocks voluntary disruption: "true", or on pods also a duration since start.
	AnnotationDoNotDisrupt = Group + "/do-not-disrupt"
	// AnnotationOwnDeletionCost repeats the value of controller.kubernetes.io/pod-deletion-cost on a pod where we have set it. If the
	// two differ, somebody else has.
	AnnotationOwnDeletionCost = "dovetail.sh/pod-deletion-cost"
	// AnnotationDisruptionCost states what the eviction of a pod costs, an int32; it replaces controller.kubernetes.io/pod-deletion-cost.
	AnnotationDisruptionCost = Group + "/disruption-cost"
	// AnnotationNodePoolHash is NodePool.Hash at the time of writing; a claim's differing from its pool's is drift.
	AnnotationNodePoolHash = Group + "/nodepool-hash"
	// AnnotationNodePoolHashVersion sets how AnnotationNodePoolHash was computed, see NodePoolHashVersion.
	AnnotationNodePoolHashVersion = Group + "/nodepool-hash-version"
	// AnnotationTerminationTimestamp is the RFC 3339 deadline by which a NodeClaim's node must be gone.
	AnnotationTerminationTimestamp = Group + "/nodeclaim-termination-timestamp"
	// AnnotationMinValuesRelaxed is "true" on a claim if the minValues of its pool could not be met.
	AnnotationMinValuesRelaxed = Group + "/nodeclaim-min-values-relaxed"
	// AnnotationRequestedDRADrivers lists, sorted and comma-separated, drivers that must publish before initialization.
	AnnotationRequestedDRADrivers = Group + "/requested-dra-drivers"
	// AnnotationPriceOverlayApplied is "true" on a claim with an instance type that has its price from a NodeOverlay.
	AnnotationPriceOverlayApplied = Group + "/price-overlay-applied"
	// AnnotationCapacityOverlayApplied is "true" on a claim with an instance type that has capacity from a NodeOverlay.
	AnnotationCapacityOverlayApplied = Group + "/capacity-overlay-applied"
	// AnnotationCapacityBufferFakePod and the two below mark the virtual pods of a CapacityBuffer.
	AnnotationCapacityBufferFakePod   = Group + "/capacity-buffer-fake-pod"
	AnnotationCapacityBufferName      = Group + "/capacity-buffer-name"
	AnnotationCapacityBufferNamespace = Group + "/capacity-buffer-namespace"
	// AnnotationNominatedPods lists, comma-separated, the UIDs of the pods that a claim was launched for.
	AnnotationNominatedPods = "dovetail.sh/nominated-pods"
	// AnnotationNominatedBuffers does the same for the virtual pods of CapacityBuffers.
	AnnotationNominatedBuffers = "dovetail.sh/nominated-buffers"
	// AnnotationLaunch is "unlaunched" on a claim before its first launch, and names the slot of a claim that is
	// launched together with others, or the client token of one that is launched alone and not for the first time.
	AnnotationLaunch = "dovetail.sh/launch"
	// AnnotationLaunchReason is, on a claim that was launched to replace nodes, the DisruptionReason; written when
	// the claim is created. Claims for pending pods lack it. A claim of a static pool that makes up for nodes which are
	// terminated first has it, too.
	AnnotationLaunchReason = "dovetail.sh/launch-reason"
	// AnnotationReplaces lists, comma-separated, the names of the claims that such a claim replaces.
	AnnotationReplaces = "dovetail.sh/replaces"
	// AnnotationReplacementOutcomes is, on a NodePool, the outcomes of the claims that were launched for it lately to
	// replace nodes; it is ours alone.
	AnnotationReplacementOutcomes = "dovetail.sh/replacement-outcomes"
	// AnnotationPodClasses lists, comma-separated, the classes of the pods that a claim was launched for: equal pods, whatever
	// their names, are of one class.
	AnnotationPodClasses = "dovetail.sh/nominated-pod-classes"
	// AnnotationRefusedPods is, on a NodePool, the history of its nodes that were launched for pods and never ran one of them. A person
	// may remove it: then nodes are launched for these pods again.
	AnnotationRefusedPods = "dovetail.sh/refused-pods"
)

// Keys of taints.
const (
	// TaintKeyDisrupted is on nodes that are about to go.
	TaintKeyDisrupted = Group + "/disrupted"
	// TaintKeyUnregistered is on nodes from their bootstrap until registration.
	TaintKeyUnregistered = Group + "/unregistered"
)

// TaintDisrupted returns the taint that keeps new pods off a node that is about to go.
func TaintDisrupted() corev1.Taint {
	return corev1.Taint{Key: TaintKeyDisrupted, Effect: corev1.TaintEffectNoSchedule}
}

// IsTaintDisrupted reports whether t is the disruption taint, whatever its value.
func IsTaintDisrupted(t corev1.Taint) bool {
	return t.Key == TaintKeyDisrupted && t.Effect == corev1.TaintEffectNoSchedule
}

// TaintUnregistered returns the taint that every node must boot with; registration removes it.
func TaintUnregistered() corev1.Taint {
	return corev1.Taint{Key: TaintKeyUnregistered, Effect: corev1.TaintEffectNoExecute}
}

// FinalizerTermination is on every NodeClaim before its launch, and on its Node from registration on.
const FinalizerTermination = Group + "/termination"

// ResourceNodes is the key by which limits and status count nodes.
const ResourceNodes corev1.ResourceName = "nodes"

// ConditionReady is the root condition of both kinds.
const ConditionReady = condition.Ready

// Condition types of NodePool. The first two decide about Ready, and NodesCanJoin while it is False.
const (
	ConditionValidationSucceeded     = "ValidationSucceeded"
	ConditionNodeClassReady          = "NodeClassReady"
	ConditionNodeRegistrationHealthy = "NodeRegistrationHealthy"
	// ConditionNodesCanJoin is False, and Ready with it, while nodes of the pool do not join or do not become Ready, and one at a time
	// is tried. It is absent where nothing is known to be wrong.
	ConditionNodesCanJoin = "NodesCanJoin"
	// ConditionClusterNameShared is True while instances of another cluster have this cluster's name.
	ConditionClusterNameShared = "ClusterNameShared"
	// ConditionDisruptionPaused is True while nodes are not replaced for some reason, because too many of those that were
	// to replace others did not come up; or for any reason, because new nodes fail soon after they have come up.
	ConditionDisruptionPaused = "DisruptionPaused"
	// ConditionPodsRefused is True while pods are pending that nodes of the pool were launched for, came up, and do not run.
	ConditionPodsRefused = "PodsRefused"
	// ConditionInterruptionQueueUnavailable is True while warnings of AWS cannot be read from the queue that is configured.
	ConditionInterruptionQueueUnavailable = "InterruptionQueueUnavailable"
)

// Condition types of NodeClaim. The first three decide about Ready.
const (
	ConditionLaunched             = "Launched"
	ConditionRegistered           = "Registered"
	ConditionInitialized          = "Initialized"
	ConditionConsolidatable       = "Consolidatable"
	ConditionDrifted              = "Drifted"
	ConditionDisruptionReason     = "DisruptionReason"
	ConditionDrained              = "Drained"
	ConditionVolumesDetached      = "VolumesDetached"
	ConditionInstanceTerminating  = "InstanceTerminating"
	ConditionConsistentStateFound = "ConsistentStateFound"
)

// Reason and message of Registered between the launch of a NodeClaim and the creation of its Node.
const (
	ReasonNodeNotFound  = "NodeNotFound"
	MessageNodeNotFound = "Node not registered with cluster"
)

// Reasons of ConditionDisruptionReason of a claim with an instance that EC2 reclaims, spot or with its capacity reservation:
// its node has two minutes.
const (
	ReasonSpotInterrupted        = "SpotInterrupted"
	ReasonReservationInterrupted = "CapacityReservationInstanceInterrupted"
)
