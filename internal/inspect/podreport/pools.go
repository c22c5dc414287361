package podreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/wording"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

// Codes of pools that launch nothing, whatever the pod requires.
const (
	codeDeleting = "Deleting"
	codeStatic   = "Static"
	codeNotReady = "NotReady"
)

// closedPools are the pools that launch nothing now, each with why, in the order in which plans try pools.
//
// A pool of manifests has no conditions, and is taken as ready. One of an API server has a creation time.
func closedPools(view *inspect.View) []PoolReason {
	var out []PoolReason
	for _, pool := range byWeight(view.NodePools) {
		ref := pool.Spec.Template.Spec.NodeClassRef
		why := PoolReason{NodePool: pool.Name}
		switch {
		case pool.DeletionTimestamp != nil:
			why.Code, why.bare = codeDeleting, wording.Clause{Subject: wording.It, Text: "is being deleted, and launches nothing"}
		case pool.Spec.Replicas != nil:
			why.Code, why.bare = codeStatic, clause(wording.Field, "spec.replicas keeps %d nodes, whatever pods need", *pool.Spec.Replicas)
		case live(pool) && awsv1.IsEC2NodeClass(ref) && view.NodeClasses[ref.Name] == nil:
			why.Code, why.bare = codeNotReady, clause(wording.Its, "EC2NodeClass %s does not exist", ref.Name)
		case live(pool):
			if why.bare = notReady(view, pool); why.bare.Text == "" {
				continue
			}
			why.Code = codeNotReady
		default:
			continue
		}
		why.Message = why.bare.String()
		why.short = why.Message
		out = append(out, why)
	}
	return out
}

func clause(s wording.Subject, format string, args ...any) wording.Clause {
	return wording.Clause{Subject: s, Text: fmt.Sprintf(format, args...)}
}

// live reports whether an object comes from an API server, where a controller sets its conditions.
func live(o metav1.Object) bool { return !o.GetCreationTimestamp().Time.IsZero() }

// notReady returns why a pool is not Ready; the zero Clause if it is. The class's conditions come first: the pool's repeat them, with
// fewer words.
func notReady(view *inspect.View, pool *karpv1.NodePool) wording.Clause {
	if condition.IsTrue(pool, condition.Ready) {
		return wording.Clause{}
	}
	if class := view.NodeClasses[pool.Spec.Template.Spec.NodeClassRef.Name]; class != nil {
		if why := unmet(class); why != "" {
			return clause(wording.Its, "EC2NodeClass %s is not ready: %s", class.Name, why)
		}
	}
	return clause(wording.It, "is not Ready: %s", cmp.Or(unmet(pool), "no controller has set its conditions yet"))
}

// unmet is the message of the condition that keeps an object from being Ready: one that is False, else one that is
// Unknown, and a dependent before the root, which repeats it.
func unmet(o condition.Object) string {
	conditions := o.GetConditions()
	types := o.ConditionTypes()
	var best *metav1.Condition
	for i := range conditions {
		c := &conditions[i]
		decides := c.Type == condition.Ready || slices.Contains(slices.Concat(types.Dependents, types.Optional, types.Vetoes), c.Type)
		if c.Status == metav1.ConditionTrue || !decides || slices.Contains(types.Vetoes, c.Type) && c.Status != metav1.ConditionFalse {
			continue
		}
		if best == nil || severity(c) > severity(best) {
			best = c
		}
	}
	if best == nil {
		return ""
	}
	out := best.Type + " is " + string(best.Status)
	if best.Reason != "" {
		out += " (" + best.Reason + ")"
	}
	return out + prefixed(", ", strings.TrimSuffix(best.Message, "."))
}

// severity orders conditions by how much they explain.
func severity(c *metav1.Condition) int {
	out := 0
	if c.Status == metav1.ConditionFalse {
		out += 2
	}
	if c.Type != condition.Ready {
		out++
	}
	return out
}

// byWeight are pools in the order in which plans try them.
func byWeight(pools []*karpv1.NodePool) []*karpv1.NodePool {
	weight := func(p *karpv1.NodePool) int32 {
		if p.Spec.Weight == nil {
			return 0
		}
		return *p.Spec.Weight
	}
	return slices.SortedStableFunc(slices.Values(pools), func(a, b *karpv1.NodePool) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.Name, b.Name))
	})
}

// withoutPools is the snapshot with some pools closed.
func withoutPools(s *snapshot.Snapshot, closed []PoolReason) *snapshot.Snapshot {
	out := *s
	out.Pools, out.Closed = nil, slices.Clone(s.Closed)
	for i := range s.Pools {
		if slices.ContainsFunc(closed, func(r PoolReason) bool { return r.NodePool == s.Pools[i].NodePool.Name }) {
			out.Closed = append(out.Closed, s.Pools[i].NodePool)
			continue
		}
		out.Pools = append(out.Pools, s.Pools[i])
	}
	return &out
}

// classLabel marks nodes of a node class.
func classLabel(ref karpv1.NodeClassReference) [2]string {
	return [2]string{ref.Group + "/" + strings.ToLower(ref.Kind), ref.Name}
}
