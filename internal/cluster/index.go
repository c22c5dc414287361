package cluster

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

const (
	nodeProviderID  = "spec.providerID"
	claimProviderID = "status.providerID"
	claimInstanceID = "status.instanceID"
	podNodeName     = "spec.nodeName"
	podWaiting      = "dovetail.waiting"
	podOrdered      = "dovetail.ordered"
	claimCommand    = "dovetail.command"
)

// AddIndexes adds the cache indexes that this package's queries need.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	indexes := []struct {
		object client.Object
		field  string
		value  func(client.Object) string
	}{
		{&corev1.Node{}, nodeProviderID, func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID }},
		{&corev1.Pod{}, podNodeName, func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
		{&corev1.Pod{}, podWaiting, waitingKey},
		{&corev1.Pod{}, podOrdered, orderedKey},
		{&karpv1.NodeClaim{}, claimProviderID, func(o client.Object) string { return o.(*karpv1.NodeClaim).Status.ProviderID }},
		{&karpv1.NodeClaim{}, claimInstanceID, func(o client.Object) string { return instanceID(o.(*karpv1.NodeClaim).Status.ProviderID) }},
		{&karpv1.NodeClaim{}, claimCommand, func(o client.Object) string { return CommandOf(o.(*karpv1.NodeClaim)) }},
	}
	for _, i := range indexes {
		err := indexer.IndexField(ctx, i.object, i.field, func(o client.Object) []string {
			if v := i.value(o); v != "" {
				return []string{v}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("index %T by %s: %w", i.object, i.field, err)
		}
	}
	return nil
}

// waitingKey is the beginning of the UID of a pod that has no node; empty for the others, which are most, so that the index is small. A
// key of its own for each of 30,000 pods would take 7 MB.
func waitingKey(o client.Object) string {
	if pod := o.(*corev1.Pod); pod.Spec.NodeName == "" {
		return uidKey(pod.UID)
	}
	return ""
}

// orderedKey is the UID of the owner of a pod with the annotation dovetail.sh/drain; empty for the others, so that the index takes nothing
// where nobody uses it.
func orderedKey(o client.Object) string {
	_, annotated := o.GetAnnotations()[karpv1.AnnotationDrain]
	if owner := metav1.GetControllerOfNoCopy(o); annotated && owner != nil {
		return string(owner.UID)
	}
	return ""
}

// SharedSiblings returns the pods of an owner that have the annotation dovetail.sh/drain. They are shared with the cache and must not be
// changed.
func SharedSiblings(ctx context.Context, r client.Reader, owner types.UID) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy, client.MatchingFields{podOrdered: string(owner)}); err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

// uidKey has 4,096 values for the UIDs of an API server, which are random.
func uidKey(uid types.UID) string { return string(uid[:min(len(uid), 3)]) }

// WaitingPods returns those of the pods with the UIDs that have no node yet. They are shared with the cache and must not be changed.
func WaitingPods(ctx context.Context, r client.Reader, uids []types.UID) ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	for _, uid := range uids {
		var list corev1.PodList
		if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy, client.MatchingFields{podWaiting: uidKey(uid)}); err != nil {
			return nil, err
		}
		for _, pod := range pointers(list.Items) {
			if pod.UID == uid {
				out = append(out, pod)
			}
		}
	}
	return out, nil
}

// OwnClaim returns the NodeClaim of the name, nil if there is none or if it is another controller's.
func OwnClaim(ctx context.Context, r client.Reader, key client.ObjectKey) (*karpv1.NodeClaim, error) {
	return ownClaim(ctx, r, key)
}

// SharedOwnClaim is OwnClaim without a copy: the NodeClaim is shared with the cache and must not be changed. Reconcilers that look at
// each of 5,000 NodeClaims, and rarely write, need no more.
func SharedOwnClaim(ctx context.Context, r client.Reader, key client.ObjectKey) (*karpv1.NodeClaim, error) {
	return ownClaim(ctx, r, key, client.UnsafeDisableDeepCopy)
}

func ownClaim(ctx context.Context, r client.Reader, key client.ObjectKey, opts ...client.GetOption) (*karpv1.NodeClaim, error) {
	claim := &karpv1.NodeClaim{}
	if err := r.Get(ctx, key, claim, opts...); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) {
		return nil, nil
	}
	return claim, nil
}

// NodesOf returns the Nodes that have the provider ID; none for an empty one.
func NodesOf(ctx context.Context, r client.Reader, providerID string) ([]corev1.Node, error) {
	return nodesOf(ctx, r, providerID)
}

func nodesOf(ctx context.Context, r client.Reader, providerID string, opts ...client.ListOption) ([]corev1.Node, error) {
	if providerID == "" {
		return nil, nil
	}
	var list corev1.NodeList
	err := r.List(ctx, &list, append(opts, client.MatchingFields{nodeProviderID: providerID})...)
	return list.Items, err
}

// SharedNodesOf is NodesOf without copies: what the Nodes refer to is shared with the cache and must not be changed.
func SharedNodesOf(ctx context.Context, r client.Reader, providerID string) ([]corev1.Node, error) {
	return nodesOf(ctx, r, providerID, client.UnsafeDisableDeepCopy)
}

// ClaimsOf returns the NodeClaims that have the provider ID; none for an empty one.
func ClaimsOf(ctx context.Context, r client.Reader, providerID string) ([]karpv1.NodeClaim, error) {
	if providerID == "" {
		return nil, nil
	}
	var list karpv1.NodeClaimList
	err := r.List(ctx, &list, client.MatchingFields{claimProviderID: providerID})
	return list.Items, err
}

// instanceID is the last part of a provider ID: the instance ID of the cloud.
func instanceID(providerID string) string {
	return providerID[strings.LastIndexByte(providerID, '/')+1:]
}

// ClaimsOfInstance returns the NodeClaims of the instance with this ID; none for an empty one.
func ClaimsOfInstance(ctx context.Context, r client.Reader, id string) ([]karpv1.NodeClaim, error) {
	if id == "" {
		return nil, nil
	}
	var list karpv1.NodeClaimList
	err := r.List(ctx, &list, client.MatchingFields{claimInstanceID: id})
	return list.Items, err
}

// PodsOn returns the pods that are bound to the node.
func PodsOn(ctx context.Context, r client.Reader, node string) ([]*corev1.Pod, error) {
	return podsOn(ctx, r, node)
}

// SharedPodsOn returns the pods that are bound to the node. They are shared with the cache and must not be changed.
func SharedPodsOn(ctx context.Context, r client.Reader, node string) ([]*corev1.Pod, error) {
	return podsOn(ctx, r, node, client.UnsafeDisableDeepCopy)
}

func podsOn(ctx context.Context, r client.Reader, node string, opts ...client.ListOption) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := r.List(ctx, &list, append(opts, client.MatchingFields{podNodeName: node})...); err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

// Reschedulable counts the pods on the node that will need another node when it terminates; 0 after a read error.
func Reschedulable(ctx context.Context, r client.Reader, node string) int {
	if node == "" {
		return 0
	}
	pods, err := SharedPodsOn(ctx, r, node)
	if err != nil {
		return 0
	}
	n := 0
	for _, p := range pods {
		if snapshot.Reschedulable(p) {
			n++
		}
	}
	return n
}

// ClaimRequests maps a Node to reconcile requests for its NodeClaim.
func ClaimRequests(r client.Reader) func(context.Context, client.Object) []reconcile.Request {
	return ClaimRequestsWhere(r, func(*karpv1.NodeClaim) bool { return true })
}

// ClaimRequestsWhere is ClaimRequests for NodeClaims that which accepts. Most of 5,000 nodes have joined long ago: those of them that a
// reconciler would leave as they are need no place in its queue.
func ClaimRequestsWhere(r client.Reader, which func(*karpv1.NodeClaim) bool) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		id := o.(*corev1.Node).Spec.ProviderID
		if id == "" {
			return nil
		}
		// Only names are read: copies of the claims would be most of what an event of a node costs.
		var claims karpv1.NodeClaimList
		if err := r.List(ctx, &claims, client.UnsafeDisableDeepCopy, client.MatchingFields{claimProviderID: id}); err != nil {
			return nil
		}
		out := make([]reconcile.Request, 0, len(claims.Items))
		for i := range claims.Items {
			if which(&claims.Items[i]) {
				out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: claims.Items[i].Name}})
			}
		}
		return out
	}
}

// AllPools maps any object to reconcile requests for all NodePools.
func AllPools(r client.Reader) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		var pools karpv1.NodePoolList
		if err := r.List(ctx, &pools); err != nil {
			return nil
		}
		out := make([]reconcile.Request, len(pools.Items))
		for i := range pools.Items {
			out[i].Name = pools.Items[i].Name
		}
		return out
	}
}

// PoolRequests maps a node class to reconcile requests for the NodePools that launch from it.
func PoolRequests(r client.Reader) func(context.Context, client.Object) []reconcile.Request {
	return func(ctx context.Context, class client.Object) []reconcile.Request {
		var pools karpv1.NodePoolList
		if err := r.List(ctx, &pools); err != nil {
			return nil
		}
		var out []reconcile.Request
		for _, p := range pools.Items {
			if ref := p.Spec.Template.Spec.NodeClassRef; awsv1.IsEC2NodeClass(ref) && ref.Name == class.GetName() {
				out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: p.Name}})
			}
		}
		return out
	}
}
