package breaker

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
)

// soaks judges the nodes of pools.
type soaks struct {
	client client.Reader
	rules  Rules
}

// members are what is judged of a pool.
type members struct {
	pool   *karpv1.NodePool
	class  *awsv1.EC2NodeClass
	claims []*karpv1.NodeClaim
	book   *breaker.History
}

// policy returns how drifted nodes of the pool are replaced. With an error it is the safer reading of what the annotation states.
func (s soaks) policy(ctx context.Context, m members) (karpv1.Rollout, error) {
	classes := map[string]string{}
	add := func(class *awsv1.EC2NodeClass) {
		if text, stated := class.Annotations[karpv1.AnnotationRollout]; stated {
			classes[class.Name] = text
		}
	}
	add(m.class)
	seen := map[string]bool{m.class.Name: true}
	for _, c := range m.claims {
		name := c.Spec.NodeClassRef.Name
		if seen[name] || c.DeletionTimestamp != nil || !awsv1.IsEC2NodeClass(c.Spec.NodeClassRef) {
			continue
		}
		seen[name] = true
		other := &awsv1.EC2NodeClass{}
		if err := s.client.Get(ctx, client.ObjectKey{Name: name}, other); client.IgnoreNotFound(err) != nil {
			return karpv1.CanaryDefaults(), err
		}
		add(other)
	}
	return karpv1.RolloutOf(m.pool, classes)
}

// windows are those of a roll-out by the policy.
func (r Rules) windows(policy karpv1.Rollout) breaker.Windows {
	out := r.Windows
	if policy.Canary() {
		out.Soak, out.Early = r.Pace.Of(policy.Soak.Duration), true
	}
	return out
}

// read judges the claims of a pool that were launched with what pool and class are now.
func (s soaks) read(ctx context.Context, m members, policy karpv1.Rollout, now time.Time) (breaker.Fleet, error) {
	health := func(claim *karpv1.NodeClaim) (breaker.Health, error) {
		nodes, err := cluster.SharedNodesOf(ctx, s.client, claim.Status.ProviderID)
		if err != nil {
			return breaker.Health{}, fmt.Errorf("read the node of node claim %q: %w", claim.Name, err)
		}
		if len(nodes) == 0 {
			return breaker.NoNode(now), nil
		}
		return breaker.HealthOf(&nodes[0], s.rules.Faults), nil
	}
	all := breaker.Members{Pool: m.pool, Class: m.class, Claims: m.claims, Health: health, Windows: s.rules.windows(policy)}
	if policy.Canary() {
		all.Canary = &breaker.Canary{Failed: m.book.FailedClaims(), Recheck: s.rules.Pace.Of(breaker.CanaryRecheck)}
		all.Canary.Pods = func(claim *karpv1.NodeClaim) (*breaker.Pods, error) { return s.pods(ctx, claim) }
	}
	return all.Judge(now)
}

// pods reads the Node of a claim and the pods on it; nil for no Node.
func (s soaks) pods(ctx context.Context, claim *karpv1.NodeClaim) (*breaker.Pods, error) {
	nodes, err := cluster.SharedNodesOf(ctx, s.client, claim.Status.ProviderID)
	if err != nil || len(nodes) == 0 {
		return nil, err
	}
	pods, err := cluster.SharedPodsOn(ctx, s.client, nodes[0].Name)
	if err != nil {
		return nil, fmt.Errorf("read the pods of node %q: %w", nodes[0].Name, err)
	}
	return &breaker.Pods{Node: &nodes[0], Pods: pods}, nil
}
