package nodereport

import (
	"fmt"
	"time"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/breaker"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// The Reasons of a node that would go, and waits for something else than its own pods.
const (
	// reasonPaused: nodes of its pool are not replaced, since new ones fail, or since the first new ones have not shown yet that they do
	// not.
	reasonPaused = "DisruptionPaused"
	// reasonWaits: no pass looks for nodes to remove, since many pods get nodes.
	reasonWaits = "ManyPodsWait"
)

// waits is the verdict on a node that would go for a reason, and does not in the next pass; false if it does. replaced is true if other
// nodes are launched for it. because is why it would go.
func (b *builder) waits(reason karpv1.DisruptionReason, replaced bool, because string) (Verdict, bool) {
	if replaced {
		if why := b.paused(reason); why != "" {
			return Verdict{Stays, reasonPaused, fmt.Sprintf("stays for now: %s. It should go: %s", why, because)}, true
		}
	}
	if why := b.manyPending(reason); why != "" {
		return Verdict{Stays, reasonWaits, fmt.Sprintf("stays for now: %s. It should go: %s", why, because)}, true
	}
	return Verdict{}, false
}

// paused returns why nodes of the pool are not replaced for a reason now; empty if they are.
func (b *builder) paused(reason karpv1.DisruptionReason) string {
	if b.pool == nil {
		return ""
	}
	book, fleet := breaker.Read(b.pool), b.fleet()
	return book.Refusal(breaker.Request{
		Pool: b.pool.Name, Class: b.pool.Spec.Template.Spec.NodeClassRef.Name, Reason: reason, Verdicts: fleet.Verdicts,
		Batch: breaker.Batch{Rollout: fleet.Rollout, Size: breaker.DefaultThreshold, Canary: b.policy().Canary()}, Now: b.now(),
	})
}

// policy is how drifted nodes of the pool are replaced.
func (b *builder) policy() karpv1.Rollout {
	classes := map[string]string{}
	if class := b.NodeClasses[b.pool.Spec.Template.Spec.NodeClassRef.Name]; class != nil {
		if text, stated := class.Annotations[karpv1.AnnotationRollout]; stated {
			classes[class.Name] = text
		}
	}
	out, _ := karpv1.RolloutOf(b.pool, classes) // with an error it is the safer reading, and the condition has the error
	return out
}

// kept returns why the node stays although it has expired; empty if it does not.
func (b *builder) kept() string {
	if b.pool == nil {
		return ""
	}
	book := breaker.Read(b.pool)
	if image, fail := book.NewNodesFail(); !fail || image == b.claim.Status.ImageID ||
		book.SoakState(karpv1.DisruptionDrifted, nil, b.now()) != breaker.Open {
		return ""
	}
	return book.SoakMessage(b.pool.Name, b.pool.Spec.Template.Spec.NodeClassRef.Name)
}

// fleet returns what the soaks of the pool's nodes have shown.
func (b *builder) fleet() breaker.Fleet {
	if known, ok := b.fleets[b.pool.Name]; ok {
		return known
	}
	class := b.NodeClasses[b.pool.Spec.Template.Spec.NodeClassRef.Name]
	if class == nil {
		class = &awsv1.EC2NodeClass{}
	}
	var claims []*karpv1.NodeClaim
	for _, c := range b.NodeClaims {
		if c.Labels[karpv1.LabelNodePool] == b.pool.Name {
			claims = append(claims, c)
		}
	}
	health := func(c *karpv1.NodeClaim) (breaker.Health, error) {
		if node := b.Decisions.index().instances[c.Status.ProviderID]; node != nil {
			return breaker.HealthOf(node, nil), nil
		}
		return breaker.NoNode(b.now()), nil
	}
	members := breaker.Members{Pool: b.pool, Class: class, Claims: claims, Health: health}
	if policy := b.policy(); policy.Canary() {
		members.Windows.Soak = policy.Soak.Duration
		// What pods have shown is in the history already.
		members.Canary = &breaker.Canary{Pods: func(*karpv1.NodeClaim) (*breaker.Pods, error) { return nil, nil }}
	}
	out, _ := members.Judge(b.now()) // only health could fail
	b.fleets[b.pool.Name] = out
	return out
}

// manyPending returns why no pass looks for nodes to remove for a reason now; empty if passes do.
func (b *builder) manyPending(reason karpv1.DisruptionReason) string {
	since, manyPending := disrupt.ManyPendingSince(b.Snapshot)
	if !manyPending {
		return ""
	}
	longest, what := disrupt.LongestBurst, "no pass removes nodes"
	if reason == karpv1.DisruptionUnderutilized {
		longest, what = disrupt.LongestPostponement, "no search looks for cheaper nodes"
	}
	until := since.Add(longest)
	if !b.now().Before(until) {
		return ""
	}
	return fmt.Sprintf("%d pods wait for nodes. While %d or more do, %s, until %s at the latest",
		len(b.Snapshot.Pods), disrupt.ManyPending, what, until.UTC().Format(time.RFC3339))
}
