package controllertest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// BulkAPI is an API server for tests with thousands of NodeClaims. It finds claims by their instance as fast as a cache.
// It implements only the calls that deleting claims takes; any other call panics. Writes use optimistic locking.
type BulkAPI struct {
	client.Client

	mu     sync.Mutex
	claims map[string]*karpv1.NodeClaim
	byID   map[string]string
	ended  map[string]int
	writes int
	class  *awsv1.EC2NodeClass     // nil if there is none
	nodes  map[string]*corev1.Node // by provider ID
}

// SetNodeClass sets the node class of the claims.
func (c *BulkAPI) SetNodeClass(class *awsv1.EC2NodeClass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.class = class
}

// SetNode adds or replaces a Node.
func (c *BulkAPI) SetNode(node *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes == nil {
		c.nodes = map[string]*corev1.Node{}
	}
	c.nodes[node.Spec.ProviderID] = node
}

// NewBulkAPI returns a server with claims, which must have instances.
func NewBulkAPI(claims []*karpv1.NodeClaim) *BulkAPI {
	c := &BulkAPI{claims: map[string]*karpv1.NodeClaim{}, byID: map[string]string{}, ended: map[string]int{}}
	for _, claim := range claims {
		claim.ResourceVersion = "1"
		c.claims[claim.Name] = claim
		id := claim.Status.ProviderID
		c.byID[id[strings.LastIndexByte(id, '/')+1:]] = claim.Name
	}
	return c
}

// Deleted returns how often each claim was deleted, by name; without those that were not.
func (c *BulkAPI) Deleted() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]int, len(c.ended))
	for name, n := range c.ended {
		out[name] = n
	}
	return out
}

// Get implements client.Reader.
func (c *BulkAPI) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if class, is := o.(*awsv1.EC2NodeClass); is && c.class != nil {
		c.class.DeepCopyInto(class)
		return nil
	}
	claim := c.claims[key.Name]
	if claim == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	claim.DeepCopyInto(o.(*karpv1.NodeClaim))
	return nil
}

// List implements client.Reader.
func (c *BulkAPI) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var options client.ListOptions
	options.ApplyOptions(opts)
	if nodes, is := list.(*corev1.NodeList); is && options.FieldSelector != nil {
		c.listNodes(nodes, options.FieldSelector.Requirements()[0].Value)
		return nil
	}
	claims, ok := list.(*karpv1.NodeClaimList)
	if !ok {
		switch list.(type) {
		case *corev1.NodeList, *corev1.PodList, *karpv1.NodePoolList: // there are none
			return nil
		}
		return fmt.Errorf("this API server has no %T", list)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if options.FieldSelector == nil {
		for _, claim := range c.claims {
			claims.Items = append(claims.Items, *claim)
		}
		return nil
	}
	for _, r := range options.FieldSelector.Requirements() {
		if claim := c.claims[c.byID[r.Value]]; claim != nil {
			claims.Items = append(claims.Items, *claim.DeepCopy())
		}
	}
	return nil
}

func (c *BulkAPI) listNodes(list *corev1.NodeList, providerID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if node := c.nodes[providerID]; node != nil {
		list.Items = append(list.Items, *node.DeepCopy())
	}
}

// Patch implements client.Writer.
func (c *BulkAPI) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	if node, is := o.(*corev1.Node); is {
		c.SetNode(node.DeepCopy())
		return nil
	}
	return c.write(o, func(stored *karpv1.NodeClaim) {
		stored.ObjectMeta = *o.(*karpv1.NodeClaim).ObjectMeta.DeepCopy()
	})
}

// Delete implements client.Writer.
func (c *BulkAPI) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	return c.write(o, func(stored *karpv1.NodeClaim) {
		now := metav1.NewTime(Start)
		stored.DeletionTimestamp = &now
		c.ended[stored.Name]++
	})
}

// write changes a claim if it has the version that the caller read.
func (c *BulkAPI) write(o client.Object, change func(stored *karpv1.NodeClaim)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	stored := c.claims[o.GetName()]
	if stored == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
	}
	if stored.ResourceVersion != o.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), fmt.Errorf("it is at version %s", stored.ResourceVersion))
	}
	c.writes++
	change(stored)
	stored.ResourceVersion = strconv.Itoa(c.writes + 1)
	o.SetResourceVersion(stored.ResourceVersion)
	return nil
}

// Status implements client.StatusClient.
func (c *BulkAPI) Status() client.SubResourceWriter { return bulkStatus{api: c} }

type bulkStatus struct {
	client.SubResourceWriter
	api *BulkAPI
}

// Patch implements client.SubResourceWriter.
func (s bulkStatus) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.api.write(o, func(stored *karpv1.NodeClaim) { o.(*karpv1.NodeClaim).Status.DeepCopyInto(&stored.Status) })
}
