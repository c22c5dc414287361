package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Snapshot cuts the world as it is now. Nodes are read before pods: a pod that is bound meanwhile is then
// planned for once too often on capacity that is there, never once too seldom.
func (s *State) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	if !s.Primed() {
		if err := s.Refresh(ctx); err != nil {
			return nil, err
		}
	}
	w := &world{state: s, snap: &snapshot.Snapshot{Now: s.cfg.Now(), Settings: s.cfg.Settings, Labels: s.cfg.Labels}}
	for _, step := range []func(context.Context) error{w.readNodes, w.readPods, w.readPools, w.readDaemonSets, w.readVolumes, w.readPolicies} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("cut a snapshot: %w", err)
		}
	}
	return w.snap, nil
}

// world is a Snapshot in the making.
type world struct {
	state *State
	snap  *snapshot.Snapshot
	// byNode finds the entry of a Node object by its name.
	byNode map[string]int
	// unlaunched are the claims that have no instance yet.
	unlaunched map[types.UID]*karpv1.NodeClaim
}

// list reads all objects of a kind from the cache. The objects are shared with it and only read.
func (w *world) list(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	return w.state.cfg.Cache.List(ctx, into, append(opts, client.UnsafeDisableDeepCopy)...)
}

func (w *world) readNodes(ctx context.Context) error {
	claims, err := w.state.claims(ctx)
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := w.list(ctx, &nodes); err != nil {
		return err
	}
	limits, err := w.volumeLimits(ctx)
	if err != nil {
		return err
	}
	byProvider := nodesByProvider(nodes.Items)
	objectName := map[types.UID]string{}
	w.unlaunched = map[types.UID]*karpv1.NodeClaim{}
	for _, claim := range claims {
		node := joined(claim, byProvider[claim.Status.ProviderID])
		if node != nil {
			objectName[claim.UID] = node.Name
		}
		entry := w.state.claimedNode(claim, node, w.snap.Now)
		if !entry.Launched {
			w.unlaunched[claim.UID] = claim
		}
		w.snap.Nodes = append(w.snap.Nodes, entry)
	}
	ours := providerIDs(claims)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		// A node that bears a pool's name but no claim is one of ours in a state between: it takes no pods.
		if _, managed := node.Labels[karpv1.LabelNodePool]; managed || ours[node.Spec.ProviderID] {
			continue
		}
		w.snap.Nodes = append(w.snap.Nodes, foreignNode(node))
	}
	slices.SortFunc(w.snap.Nodes, func(a, b snapshot.Node) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ClaimUID, b.ClaimUID))
	})
	w.byNode = make(map[string]int, len(w.snap.Nodes))
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		// Before registration the entry bears the claim's name, but pods are bound to the Node's.
		name := n.Name
		if n.Claim != "" {
			name = objectName[n.ClaimUID]
		}
		if name == "" {
			continue
		}
		n.VolumeLimits = limits[name]
		w.byNode[name] = i
	}
	return nil
}

// nodesByProvider finds Nodes by provider ID. One that has none yet is nobody's.
func nodesByProvider(nodes []corev1.Node) map[string][]*corev1.Node {
	out := make(map[string][]*corev1.Node, len(nodes))
	for i := range nodes {
		if id := nodes[i].Spec.ProviderID; id != "" {
			out[id] = append(out[id], &nodes[i])
		}
	}
	return out
}

// joined picks the claim's Node among those that bear its provider ID: the one that was registered for it, else
// the first by name.
func joined(claim *karpv1.NodeClaim, nodes []*corev1.Node) *corev1.Node {
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

// providerIDs are the instances that claims have.
func providerIDs(claims []*karpv1.NodeClaim) map[string]bool {
	out := make(map[string]bool, len(claims))
	for _, claim := range claims {
		if id := claim.Status.ProviderID; id != "" {
			out[id] = true
		}
	}
	return out
}

// volumeLimits reads, per node, how many volumes of each driver it can attach.
func (w *world) volumeLimits(ctx context.Context) (map[string]map[string]int32, error) {
	var list storagev1.CSINodeList
	if err := w.list(ctx, &list); err != nil {
		return nil, err
	}
	out := map[string]map[string]int32{}
	for i := range list.Items {
		for _, d := range list.Items[i].Spec.Drivers {
			if d.Allocatable == nil || d.Allocatable.Count == nil {
				continue
			}
			if out[list.Items[i].Name] == nil {
				out[list.Items[i].Name] = map[string]int32{}
			}
			out[list.Items[i].Name][d.Name] = *d.Allocatable.Count
		}
	}
	return out, nil
}

// readPods puts bound pods where they are, and collects those that want a place.
func (w *world) readPods(ctx context.Context) error {
	var pods corev1.PodList
	if err := w.list(ctx, &pods); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == "" {
			if snapshot.Provisionable(pod) {
				w.snap.Pods = append(w.snap.Pods, pod)
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
	for i := range w.snap.Nodes {
		slices.SortFunc(w.snap.Nodes[i].Pods, byNamespacedName)
	}
	return nil
}

// readPolicies reads the budgets of pods; with them it is known which pods of leaving nodes want a new place.
func (w *world) readPolicies(ctx context.Context) error {
	var pdbs policyv1.PodDisruptionBudgetList
	if err := w.list(ctx, &pdbs); err != nil {
		return err
	}
	for i := range pdbs.Items {
		w.snap.PDBs = append(w.snap.PDBs, &pdbs.Items[i])
	}
	slices.SortFunc(w.snap.PDBs, byNamespacedName)
	var namespaces corev1.NamespaceList
	if err := w.list(ctx, &namespaces); err != nil {
		return err
	}
	w.snap.Namespaces = make(map[string]map[string]string, len(namespaces.Items))
	for i := range namespaces.Items {
		w.snap.Namespaces[namespaces.Items[i].Name] = namespaces.Items[i].Labels
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
	return nil
}

func (w *world) readDaemonSets(ctx context.Context) error {
	var sets appsv1.DaemonSetList
	if err := w.list(ctx, &sets); err != nil {
		return err
	}
	newest := w.newestDaemonPods()
	for i := range sets.Items {
		set := &sets.Items[i]
		if set.DeletionTimestamp != nil {
			continue
		}
		w.snap.DaemonSets = append(w.snap.DaemonSets, snapshot.DaemonSet{
			Namespace: set.Namespace, Name: set.Name, Pod: daemonPod(set, newest[set.UID]),
		})
	}
	slices.SortFunc(w.snap.DaemonSets, func(a, b snapshot.DaemonSet) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

// newestDaemonPods finds each DaemonSet's youngest pod: what a controller or webhook made of the template.
func (w *world) newestDaemonPods() map[types.UID]*corev1.Pod {
	newest := map[types.UID]*corev1.Pod{}
	for i := range w.snap.Nodes {
		for _, pod := range w.snap.Nodes[i].Pods {
			owner := metav1.GetControllerOf(pod)
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

// daemonPod is the pod that a new node gets from set. A live pod is pinned to its node by an affinity
// that the DaemonSet controller wrote, so the template's own affinity takes its place.
func daemonPod(set *appsv1.DaemonSet, live *corev1.Pod) *corev1.Pod {
	if live == nil {
		pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.Name = set.Namespace, set.Name
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				requestLimits(&list[i])
			}
		}
		return pod
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
	return pod
}

// requestLimits does what the API server does to a pod, but not to a template: a limit without a request is one.
func requestLimits(c *corev1.Container) {
	for name, limit := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; ok {
			continue
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[name] = limit
	}
}

func (w *world) readVolumes(ctx context.Context) error {
	var claims corev1.PersistentVolumeClaimList
	if err := w.list(ctx, &claims); err != nil {
		return err
	}
	var volumes corev1.PersistentVolumeList
	if err := w.list(ctx, &volumes); err != nil {
		return err
	}
	var classes storagev1.StorageClassList
	if err := w.list(ctx, &classes); err != nil {
		return err
	}
	v := snapshot.Volumes{
		Claims:         make(map[types.NamespacedName]*corev1.PersistentVolumeClaim, len(claims.Items)),
		Volumes:        make(map[string]*corev1.PersistentVolume, len(volumes.Items)),
		StorageClasses: make(map[string]*storagev1.StorageClass, len(classes.Items)),
	}
	for i := range claims.Items {
		v.Claims[client.ObjectKeyFromObject(&claims.Items[i])] = &claims.Items[i]
	}
	for i := range volumes.Items {
		v.Volumes[volumes.Items[i].Name] = &volumes.Items[i]
	}
	for i := range classes.Items {
		v.StorageClasses[classes.Items[i].Name] = &classes.Items[i]
	}
	w.snap.Volumes = v
	return nil
}

func byNamespacedName[T client.Object](a, b T) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()), strings.Compare(string(a.GetUID()), string(b.GetUID())))
}
