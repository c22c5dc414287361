package breaker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
)

// judgedPerImage is how many claims of an image are judged, the newest: more than count. Those in their soak are judged in any case.
const judgedPerImage = 40

// soaks judges the nodes of pools.
type soaks struct {
	client client.Reader
	// faults are the conditions of nodes that repair would act on.
	faults *repair.Policies
}

// soakView is what the soaks of a pool's nodes have shown.
type soakView struct {
	verdicts []breaker.Verdict
	// health is what the nodes of these claims show; old claims are taken to be healthy.
	health map[types.UID]breaker.Health
	// rollout is true if the pool has nodes that it would launch differently now.
	rollout bool
}

// read judges the claims of a pool that were launched with what pool and class are now.
func (s soaks) read(ctx context.Context, pool *karpv1.NodePool, class *awsv1.EC2NodeClass, claims []*karpv1.NodeClaim, now time.Time) (soakView, error) {
	out := soakView{health: map[types.UID]breaker.Health{}}
	perImage := map[string]int{}
	for _, c := range slices.SortedStableFunc(slices.Values(claims), func(a, b *karpv1.NodeClaim) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}) {
		if !current(c, pool, class) {
			out.rollout = out.rollout || c.DeletionTimestamp == nil
			continue
		}
		image := c.Status.ImageID
		if perImage[image]++; perImage[image] > judgedPerImage && now.Sub(c.CreationTimestamp.Time) > breaker.InitializeWithin+2*breaker.Soak {
			continue
		}
		if condition.IsTrue(c, karpv1.ConditionInitialized) {
			health, err := s.health(ctx, c, now)
			if err != nil {
				return soakView{}, err
			}
			out.health[c.UID] = health
		}
		out.verdicts = append(out.verdicts, breaker.Judge(c, out.health[c.UID], now))
	}
	return out, nil
}

// current reports whether a claim was launched with what its pool and class are now.
func current(claim *karpv1.NodeClaim, pool *karpv1.NodePool, class *awsv1.EC2NodeClass) bool {
	same := func(of, is map[string]string, key string) bool { return of[key] == "" || of[key] == is[key] }
	images := images(class)
	return !condition.IsTrue(claim, karpv1.ConditionDrifted) &&
		same(claim.Annotations, pool.Annotations, karpv1.AnnotationNodePoolHash) &&
		same(claim.Annotations, class.Annotations, awsv1.AnnotationNodeClassHash) &&
		(claim.Status.ImageID == "" || len(images) == 0 || slices.Contains(images, claim.Status.ImageID))
}

// health reads the Node of a claim.
func (s soaks) health(ctx context.Context, claim *karpv1.NodeClaim, now time.Time) (breaker.Health, error) {
	nodes, err := cluster.SharedNodesOf(ctx, s.client, claim.Status.ProviderID)
	if err != nil {
		return breaker.Health{}, fmt.Errorf("read the node of node claim %q: %w", claim.Name, err)
	}
	if len(nodes) == 0 {
		return breaker.Health{Gone: true, Fault: "its Node is gone", Since: now}, nil
	}
	return healthOf(&nodes[0], s.faults), nil
}

// healthOf is what a node's conditions show: the earliest fault, else since when the node is ready. A condition that repair covers counts at
// once, not after its toleration: a node that is due in half an hour is no success.
func healthOf(node *corev1.Node, faults *repair.Policies) breaker.Health {
	h := breaker.Health{}
	add := func(c corev1.NodeCondition) {
		if h.Fault != "" && !c.LastTransitionTime.Time.Before(h.Since) {
			return
		}
		h.Fault, h.Since = fmt.Sprintf("%s is %s", c.Type, c.Status), c.LastTransitionTime.Time
		if c.Reason != "" {
			h.Fault += " (" + c.Reason + ")"
		}
	}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = c
		}
	}
	if ready.Status != corev1.ConditionTrue {
		add(ready)
	}
	if faults != nil {
		for _, f := range faults.Faults(node) {
			add(f.Condition)
		}
	}
	if h.Fault == "" {
		h.Since = ready.LastTransitionTime.Time
	}
	return h
}
