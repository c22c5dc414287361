package incumbent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// ErrNotYet means that a node has not come so far.
var ErrNotYet = errors.New("not yet")

// Register makes the Node of a NodeClaim its own. The error is ErrNotYet until there is one.
func (c *Controller) Register(ctx context.Context, name string) error {
	claim, node, err := c.pair(ctx, name)
	if err != nil {
		return err
	}
	controllerutil.AddFinalizer(node, termination)
	yes := true
	node.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: coreGroup + "/v1", Kind: "NodeClaim", Name: name, UID: claim.GetUID(), BlockOwnerDeletion: &yes,
	}}
	maps.Copy(node.Labels, claim.GetLabels())
	node.Labels[registeredLabel] = "true"
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	maps.Copy(node.Annotations, claim.GetAnnotations())
	var taints []corev1.Taint
	for _, t := range node.Spec.Taints {
		if t.Key != unregistered {
			taints = append(taints, t)
		}
	}
	node.Spec.Taints = taints
	if err := c.Kube.Update(ctx, node); err != nil {
		return fmt.Errorf("%w: register node %s: %w", ErrNotYet, node.Name, err)
	}
	return c.change(ctx, claim, map[string]any{"status": map[string]any{
		"nodeName": node.Name, "conditions": conditions(claim, "Launched", "Registered"),
	}})
}

// Initialize completes a registered NodeClaim, and tags its instance with the names of the node, the claim and the cluster.
// The error is ErrNotYet until the node is ready.
func (c *Controller) Initialize(ctx context.Context, name string) error {
	claim, node, err := c.pair(ctx, name)
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("node %s is not ready: %w", node.Name, ErrNotYet)
		}
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("node %s has taints %v: %w", node.Name, node.Spec.Taints, ErrNotYet)
	}
	node.Labels[initializedLabel] = "true"
	if err := c.Kube.Update(ctx, node); err != nil {
		return fmt.Errorf("%w: initialize node %s: %w", ErrNotYet, node.Name, err)
	}
	if _, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{
		Resources: []string{instanceID(text(claim, "status", "providerID"))},
		Tags:      ec2Tags(map[string]string{"Name": node.Name, claimTag: name, clusterNameTag: c.Cluster}),
	}); err != nil {
		return fmt.Errorf("tag the instance of NodeClaim %s: %w", name, err)
	}
	return c.change(ctx, claim, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{tagged: "true", clusterTagged: "true"}},
		"status":   map[string]any{"conditions": conditions(claim, "Launched", "Registered", "Initialized", "Ready", "Consolidatable")},
	})
}

// pair is a NodeClaim and its Node.
func (c *Controller) pair(ctx context.Context, name string) (*object, *corev1.Node, error) {
	claim, err := c.get(ctx, coreGroup, "NodeClaim", name)
	if err != nil {
		return nil, nil, err
	}
	var nodes corev1.NodeList
	if err := c.Kube.List(ctx, &nodes); err != nil {
		return nil, nil, err
	}
	for i := range nodes.Items {
		if n := &nodes.Items[i]; n.Spec.ProviderID != "" && n.Spec.ProviderID == text(claim, "status", "providerID") {
			return claim, n, nil
		}
	}
	return nil, nil, fmt.Errorf("NodeClaim %s has no node: %w", name, ErrNotYet)
}

// instanceID is the instance that a provider ID, aws:///ZONE/ID, names.
func instanceID(providerID string) string {
	return providerID[strings.LastIndexByte(providerID, '/')+1:]
}

// Terminate deletes a NodeClaim and all that belongs to it: it taints the Node, deletes its pods, terminates the instance, and
// removes its own finalizers. It returns when both objects are gone: ErrNotYet means that somebody else holds one.
func (c *Controller) Terminate(ctx context.Context, name string) error {
	claim, node, err := c.pair(ctx, name)
	if err != nil {
		return err
	}
	if err := c.Kube.Delete(ctx, claim); err != nil {
		return fmt.Errorf("delete NodeClaim %s: %w", name, err)
	}
	if err := c.Kube.Delete(ctx, node); err != nil {
		return fmt.Errorf("delete Node %s: %w", node.Name, err)
	}
	if err := c.drain(ctx, node); err != nil {
		return err
	}
	if err := c.terminateInstance(ctx, name, instanceID(node.Spec.ProviderID)); err != nil {
		return err
	}
	for _, o := range []client.Object{node, claim} {
		if err := c.release(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// terminateInstance terminates the instance of a NodeClaim.
func (c *Controller) terminateInstance(ctx context.Context, claim, id string) error {
	if _, err := c.EC2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}}); err != nil {
		return fmt.Errorf("terminate the instance of NodeClaim %s: %w", claim, err)
	}
	return nil
}

// BeginDisruption does what is done first to a node that is replaced: the taint and the condition. Then the controller is stopped.
func (c *Controller) BeginDisruption(ctx context.Context, name string) (node string, err error) {
	claim, n, err := c.pair(ctx, name)
	if err != nil {
		return "", err
	}
	all := conditions(claim, "Launched", "Registered", "Initialized", "Ready", "Consolidatable", "DisruptionReason")
	if err := c.change(ctx, claim, map[string]any{"status": map[string]any{"conditions": all}}); err != nil {
		return "", err
	}
	return n.Name, c.taint(ctx, n)
}

// BeginTermination is BeginDisruption, and the deletion of the NodeClaim. Its finalizer stays.
func (c *Controller) BeginTermination(ctx context.Context, name string) error {
	if _, err := c.BeginDisruption(ctx, name); err != nil {
		return err
	}
	claim, err := c.get(ctx, coreGroup, "NodeClaim", name)
	if err != nil {
		return err
	}
	return c.Kube.Delete(ctx, claim)
}

// taint keeps pods off a Node.
func (c *Controller) taint(ctx context.Context, node *corev1.Node) error {
	raw := fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"effect":"NoSchedule"}]}}`, disrupted)
	if err := c.Kube.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(raw))); err != nil {
		return fmt.Errorf("taint Node %s: %w", node.Name, err)
	}
	return nil
}

// drain taints a Node, and deletes its pods.
func (c *Controller) drain(ctx context.Context, node *corev1.Node) error {
	if err := c.taint(ctx, node); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := c.Kube.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		return fmt.Errorf("list the pods of Node %s: %w", node.Name, err)
	}
	for i := range pods.Items {
		if err := client.IgnoreNotFound(c.Kube.Delete(ctx, &pods.Items[i])); err != nil {
			return fmt.Errorf("delete pod %s of Node %s: %w", pods.Items[i].Name, node.Name, err)
		}
	}
	return nil
}

// release removes the finalizer from a deleted object, which must be gone then.
func (c *Controller) release(ctx context.Context, o client.Object) error {
	key := client.ObjectKeyFromObject(o)
	for {
		if err := c.Kube.Get(ctx, key, o); err != nil {
			return client.IgnoreNotFound(err)
		}
		if !controllerutil.RemoveFinalizer(o, termination) {
			return fmt.Errorf("%T %s has finalizers %v: %w", o, key.Name, o.GetFinalizers(), ErrNotYet)
		}
		if err := c.Kube.Update(ctx, o); err != nil && !apierrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
	}
}
