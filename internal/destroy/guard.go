package destroy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// ErrNotProven means that one of the two proofs is missing: nothing was deleted. It passes once the proof is available.
var ErrNotProven = errors.New("not proven to be ours to delete")

// Cloud describes instances.
type Cloud interface {
	// Get returns an instance as the cloud describes it now. The error is cloudprovider.ErrNotFound for one that is gone for good.
	Get(ctx context.Context, providerID string) (cloudprovider.Instance, error)
}

// Guard deletes what is proven to be ours, within the budget.
type Guard struct {
	Client client.Client
	// Live reads from the API server, past the cache.
	Live client.Reader
	// Cloud is nil in a process that knows no cloud: then nothing is proven of instances, and only objects without one are deleted.
	Cloud  Cloud
	Budget *Budget
	// Pods returns the pods on a node that would have to move, from the API server.
	Pods func(ctx context.Context, node string) (int, error)
	// Audit is called after each deletion; it may be nil.
	Audit func(Record)
	Log   *slog.Logger
	Now   func() time.Time
}

// NodeClaim deletes a claim. It returns nil if the claim is gone, being deleted already, or another claim has its name; a conflict if
// why.Unchanged and the claim has changed since it was read; ErrNotProven, or a Paused.
//
// The cause is written to the claim first, so that those who drain its node know it, also after a restart.
func (g *Guard) NodeClaim(ctx context.Context, claim *karpv1.NodeClaim, why Why) error {
	if err := g.MayDelete(ctx, claim, why.Kind); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := g.tryNodeClaim(ctx, claim, why)
		if !apierrors.IsConflict(err) || why.Unchanged || errors.Is(err, errOther) {
			return err
		}
		if attempt == maxAttempts {
			return fmt.Errorf("delete node claim %q: it changed %d times while it was read: %s", claim.Name, attempt, err.Error())
		}
	}
}

// maxAttempts limits how often a deletion is tried against other writers of the object.
const maxAttempts = 5

// MayDelete returns why a claim cannot be deleted now by what is in memory: deletions are paused. Those who find a thousand claims to
// delete must not call the API server and EC2 for each, again and again, while nothing is deleted. Planned deletions depend on the pods of
// the node, which only NodeClaim reads.
func (g *Guard) MayDelete(ctx context.Context, claim *karpv1.NodeClaim, kind Kind) error {
	if !kind.Limited() || kind == Planned || capacityOf(claim) == (Size{}) {
		return nil
	}
	return g.Budget.Paused(ctx, claim.Labels[karpv1.LabelNodePool])
}

// tryNodeClaim is one attempt of NodeClaim. The budget counts the first one only.
func (g *Guard) tryNodeClaim(ctx context.Context, claim *karpv1.NodeClaim, why Why) error {
	live := &karpv1.NodeClaim{}
	switch err := g.Live.Get(ctx, client.ObjectKeyFromObject(claim), live); {
	case apierrors.IsNotFound(err):
		return err
	case err != nil:
		return fmt.Errorf("read node claim %q before its deletion: %w", claim.Name, err)
	case live.UID != claim.UID:
		return changed(claim.Name, errOther)
	case why.Unchanged && live.ResourceVersion != claim.ResourceVersion:
		return changed(claim.Name, errChanged)
	case live.DeletionTimestamp != nil:
		if why.Kind == Interrupted && WhyOf(live).Limited() { // a pause must not hold up this drain any more
			return g.writeCause(ctx, live, why)
		}
		return nil
	}
	charged, err := g.charge(ctx, live, &why)
	if err != nil {
		return err
	}
	instance, err := g.instanceOf(ctx, live, why.Kind)
	if err != nil {
		return err
	}
	if err := g.Budget.take(ctx, charged); err != nil {
		return err
	}
	if err := g.writeCause(ctx, live, why); err != nil {
		return err
	}
	if err := g.Client.Delete(ctx, live, preconditions(live)); err != nil {
		return err
	}
	g.record(Record{
		Verb: DeleteNodeClaim, NodePool: live.Labels[karpv1.LabelNodePool], Object: objectOf("NodeClaim", live), Instance: instance,
	}, why)
	return nil
}

// writeCause states on a claim why it is deleted.
func (g *Guard) writeCause(ctx context.Context, live *karpv1.NodeClaim, why Why) error {
	before := live.DeepCopy()
	if err := live.SetDeletionCause(why.cause()); err != nil {
		return err
	}
	if before.Annotations[karpv1.AnnotationDeletionCause] == live.Annotations[karpv1.AnnotationDeletionCause] {
		return nil
	}
	return g.Client.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

var (
	errOther   = errors.New("another object has its name")
	errChanged = errors.New("it has changed since the deletion was decided")
)

// changed is the conflict of a claim that is not the one that the caller has read.
func changed(name string, why error) error {
	return errors.Join(apierrors.NewConflict(schema.GroupResource{Group: karpv1.Group, Resource: "nodeclaims"}, name, why), why)
}

// charge is what the budget counts for a claim. A node without a pod that would have to move holds nothing that anybody would lose: it
// counts for nothing, which why then states. The error is a Paused if deletions are paused, before EC2 is called.
func (g *Guard) charge(ctx context.Context, claim *karpv1.NodeClaim, why *Why) (charge, error) {
	size := capacityOf(claim)
	why.Empty = false
	if why.Kind == Planned && size != (Size{}) && g.Pods != nil {
		pods, err := g.Pods(ctx, claim.Status.NodeName)
		if err != nil {
			return charge{}, fmt.Errorf("read the pods of node %q before its deletion: %w", claim.Status.NodeName, err)
		}
		if why.Empty = pods == 0; why.Empty {
			size = Size{}
		}
	}
	pool := claim.Labels[karpv1.LabelNodePool]
	if why.Kind.Limited() && size != (Size{}) {
		if err := g.Budget.Paused(ctx, pool); err != nil {
			return charge{}, err
		}
	}
	return charge{pool: pool, kind: why.Kind, size: size, patient: why.Patient, id: string(claim.UID)}, nil
}

// preconditions are that the object is the one that was read, and has not changed.
func preconditions(o client.Object) client.Preconditions {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}

// capacityOf is what the cluster loses with a claim: nothing before its node has registered.
func capacityOf(claim *karpv1.NodeClaim) Size {
	if claim.Status.NodeName == "" {
		return Size{}
	}
	return Size{1, claim.Status.Capacity.Cpu().MilliValue(), claim.Status.Capacity.Memory().Value()}
}

// undescribed is the state of an instance that EC2 does not describe now.
const undescribed = "not described"

// describeTimeout is how long a deletion waits for EC2, which answers within a second.
const describeTimeout = 5 * time.Second

// instanceOf is EC2's proof for the instance of a claim: it is gone, or has our identity and was launched for the claim. A claim without
// a provider ID has none yet. While EC2 does not answer, an interruption that it has announced and what a person deletes need no
// description: the drain goes on, and the instance itself is terminated only with a description.
func (g *Guard) instanceOf(ctx context.Context, claim *karpv1.NodeClaim, kind Kind) (Instance, error) {
	id := claim.Status.ProviderID
	if id == "" {
		return Instance{}, nil
	}
	if g.Cloud == nil {
		return Instance{}, fmt.Errorf("instance of node claim %q: %w", claim.Name, ErrNotProven)
	}
	limited, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	i, err := g.Cloud.Get(limited, id)
	if errors.Is(err, cloudprovider.ErrNotFound) {
		return Instance{ProviderID: id, State: "gone"}, nil
	}
	if err != nil && !kind.Limited() && ctx.Err() == nil {
		return Instance{ProviderID: id, State: undescribed}, nil
	}
	if err != nil {
		return Instance{}, fmt.Errorf("describe the instance of node claim %q before its deletion: %w", claim.Name, err)
	}
	if i.Owner != cloudprovider.Ours && i.Owner != cloudprovider.Adoptable {
		return Instance{}, fmt.Errorf("instance %s of node claim %q is %s by its tags: %w", i.ID, claim.Name, i.Owner, ErrNotProven)
	}
	if err := launchedFor(i, string(claim.UID), claim.Name); err != nil {
		return Instance{}, err
	}
	return Instance{id, string(i.State), string(i.Owner), i.NodeClaimUID}, nil
}

// launchedFor returns nil if the tags of an instance allow that it was launched for a claim. A claim that was restored from a backup has
// another UID and its old name, which no other claim can have at the same time. An instance of a batch launch has neither tag before its
// node has joined.
func launchedFor(i cloudprovider.Instance, uid, name string) error {
	if i.NodeClaimUID == uid || i.NodeClaim == name || i.NodeClaimUID == "" && i.NodeClaim == "" {
		return nil
	}
	return fmt.Errorf("instance %s was launched for node claim %q with UID %s, not for %q with UID %s: %w",
		i.ID, i.NodeClaim, i.NodeClaimUID, name, uid, ErrNotProven)
}

// record audits a deletion.
func (g *Guard) record(r Record, why Why) {
	r.At, r.Kind, r.Reason, r.Decision = g.Now().UTC(), why.Kind, why.Reason, why.Decision
	g.Log.Info("deletion", "audit", r)
	if g.Audit != nil {
		g.Audit(r)
	}
}

func objectOf(kind string, o client.Object) Object {
	return Object{kind, o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()}
}

// Node deletes a Node once its claim is being deleted, or its instance is terminated. It returns nil if the Node is gone or being deleted.
func (g *Guard) Node(ctx context.Context, node *corev1.Node, why Why) error {
	live := &corev1.Node{}
	if err := g.Live.Get(ctx, client.ObjectKeyFromObject(node), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	if live.UID != node.UID || live.Spec.ProviderID != node.Spec.ProviderID || live.DeletionTimestamp != nil {
		return nil
	}
	uid := live.UID
	if err := g.Client.Delete(ctx, live, client.Preconditions{UID: &uid}); err != nil { // the kubelet writes its status all the time
		return client.IgnoreNotFound(err)
	}
	g.record(Record{
		Verb: DeleteNode, NodePool: live.Labels[karpv1.LabelNodePool], Object: objectOf("Node", live),
		Instance: Instance{ProviderID: live.Spec.ProviderID},
	}, why)
	return nil
}

// MayDrain returns why the node of a claim may not be drained now: deletions are paused, and the claim was deleted by this controller for a
// reason with a limit. It is nil if it may, and for an instance that is shutting down already. The claim may be nil.
func (g *Guard) MayDrain(ctx context.Context, claim *karpv1.NodeClaim) error {
	if claim == nil || capacityOf(claim) == (Size{}) || !WhyOf(claim).Limited() ||
		condition.IsTrue(claim, karpv1.ConditionInstanceTerminating) {
		return nil
	}
	return g.Budget.Paused(ctx, claim.Labels[karpv1.LabelNodePool])
}

// Evict calls the eviction API for a pod, which refuses while a PodDisruptionBudget does not allow it. The pod must be as the caller has
// read it: one that has become protected since is not evicted.
func (g *Guard) Evict(ctx context.Context, pod *corev1.Pod, why Why) error {
	uid, version := pod.UID, pod.ResourceVersion
	err := g.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}},
	})
	if err != nil {
		return err
	}
	g.record(Record{Verb: EvictPod, NodePool: why.Pool, Object: objectOf("Pod", pod)}, why)
	return nil
}

// Pod deletes a pod at its node's deadline, with a grace period in seconds, despite PodDisruptionBudgets.
func (g *Guard) Pod(ctx context.Context, pod *corev1.Pod, seconds int64, why Why) error {
	uid := pod.UID
	if err := g.Client.Delete(ctx, pod, client.GracePeriodSeconds(seconds), client.Preconditions{UID: &uid}); err != nil {
		return err
	}
	g.record(Record{Verb: DeletePod, NodePool: why.Pool, Object: objectOf("Pod", pod)}, why)
	return nil
}
