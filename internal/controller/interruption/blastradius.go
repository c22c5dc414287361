package interruption

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controller/blastradius"
)

// limit ignores failed status checks in a NodePool or zone in which too many instances fail them: a fault of the zone
// or of the image would affect the replacements, too, and the pods of an instance with failed checks are not drained.
// Changes that EC2 has scheduled stay, since pods can move before them. Claims with nothing left are omitted.
func (s *Status) limit(ctx context.Context, affected []affectedClaim) ([]affectedClaim, error) {
	if !slices.ContainsFunc(affected, func(p affectedClaim) bool { return p.ailment.Failing }) {
		return affected, nil
	}
	counts, err := s.counts(ctx, affected)
	if err != nil {
		return nil, err
	}
	var out []affectedClaim
	blocked := map[blastradius.Scope][]string{}
	for _, p := range affected {
		if scope, isBlocked := blockedIn(counts, p.claim); isBlocked {
			kinds := slices.DeleteFunc(slices.Clone(p.ailment.Kinds), failedCheck)
			if len(kinds) < len(p.ailment.Kinds) {
				s.recordBlocked(ctx, p.claim, scope, counts[scope])
				blocked[scope] = append(blocked[scope], p.claim.Name)
			}
			p.ailment.Kinds = kinds
		}
		if len(p.ailment.Kinds) > 0 {
			out = append(out, p)
		}
	}
	for scope, names := range blocked {
		s.Log.Warn("instances fail their status checks and are not terminated, too many others fail theirs",
			"NodePool", scope.NodePool, "zone", scope.Zone, "failing", counts[scope].Unhealthy, "nodeclaims", counts[scope].Total, "names", names)
	}
	return out, nil
}

// failedCheck reports whether a kind of interruption deletes the claim without draining its pods.
func failedCheck(kind cloudprovider.InterruptionKind) bool {
	r, _ := ruleOf(kind)
	return r.forceful
}

// blockedIn returns the first scope of a claim in which too many instances fail their status checks.
func blockedIn(counts map[blastradius.Scope]blastradius.Count, claim *karpv1.NodeClaim) (blastradius.Scope, bool) {
	for _, scope := range scopesOf(claim) {
		if counts[scope].Blocked() {
			return scope, true
		}
	}
	return blastradius.Scope{}, false
}

func scopesOf(claim *karpv1.NodeClaim) []blastradius.Scope {
	return slices.Compact([]blastradius.Scope{blastradius.PoolOf(claim), blastradius.ZoneOf(claim)})
}

// counts counts the claims with an instance by NodePool and by zone. Checks that have only begun to fail count, since
// of many that fail together some show first.
func (s *Status) counts(ctx context.Context, affected []affectedClaim) (map[blastradius.Scope]blastradius.Count, error) {
	failing := map[string]bool{}
	for _, p := range affected {
		failing[p.claim.Name] = failing[p.claim.Name] || p.ailment.Failing
	}
	var claims karpv1.NodeClaimList
	if err := s.Actor.Client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	counts := map[blastradius.Scope]blastradius.Count{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Status.ProviderID == "" || !awsv1.IsEC2NodeClass(claim.Spec.NodeClassRef) {
			continue
		}
		scopes := scopesOf(claim)
		if !slices.Contains(scopes, blastradius.Scope{}) {
			scopes = append(scopes, blastradius.Scope{}) // the cluster, for claims without NodePool or zone
		}
		for _, scope := range scopes {
			count := counts[scope]
			count.Total++
			if failing[claim.Name] {
				count.Unhealthy++
			}
			counts[scope] = count
		}
	}
	return counts, nil
}

// recordBlocked publishes on claim, Node and NodePool that the instance is not terminated.
func (s *Status) recordBlocked(ctx context.Context, claim *karpv1.NodeClaim, scope blastradius.Scope, count blastradius.Count) {
	nodes, err := cluster.NodesOf(ctx, s.Actor.Client, claim.Status.ProviderID)
	if err != nil {
		s.Log.Debug("reading the Node of a claim for an event", "NodeClaim", claim.Name, "error", err)
	}
	objects := eventObjects(claim, nodes)
	pool := &karpv1.NodePool{}
	if s.Actor.Client.Get(ctx, client.ObjectKey{Name: claim.Labels[karpv1.LabelNodePool]}, pool) == nil {
		objects = append(objects, pool)
	}
	for _, o := range objects {
		s.Actor.Events.WarnEvery(eventInterval, o, blastradius.EventBlocked,
			"%s instances in the %s fail their EC2 status checks, more than %d%%: none of them is terminated. "+
				"Check the AWS Health Dashboard and what their image "+
				"and subnets have in common; delete a NodeClaim to replace its node all the same", count, scope.Kind(), blastradius.UnhealthyPercent)
	}
}
