// Package snapshot is the state of the cluster and of the cloud at an instant, as the engine sees it.
//
// A Snapshot is a value: it is not changed once it is built. The order of its lists has no meaning; readers sort
// first, so that equal snapshots give equal plans. It holds API objects by reference; the engine only reads them.
package snapshot

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// Snapshot is everything a decision may depend on.
type Snapshot struct {
	// Now is the only clock of the engine.
	Now      time.Time
	Settings Settings
	// Labels holds what label keys mean on this cloud.
	Labels requirement.Labels
	// Pools that may launch, in any order; the engine orders them by weight.
	Pools []Pool
	// Closed are managed pools that cannot launch now. They still own their nodes.
	Closed []*karpv1.NodePool
	// Nodes are the existing nodes and those in flight, managed by Dovetail or not.
	Nodes []Node
	// Pods are the pods to be scheduled: provisionable ones, and those of nodes that are being removed.
	Pods []*corev1.Pod
	// Recreated holds what pods of nodes request once they are made again elsewhere, of those that request less now: pods that were
	// resized in place come back with the size of their template.
	Recreated map[types.UID]corev1.ResourceList
	// Virtual are pods that stand for the room that CapacityBuffers reserve. They are planned after Pods, see package
	// buffer.
	Virtual []*corev1.Pod
	// Arriving are pods that kube-scheduler has not tried yet, or could not bind to the node that it has found. No node is launched
	// for them, but they will take room, which must stay free for them.
	Arriving []*corev1.Pod
	// PodGroups are the groups that pods name, by namespace and name; nil if the API server does not serve them: kube-scheduler then takes
	// their pods one by one.
	PodGroups []PodGroup
	// DaemonSets have a pod on every node that they would run on.
	DaemonSets []DaemonSet
	// What pods refer to. Keys are namespace/name for namespaced objects.
	Volumes    Volumes
	PDBs       []*policyv1.PodDisruptionBudget
	Namespaces map[string]map[string]string // name -> labels
	// Devices allocates for pods with resource claims. If it is nil, these pods are not planned.
	Devices Devices
}

// Settings are the user's choices that change decisions.
type Settings struct {
	// PreferencePolicy is for soft constraints of pods.
	PreferencePolicy PreferencePolicy
	// PreferenceCost is, for PreferencesPriced, the most that the preferences of a pod may cost, as a share of the
	// pod's own price.
	PreferenceCost float64
	// MinValuesPolicy is for requirements with minValues.
	MinValuesPolicy MinValuesPolicy
	// DefaultSpread is for pods without spread constraints of their own. The builder of a Snapshot has added them to
	// its Pods, each with the selector that suits the pod.
	DefaultSpread []corev1.TopologySpreadConstraint
	// Profiles are those of kube-scheduler that change rules of their pods, by the scheduler's name.
	Profiles map[string]SchedulerProfile
	// NodeCost holds what each node costs per hour in addition to its price, in $: licenses, agents. Plans minimize the
	// sum.
	NodeCost float64
}

// PreferencePolicy describes what happens to soft constraints of pods.
type PreferencePolicy string

// The policies for soft constraints. The zero value is PreferencesRespect.
const (
	PreferencesRespect PreferencePolicy = "Respect"
	PreferencesIgnore  PreferencePolicy = "Ignore"
	// PreferencesPriced keeps a preference while it costs no more than Settings.PreferenceCost.
	PreferencesPriced PreferencePolicy = "Priced"
)

// MinValuesPolicy describes what happens to minValues that no set of instance types satisfies.
type MinValuesPolicy string

// The policies for minValues. The zero value is MinValuesStrict.
const (
	MinValuesStrict     MinValuesPolicy = "Strict"
	MinValuesBestEffort MinValuesPolicy = "BestEffort"
)

// Pool is a NodePool together with what its node class can launch.
type Pool struct {
	NodePool *karpv1.NodePool
	// NodeClassLabel is the label of nodes of this pool's class (key, value).
	NodeClassLabel [2]string
	InstanceTypes  []*catalog.InstanceType
	// Used counts against spec.limits: capacity of the pool's nodes and of claims in flight, with key "nodes" for
	// their number.
	Used corev1.ResourceList
	// KubeletFeatures are the features that the kubelets of new nodes declare, as far as their images report: see Node.DeclaredFeatures.
	KubeletFeatures []string
}

// Node is a Node, a NodeClaim, or both merged by provider ID.
type Node struct {
	// Name of the Node object, or of the NodeClaim while no Node has registered.
	Name string
	// Claim is the NodeClaim's name; empty for a node that Dovetail does not manage.
	Claim    string
	ClaimUID types.UID
	// Pool is the value of the label karpenter.sh/nodepool; empty for unmanaged nodes.
	Pool   string
	Labels map[string]string
	// Requirements of the claim. Until it is launched, nothing else is known of its node.
	Requirements []karpv1.Requirement
	// Annotations of the Node once registered, of the claim before.
	Annotations map[string]string
	// Taints that scheduling must respect: while a managed node is not initialized, startup taints and known
	// ephemeral taints are left out, and so are those that are Awaited.
	Taints []corev1.Taint
	// Awaited are taints of something else that may remove them soon, while the node has room of pods that it was launched for and that
	// will not come: for other pods, it is in flight until the taints are gone.
	Awaited []corev1.Taint
	// Allocatable, completed from the claim's status until the node is initialized.
	Allocatable corev1.ResourceList
	Capacity    corev1.ResourceList
	// Pods bound here that still use resources, daemon pods included, and pods that kube-scheduler has nominated to the node: it keeps
	// their room free.
	Pods []*corev1.Pod
	// Nominated are pending pods that this claim was launched for. They use resources here and nowhere else.
	Nominated []types.UID
	// LaunchedFor and PodClasses hold what the claim was launched for, as its annotations list it, however long ago that was: the UIDs
	// of pods, but for those that were nominated to another claim since, and their classes, comma-separated.
	LaunchedFor, PodClasses string
	// SettledAt is, of an initialized node with a claim, from when on a pod that is still pending has been refused there.
	SettledAt time.Time
	// Settling is true before that, while pods are nominated: what keeps them off the node may go, such as a taint that its owner
	// removes. They stay nominated, as to a node that is not initialized.
	Settling bool
	// TakenFrom holds those of LaunchedFor that are pending since other pods came to the initialized node first, and leave no room;
	// TooSmallFor holds those for which it is too small without any.
	TakenFrom, TooSmallFor []types.UID
	// PodCame is true if any pod but those of DaemonSets is known to have come to the node.
	PodCame bool
	// NominatedVirtual are virtual pods that the claim was launched for, while it has no instance: until its size is
	// known they reserve their room here and nowhere else.
	NominatedVirtual []types.UID
	// Virtual counts how many virtual pods reserve room here. A node with any is not empty.
	Virtual int
	// Launched is false for a claim without an instance: its size is known only by the requests of its nominated
	// pods, so it takes no others. It is meaningless for nodes without a claim.
	Launched    bool
	Registered  bool
	Initialized bool
	// Ready is the Node's Ready condition.
	Ready bool
	// Deleting is true from the decision to delete the node until it is deleted, if that decision is final, or its
	// replacements are launched: its pods need another node.
	Deleting bool
	// Emptied is true if the node is removed since no pod is on it.
	Emptied bool
	// Disrupting is true while a disruption command for the node is in progress: its replacements are being launched
	// or initialized. The command may still be canceled.
	Disrupting bool
	// Replaces are the claims, by name, that this one was launched to replace.
	Replaces []string
	// InstanceTerminating is true once the instance itself is terminating.
	InstanceTerminating bool
	// Consolidatable is the NodeClaim's condition of that name.
	Consolidatable bool
	// DriftedAt is since when the claim has been drifted; zero if it is not.
	DriftedAt time.Time
	// DriftedForResize is true if the only cause is a pod that waits for room (ResizeDeferred): what protects pods keeps such a node, even
	// if its drain is Bounded.
	DriftedForResize bool
	// MaintenancePlanned is true if somebody announces that the node will change: of nodes that may be disrupted, it goes first.
	MaintenancePlanned bool
	// Bounded is true if the claim has a terminationGracePeriod, which bounds the drain of its node.
	Bounded bool
	// NominatedUntil is until when a recent nomination protects the node from disruption.
	NominatedUntil time.Time
	CreatedAt      time.Time
	// ExpireAfter is the age at which the node expires; zero if it never does.
	ExpireAfter time.Duration
	// Price in $/h of the offering that this node was launched from, 0 if unknown.
	Price float64
	// Unhealthy is true from the first moment of a condition that a repair policy covers. Repair is what to do about it
	// once the condition is no longer tolerated, nil before. Both need node repair to be on.
	Unhealthy bool
	Repair    *repair.Decision
	// Rebooting is true from the decision to reboot the instance until that has finished. The node's capacity comes back.
	Rebooting bool
	// DoNotRepair names the object with an annotation that vetoes repairs of the node; empty if there is none.
	DoNotRepair string
	// Unplannable states why plans ignore the node: they neither disrupt it nor schedule pods on it. Usually empty.
	Unplannable string
	// VolumeLimits is CSINode's allocatable count per driver.
	VolumeLimits map[string]int32
	// LeftoverVolumes counts how many volumes are attached to the node that no pod there uses, by driver: they count against its limits until
	// they are detached.
	LeftoverVolumes map[string]int32
	// CSIDrivers are the drivers that CSINode lists, sorted.
	CSIDrivers []string
	// DeclaredFeatures are the features that the node's kubelet declares: kube-scheduler refuses pods that need others.
	DeclaredFeatures []string
	// DRADrivers are the DRA drivers that must publish devices before the node is initialized: of its type's devices, those of
	// other drivers may never come, or may require another launch.
	DRADrivers []string
	// DRAResources are the extended resources that DRA drivers serve on this node, sorted: see catalog.InstanceType.DRAResources.
	// Allocatable has how many of the node's devices can serve them, taken or not.
	DRAResources []corev1.ResourceName
}

// NoteLacking has Labels.Lacking name the nodes that have labels under one of their two names only. Nodes in flight still get both.
func (s *Snapshot) NoteLacking() {
	s.Labels.Lacking = s.Labels.LackedBy(func(yield func(string, map[string]string) bool) {
		for i := range s.Nodes {
			if n := &s.Nodes[i]; (n.Claim == "" || n.Initialized) && !yield(n.Name, n.Labels) {
				return
			}
		}
	})
}

// Named reports whether the name is that of a Node, not of a NodeClaim with a Node that has not registered.
func (n *Node) Named() bool { return n.Claim == "" || n.Registered }

// Usable reports whether pods can run on the node now: it is initialized, and plans count on no taint of it to go.
func (n *Node) Usable() bool { return n.Claim == "" || n.Initialized && len(n.Awaited) == 0 }

// AwaitsRepair reports whether the node is to be repaired: until then it takes no more pods, which would only have to
// move again.
func (n *Node) AwaitsRepair() bool { return n.Repair != nil && n.DoNotRepair == "" }

// KeepsNominated reports whether a pod that is nominated to the node stays there, whether it still suits it or not.
func (n *Node) KeepsNominated(pod types.UID) bool {
	return !n.Initialized || n.Settling && !slices.Contains(n.TakenFrom, pod) && !slices.Contains(n.TooSmallFor, pod)
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
	// MustBeInstalled are the CSI drivers without which kube-scheduler refuses pods with their volumes on a node.
	MustBeInstalled map[string]bool
	// ChecksCapacity are the CSI drivers for which kube-scheduler compares the size of volumes with Capacities, and NodeLocal those that
	// make volumes of the disks of a node.
	ChecksCapacity, NodeLocal map[string]bool
	// Capacities are the CSIStorageCapacities by storage class, sorted.
	Capacities map[string][]*storagev1.CSIStorageCapacity
	// Unsupported holds what volumes of nodes of this cloud cannot have; usually nothing.
	Unsupported UnsupportedStorage
}

// UnsupportedStorage names volumes that no managed node could use: a pod that has one is not planned.
type UnsupportedStorage struct {
	// Provisioners are CSI drivers, by name.
	Provisioners []string
	// TopologyKeys are labels of allowed topologies, as storage classes spell them.
	TopologyKeys []string
}
