package cluster

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/admission"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Objects are the API objects that a Snapshot is built from, of a live cluster or of a file. The Snapshot and the
// caller share them; neither changes them.
type Objects struct {
	NodeClaims             []*karpv1.NodeClaim
	Nodes                  []*corev1.Node
	CSINodes               []*storagev1.CSINode
	CSIDrivers             []*storagev1.CSIDriver
	CSIStorageCapacities   []*storagev1.CSIStorageCapacity
	VolumeAttachments      []*storagev1.VolumeAttachment
	Pods                   []*corev1.Pod
	Pools                  []Pool
	DaemonSets             []*appsv1.DaemonSet
	PersistentVolumeClaims []*corev1.PersistentVolumeClaim
	PersistentVolumes      []*corev1.PersistentVolume
	StorageClasses         []*storagev1.StorageClass
	PDBs                   []*policyv1.PodDisruptionBudget
	Namespaces             []*corev1.Namespace
	LimitRanges            []*corev1.LimitRange
	RuntimeClasses         []*nodev1.RuntimeClass
	// Devices are the objects of dynamic resource allocation; nil if they are ignored.
	Devices *Devices
	// PodGroups is nil if the API server does not serve PodGroups.
	PodGroups *PodGroups
	// Buffers are the capacity buffers to provide capacity for.
	Buffers []Buffer
	Owners
}

// Pool is a NodePool with the instance types that it may launch now.
type Pool struct {
	*karpv1.NodePool
	// NodeClassLabel is the label that marks nodes of this pool's class (key, value).
	NodeClassLabel [2]string
	// InstanceTypes are nil if the pool may launch nothing, for any reason.
	InstanceTypes []*catalog.InstanceType
	// KubeletFeatures are the features that the kubelets of its images declare, as far as it is known: see KubeletFeatures.
	KubeletFeatures []string
}

// Facts are the inputs of a Snapshot besides API objects.
type Facts struct {
	Now      time.Time
	Settings snapshot.Settings
	// Labels holds what label keys mean on this cloud.
	Labels requirement.Labels
	// NominationWindow states how long an initialized node keeps capacity reserved for the pods that it was launched for.
	NominationWindow time.Duration
	// TaintGracePeriod states how much longer it does while it has taints that something else may remove.
	TaintGracePeriod time.Duration
	// MarkedForDeletion are claims with a deletion that is decided, whether the objects show it or not.
	MarkedForDeletion map[types.UID]bool
	// Disrupting are candidates of commands that may still be rolled back, each with the names of its replacements.
	Disrupting map[types.UID][]string
	// Nominated are nodes (by the snapshot's name) that are nominated for a pod, and until when.
	Nominated map[string]time.Time
	// BufferPods counts how many virtual pods the last plan put on each node; nil before the first plan.
	BufferPods map[string]int
	// Repair are the policies of node repair; nil if it is off.
	Repair *repair.Policies
	// LifecycleConditions is the feature gate NodeLifecycleConditions.
	LifecycleConditions bool
}

// BuildSnapshot builds a Snapshot. Equal inputs give equal Snapshots, whatever the order of the objects.
func BuildSnapshot(o Objects, f Facts) *snapshot.Snapshot {
	w := &snapshotBuilder{
		Objects: o, facts: f, rules: admission.New(admission.Objects{LimitRanges: o.LimitRanges, RuntimeClasses: o.RuntimeClasses}),
		snap: &snapshot.Snapshot{Now: f.Now, Settings: f.Settings, Labels: f.Labels},
	}
	for _, step := range []func(){
		w.addNodes, w.addPods, w.addPodGroups, w.addRecreated, w.addPools, w.addDaemonSets, w.addVolumes, w.addLeftoverVolumes,
		w.addPolicies, w.keepGroupNodes, w.judgeNominations, w.reassignNominations, w.dropBoundElsewhere,
		w.applyDefaultSpread,
		w.addBuffers, w.addDevices, w.snap.NoteLacking,
	} {
		step()
	}
	return w.snap
}

// snapshotBuilder builds a Snapshot, one kind of object at a time.
type snapshotBuilder struct {
	Objects
	facts Facts
	// rules complete pods of templates.
	rules *admission.Rules
	snap  *snapshot.Snapshot
	// byNode finds the entry of a Node object by its name.
	byNode map[string]int
	// unlaunched are the claims that have no instance yet.
	unlaunched map[types.UID]*karpv1.NodeClaim
	// preempting are the nodes on which kube-scheduler evicts pods for others, made on first use.
	preempting map[string]bool
	// health states how the nodes of each pool are repaired, made on first use.
	health map[string]poolHealth
}

func (w *snapshotBuilder) addNodes() {
	limits, drivers := w.volumeLimits(), w.installedDrivers()
	byProvider := nodesByProviderID(w.Nodes)
	objectName := map[types.UID]string{}
	w.unlaunched = map[types.UID]*karpv1.NodeClaim{}
	unmanaged := w.unmanagedNodes()
	w.snap.Nodes = slices.Grow(w.snap.Nodes, len(w.NodeClaims)+len(unmanaged))
	for _, claim := range w.NodeClaims {
		node := nodeOfClaim(claim, byProvider[claim.Status.ProviderID])
		if node != nil {
			objectName[claim.UID] = node.Name
		}
		entry := w.facts.nodeFromClaim(claim, node)
		w.addHealth(&entry, claim, node)
		if !entry.Launched {
			w.unlaunched[claim.UID] = claim
		}
		w.snap.Nodes = append(w.snap.Nodes, entry)
	}
	for _, node := range unmanaged {
		w.snap.Nodes = append(w.snap.Nodes, unmanagedNode(node))
	}
	w.markDisrupting()
	slices.SortFunc(w.snap.Nodes, func(a, b snapshot.Node) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ClaimUID, b.ClaimUID))
	})
	w.byNode = make(map[string]int, len(w.snap.Nodes))
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		// Before registration the entry has the claim's name, but pods are bound to the Node's name.
		name := n.Name
		if n.Claim != "" {
			name = objectName[n.ClaimUID]
		}
		if name == "" {
			continue
		}
		n.VolumeLimits, n.CSIDrivers = limits[name], drivers[name]
		w.byNode[name] = i
	}
}

// unmanagedNodes are the Nodes without a NodeClaim that count as nodes of the cluster.
func (o *Objects) unmanagedNodes() []*corev1.Node {
	ours := providerIDs(o.NodeClaims)
	var out []*corev1.Node
	for _, node := range o.Nodes {
		// A node with the label of a pool but no claim is one of ours in transition: it takes no pods.
		if _, managed := node.Labels[karpv1.LabelNodePool]; !managed && !ours[node.Spec.ProviderID] {
			out = append(out, node)
		}
	}
	return out
}

// nodesByProviderID maps provider IDs to Nodes. It omits Nodes without a provider ID.
func nodesByProviderID(nodes []*corev1.Node) map[string][]*corev1.Node {
	out := make(map[string][]*corev1.Node, len(nodes))
	for _, node := range nodes {
		if id := node.Spec.ProviderID; id != "" {
			out[id] = append(out[id], node)
		}
	}
	return out
}

// nodeOfClaim picks the claim's Node among those with its provider ID: the one that was registered for it, else the
// first by name.
func nodeOfClaim(claim *karpv1.NodeClaim, nodes []*corev1.Node) *corev1.Node {
	if len(nodes) == 0 {
		return nil
	}
	return slices.MinFunc(nodes, func(a, b *corev1.Node) int {
		if registered := claim.Status.NodeName; (a.Name == registered) != (b.Name == registered) {
			if a.Name == registered {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

// providerIDs is the set of the claims' provider IDs.
func providerIDs(claims []*karpv1.NodeClaim) map[string]bool {
	out := make(map[string]bool, len(claims))
	for _, claim := range claims {
		if id := claim.Status.ProviderID; id != "" {
			out[id] = true
		}
	}
	return out
}

// volumeLimits returns how many volumes of each driver a node can attach, by node.
func (w *snapshotBuilder) volumeLimits() map[string]map[string]int32 {
	out := make(map[string]map[string]int32, len(w.CSINodes))
	// Nearly all nodes have one driver, and one of a few limits: they share the map.
	type limit struct {
		driver string
		count  int32
	}
	single := map[limit]map[string]int32{}
	for _, node := range w.CSINodes {
		var limits []limit
		for _, d := range node.Spec.Drivers {
			if d.Allocatable != nil && d.Allocatable.Count != nil {
				limits = append(limits, limit{d.Name, *d.Allocatable.Count})
			}
		}
		if len(limits) == 0 {
			continue
		}
		if known, found := single[limits[0]]; found && len(limits) == 1 {
			out[node.Name] = known
			continue
		}
		own := make(map[string]int32, len(limits))
		for _, l := range limits {
			own[l.driver] = l.count
		}
		if out[node.Name] = own; len(limits) == 1 {
			single[limits[0]] = own
		}
	}
	return out
}

// installedDrivers are the CSI drivers on each node, sorted.
func (w *snapshotBuilder) installedDrivers() map[string][]string {
	out := make(map[string][]string, len(w.CSINodes))
	single := map[string][]string{} // nearly all nodes have one driver: they share the list
	for _, node := range w.CSINodes {
		var drivers []string
		for _, d := range node.Spec.Drivers {
			drivers = append(drivers, d.Name)
		}
		if len(drivers) == 1 {
			if single[drivers[0]] == nil {
				single[drivers[0]] = drivers
			}
			out[node.Name] = single[drivers[0]]
			continue
		}
		slices.Sort(drivers)
		out[node.Name] = drivers
	}
	return out
}

// addPods adds bound pods to their nodes, and collects the pods to schedule.
func (w *snapshotBuilder) addPods() {
	for _, pod := range w.Pods {
		if pod.Spec.NodeName == "" {
			switch {
			case w.expected(pod):
				node := &w.snap.Nodes[w.byNode[pod.Status.NominatedNodeName]]
				node.Pods = append(node.Pods, pod)
				node.NominatedUntil = latest(node.NominatedUntil, w.facts.Now.Add(w.facts.NominationWindow))
			case snapshot.Provisionable(pod), snapshot.Nominated(pod):
				w.snap.Pods = append(w.snap.Pods, pod)
			case w.isArriving(pod), snapshot.FailsToBind(pod):
				w.snap.Arriving = append(w.snap.Arriving, pod)
			}
			continue
		}
		at, known := w.byNode[pod.Spec.NodeName]
		if !known || snapshot.Terminal(pod) {
			continue
		}
		node := &w.snap.Nodes[at]
		node.Pods = append(node.Pods, pod)
	}
	slices.SortFunc(w.snap.Arriving, byNamespacedName)
	for i := range w.snap.Nodes {
		slices.SortFunc(w.snap.Nodes[i].Pods, byNamespacedName)
	}
}

// expected reports whether the pod, without a node, counts on the node that kube-scheduler has nominated it to: it waits there until other
// pods are evicted, or is about to be bound. No API server clears the nomination to a node that is gone, and kube-scheduler tries such a
// pod like any other. So it does with a pod that has been unschedulable for longer than the nomination window while it evicts no pod there.
func (w *snapshotBuilder) expected(pod *corev1.Pod) bool {
	name := pod.Status.NominatedNodeName
	at, known := w.byNode[name]
	if name == "" || !known || w.snap.Nodes[at].Deleting || !snapshot.Active(pod) || len(pod.Spec.SchedulingGates) > 0 {
		return false
	}
	since, refused := snapshot.UnschedulableSince(pod)
	return !refused || since.IsZero() || w.facts.Now.Sub(since) <= w.facts.NominationWindow || w.preempts()[name]
}

// preempts are the nodes on which kube-scheduler evicts pods for others.
func (w *snapshotBuilder) preempts() map[string]bool {
	if w.preempting == nil {
		w.preempting = map[string]bool{}
		for _, pod := range w.Pods {
			if pod.DeletionTimestamp != nil && snapshot.Preempted(pod) {
				w.preempting[pod.Spec.NodeName] = true
			}
		}
	}
	return w.preempting
}

// addPolicies adds the PodDisruptionBudgets, which decide which pods of deleting nodes are to be scheduled elsewhere.
func (w *snapshotBuilder) addPolicies() {
	w.snap.PDBs = slices.SortedFunc(slices.Values(w.PDBs), byNamespacedName)
	w.snap.Namespaces = make(map[string]map[string]string, len(w.Namespaces))
	for _, namespace := range w.Namespaces {
		w.snap.Namespaces[namespace.Name] = namespace.Labels
	}
	budgets := snapshot.Budgets(w.snap.PDBs)
	for i := range w.snap.Nodes {
		node := &w.snap.Nodes[i]
		if !node.Deleting {
			continue
		}
		for _, pod := range node.Pods {
			if snapshot.CurrentlyReschedulable(pod, budgets, w.snap.Now) {
				w.snap.Pods = append(w.snap.Pods, pod)
			}
		}
	}
	slices.SortFunc(w.snap.Pods, byNamespacedName)
}

func (w *snapshotBuilder) addDaemonSets() {
	newest := w.newestDaemonPods()
	for _, set := range w.DaemonSets {
		if set.DeletionTimestamp != nil {
			continue
		}
		pod, err := w.daemonPod(set, newest[set.UID])
		if unknown := (*admission.UnknownRuntimeClassError)(nil); err != nil && !errors.As(err, &unknown) {
			continue // the API server rejects its pods
		}
		w.snap.DaemonSets = append(w.snap.DaemonSets, snapshot.DaemonSet{Namespace: set.Namespace, Name: set.Name, Pod: pod})
	}
	slices.SortFunc(w.snap.DaemonSets, func(a, b snapshot.DaemonSet) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// newestDaemonPods finds each DaemonSet's youngest pod, which shows what webhooks have made of the template.
func (w *snapshotBuilder) newestDaemonPods() map[types.UID]*corev1.Pod {
	newest := map[types.UID]*corev1.Pod{}
	for i := range w.snap.Nodes {
		for _, pod := range w.snap.Nodes[i].Pods {
			owner := metav1.GetControllerOfNoCopy(pod)
			if owner == nil || owner.Kind != "DaemonSet" {
				continue
			}
			if have := newest[owner.UID]; have == nil || have.CreationTimestamp.Before(&pod.CreationTimestamp) {
				newest[owner.UID] = pod
			}
		}
	}
	return newest
}

// daemonPod is the pod that a new node gets from set. The DaemonSet controller pins a live pod to its node by an
// affinity, so the template's affinity replaces that. An error is why the API server would reject a pod of the template.
func (w *snapshotBuilder) daemonPod(set *appsv1.DaemonSet, live *corev1.Pod) (*corev1.Pod, error) {
	if live == nil {
		pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.Name = set.Namespace, set.Name
		return pod, w.rules.CompleteDaemon(set.Namespace, &pod.Spec)
	}
	pod := live.DeepCopy()
	pod.Spec.NodeName = ""
	template := set.Spec.Template.Spec.Affinity
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if template != nil && template.NodeAffinity != nil {
		pod.Spec.Affinity.NodeAffinity = template.NodeAffinity.DeepCopy()
	} else {
		pod.Spec.Affinity.NodeAffinity = nil
	}
	// A pod that is older than a LimitRange lacks the defaults that the next one gets. What the API server would reject for a runtime class
	// that is gone was accepted once.
	_ = w.rules.Complete(set.Namespace, &pod.Spec)
	return pod, nil
}

func (w *snapshotBuilder) addVolumes() {
	v := snapshot.Volumes{
		Claims:         make(map[types.NamespacedName]*corev1.PersistentVolumeClaim, len(w.PersistentVolumeClaims)),
		Volumes:        make(map[string]*corev1.PersistentVolume, len(w.PersistentVolumes)),
		StorageClasses: make(map[string]*storagev1.StorageClass, len(w.StorageClasses)), MustBeInstalled: map[string]bool{},
	}
	for _, claim := range w.PersistentVolumeClaims {
		v.Claims[client.ObjectKeyFromObject(claim)] = claim
	}
	for _, volume := range w.PersistentVolumes {
		v.Volumes[volume.Name] = volume
	}
	for _, driver := range w.CSIDrivers {
		if must := driver.Spec.PreventPodSchedulingIfMissing; must != nil && *must {
			v.MustBeInstalled[driver.Name] = true
		}
	}
	for _, class := range w.StorageClasses {
		v.StorageClasses[class.Name] = class
	}
	w.addCapacities(&v)
	w.snap.Volumes = v
}

func byNamespacedName[T client.Object](a, b T) int {
	return cmp.Or(
		cmp.Compare(a.GetNamespace(), b.GetNamespace()),
		cmp.Compare(a.GetName(), b.GetName()),
		strings.Compare(string(a.GetUID()), string(b.GetUID())),
	)
}
