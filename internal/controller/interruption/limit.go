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

// limit takes failed status checks from patients of a NodePool or zone in which too many instances fail them: a fault of the zone
// or of the image would only move on to the replacements, and nobody waits for the pods of an instance that fails its checks. What
// EC2 has scheduled stays, since pods move in time before that. Patients with nothing left are left out.
func (s *Status) limit(ctx context.Context, patients []patient) ([]patient, error) {
	if !slices.ContainsFunc(patients, func(p patient) bool { return p.ailment.Failing }) {
		return patients, nil
	}
	counts, err := s.counts(ctx, patients)
	if err != nil {
		return nil, err
	}
	var out []patient
	held := map[blastradius.Scope][]string{}
	for _, p := range patients {
		if scope, blocked := blockedIn(counts, p.claim); blocked {
			kinds := slices.DeleteFunc(slices.Clone(p.ailment.Kinds), failedCheck)
			if len(kinds) < len(p.ailment.Kinds) {
				s.hold(ctx, p.claim, scope, counts[scope])
				held[scope] = append(held[scope], p.claim.Name)
			}
			p.ailment.Kinds = kinds
		}
		if len(p.ailment.Kinds) > 0 {
			out = append(out, p)
		}
	}
	for scope, names := range held {
		s.Log.Warn("instances fail their status checks and are not terminated, too many others fail theirs",
			"NodePool", scope.NodePool, "zone", scope.Zone, "failing", counts[scope].Unhealthy, "nodeclaims", counts[scope].Total, "names", names)
	}
	return out, nil
}

// failedCheck reports whether a kind of interruption is one that nobody waits for pods at.
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

// counts counts the claims with an instance by NodePool and by zone. Checks that have only begun to fail count: of many that fail
// together, some show first.
func (s *Status) counts(ctx context.Context, patients []patient) (map[blastradius.Scope]blastradius.Count, error) {
	failing := map[string]bool{}
	for _, p := range patients {
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

// hold records on claim, Node and NodePool that the instance stays.
func (s *Status) hold(ctx context.Context, claim *karpv1.NodeClaim, scope blastradius.Scope, count blastradius.Count) {
	nodes, err := cluster.NodesOf(ctx, s.Actor.Client, claim.Status.ProviderID)
	if err != nil {
		s.Log.Debug("reading the Node of a claim for an event", "NodeClaim", claim.Name, "error", err)
	}
	objects := about(claim, nodes)
	pool := &karpv1.NodePool{}
	if s.Actor.Client.Get(ctx, client.ObjectKey{Name: claim.Labels[karpv1.LabelNodePool]}, pool) == nil {
		objects = append(objects, pool)
	}
	for _, o := range objects {
		s.Actor.Events.WarnEvery(remindEvery, o, blastradius.EventBlocked,
			"%s instances in the %s fail their EC2 status checks, more than %d%%: none of them is terminated. "+
				"Check the AWS Health Dashboard and what their image "+
				"and subnets have in common; delete a NodeClaim to replace its node all the same", count, scope.Kind(), blastradius.UnhealthyPercent)
	}
}
