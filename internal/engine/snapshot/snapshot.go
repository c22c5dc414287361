// Package snapshot is the world at an instant, as the engine sees it.
//
// A Snapshot is a value: nobody changes one once it is built. The order of its lists carries no meaning;
// whoever reads one sorts first, so that equal worlds give equal plans. It holds API objects by reference; the
// engine only reads them.
package snapshot

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Snapshot is everything a decision may depend on.
type Snapshot struct {
	// Now is the only clock of the engine.
	Now      time.Time
	Settings Settings
	// Labels is what label keys mean on this cloud.
	Labels requirement.Labels
	// Pools that may launch, in any order; the engine orders them by weight.
	Pools []Pool
	// Closed are pools of ours that may not launch now. Their nodes are theirs all the same.
	Closed []*karpv1.NodePool
	// Nodes are the machines that exist or are on their way, managed by us or not.
	Nodes []Node
	// Pods are those to be placed: provisionable ones, and those of nodes that are going away.
	Pods []*corev1.Pod
	// Virtual are pods that stand for the room which CapacityBuffers keep. They are planned after Pods and around them, see
	// package buffer.
	Virtual []*corev1.Pod
	// Arriving are pods that the scheduler has not looked at yet. Nothing is bought for them, but they will take room: whoever
	// counts on room must leave them theirs.
	Arriving []*corev1.Pod
	// DaemonSets weigh on every node that they would run on.
	DaemonSets []DaemonSet
	// What pods refer to. Keys are namespace/name for namespaced objects.
	Volumes    Volumes
	PDBs       []*policyv1.PodDisruptionBudget
	Namespaces map[string]map[string]string // name -> labels
	// Devices answers for pods with resource claims. While it is nil these are not planned.
	Devices Devices
}

// Settings are the user's choices that change decisions.
type Settings struct {
	// PreferencePolicy is Respect or Ignore (soft pod constraints).
	PreferencePolicy string
	// MinValuesPolicy is Strict or BestEffort.
	MinValuesPolicy string
	// DefaultSpread holds for pods without spread constraints of their own. Whoever cuts a Snapshot has added them to
	// its Pods, each with the selector that suits the pod.
	DefaultSpread []corev1.TopologySpreadConstraint
	// NodeCost is what each node costs per hour beside its price, in $: licences, agents. Plans are chosen by both.
	NodeCost float64
}

// Pool is a NodePool together with what its node class can launch.
type Pool struct {
	NodePool *karpv1.NodePool
	// NodeClassLabel is the label that marks nodes of this pool's class (key, value).
	NodeClassLabel [2]string
	InstanceTypes  []*catalog.InstanceType
	// Used counts against spec.limits: capacity of the pool's live nodes and of claims on their way,
	// with key "nodes" for their number.
	Used corev1.ResourceList
}

// Node is a Node, a NodeClaim, or both merged by provider ID.
type Node struct {
	// Name of the Node object, or of the NodeClaim while no Node has registered.
	Name string
	// Claim is the NodeClaim's name; empty when nobody of ours launched this node.
	Claim    string
	ClaimUID types.UID
	// Pool is the value of the label karpenter.sh/nodepool; empty on nodes of others.
	Pool   string
	Labels map[string]string
	// Requirements of the claim. Until it is launched they are all that is known of where it will be.
	Requirements []karpv1.Requirement
	// Annotations of the Node once registered, of the claim before.
	Annotations map[string]string
	// Taints that scheduling must respect: while a node of ours is not initialized, startup taints and
	// known ephemeral taints are already left out.
	Taints []corev1.Taint
	// Allocatable, with what the claim promised filled in until the node is initialized.
	Allocatable corev1.ResourceList
	Capacity    corev1.ResourceList
	// Pods bound here that still use resources, daemon pods included.
	Pods []*corev1.Pod
	// Nominated are pending pods promised to this claim. They use resources here and nowhere else.
	Nominated []types.UID
	// NominatedVirtual are virtual pods that the claim was bought for, while it has no instance: until its size is known
	// they have their room here and nowhere else.
	NominatedVirtual []types.UID
	// Virtual is how many virtual pods have their room here. A node with any is not empty.
	Virtual int
	// Launched is false for a claim that has no instance yet: its size is known only by what it
	// promised its nominated pods, so it takes no others. It says nothing about nodes without a claim.
	Launched    bool
	Registered  bool
	Initialized bool
	// Ready is the Node's Ready condition.
	Ready bool
	// Deleting is true from the decision to end the node until it is gone, where that decision is carried out whatever
	// comes, or its replacements have been bought: its pods want another place.
	Deleting bool
	// Disrupting is true while a command that is to end the node is under way: replacements are bought, or awaited. It may yet
	// be taken back.
	Disrupting bool
	// Replaces are the claims, by name, for which this one was bought.
	Replaces []string
	// InstanceTerminating is true once the instance itself is on its way out.
	InstanceTerminating bool
	// Consolidatable is the NodeClaim's condition of that name.
	Consolidatable bool
	// DriftedAt is since when the claim has been out of date; zero if it is not.
	DriftedAt time.Time
	// Bounded is true when the claim bounds how long its node is drained: nothing can hold it for ever.
	Bounded bool
	// NominatedUntil protects a node that a pod was just promised to from disruption.
	NominatedUntil time.Time
	CreatedAt      time.Time
	// ExpireAfter is the age at which the node is ended; zero if it never is.
	ExpireAfter time.Duration
	// Price in $/h of the offering that this node was bought from, 0 if unknown.
	Price float64
	// Unplannable says why plans leave the node as it is: they neither disrupt it nor put pods on it. Empty as a rule.
	Unplannable string
	// VolumeLimits is CSINode's allocatable count per driver.
	VolumeLimits map[string]int32
}

// DaemonSet is a template of pods that come with nodes.
type DaemonSet struct {
	Namespace, Name string
	// Pod is the newest live pod of the set, or its template.
	Pod *corev1.Pod
}

// Volumes are the storage objects that pods of the snapshot refer to.
type Volumes struct {
	Claims         map[types.NamespacedName]*corev1.PersistentVolumeClaim
	Volumes        map[string]*corev1.PersistentVolume
	StorageClasses map[string]*storagev1.StorageClass
	// Unsupported is what nodes of this cloud cannot do for volumes; usually nothing.
	Unsupported UnsupportedStorage
}

// UnsupportedStorage names volumes that no node of ours could use: a pod that has one is not planned.
type UnsupportedStorage struct {
	// Provisioners are CSI drivers, by name.
	Provisioners []string
	// TopologyKeys are labels of allowed topologies, as storage classes spell them.
	TopologyKeys []string
}
