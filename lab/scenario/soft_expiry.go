package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	// softNodes have reached softLead together, and softBudget of them go at a time. Each takes some 20 s, more where kills interrupt it.
	softNodes, softBudget = 6, 2
	softExpireAfter       = 10 * time.Minute
	softLead              = 9*time.Minute + 30*time.Second
)

// softExpiry replaces nodes of one age within the budget before they expire.
func softExpiry() Scenario {
	s := newDisruptionFixture()
	s.invariants = newInvariants(nodeBudget(softBudget))
	s.pool["EXPIRE_AFTER"], s.pool["BUDGET"] = softExpireAfter.String(), fmt.Sprintf("%q", fmt.Sprint(softBudget))
	steps := append(
		s.setUp(),
		s.fill(softNodes, softNodes, 0),
		Step{
			Name: fmt.Sprintf("annotate the NodePool: each node is replaced for Expired, replacement first, %d at a time, before expireAfter has passed",
				softBudget),
			Timeout: 5 * time.Minute,
			Run:     s.replacedBeforeTheyExpire,
		},
		Step{
			Name: "remove the annotation: no other node goes", Timeout: 2 * time.Minute,
			Run: func(ctx context.Context, w *World) error {
				if err := annotateExpiration(ctx, w, ""); err != nil {
					return err
				}
				return s.awaitHealthy(ctx, w)
			},
		},
		s.tearDown(),
	)
	return Scenario{
		Name: "soft-expiry", Summary: fmt.Sprintf("%d nodes of one age are replaced within the budget before they expire", softNodes), Steps: steps,
	}
}

// replacedBeforeTheyExpire annotates the NodePool, and waits until the first nodes have gone.
func (s *disruptionFixture) replacedBeforeTheyExpire(ctx context.Context, w *World) error {
	begin := time.Now()
	var first karpv1.NodeClaimList
	if err := list(ctx, w, &first); err != nil {
		return err
	}
	if err := annotateExpiration(ctx, w, fmt.Sprintf(`{"mode":"Graceful","lead":"%s","jitter":"0%%"}`, softLead)); err != nil {
		return err
	}
	launchedFor := map[types.UID]string{}
	err := world.Until(ctx, func() error {
		var now karpv1.NodeClaimList
		if err := list(ctx, w, &now); err != nil {
			return err
		}
		there := map[types.UID]bool{}
		for i := range now.Items {
			c := &now.Items[i]
			there[c.UID] = true
			launchedFor[c.UID] = c.Annotations[karpv1.AnnotationLaunchReason]
		}
		for i := range first.Items {
			if c := &first.Items[i]; there[c.UID] {
				return fmt.Errorf("NodeClaim %s still exists", c.Name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range first.Items {
		if expired := first.Items[i].CreationTimestamp.Add(softExpireAfter); time.Now().After(expired) {
			return fmt.Errorf("the last node went after %s, when the first had expired", expired)
		}
	}
	replaced := 0
	for _, reason := range launchedFor {
		if reason == string(karpv1.DisruptionExpired) {
			replaced++
		}
	}
	if replaced < len(first.Items) {
		return fmt.Errorf("%d NodeClaims were launched for Expired, want %d or more", replaced, len(first.Items))
	}
	w.Note("%d nodes were replaced in %.0f s", len(first.Items), time.Since(begin).Seconds())
	return s.awaitHealthy(ctx, w)
}

// annotateExpiration sets the annotation of the NodePool; empty removes it.
func annotateExpiration(ctx context.Context, w *World, value string) error {
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{karpv1.AnnotationExpiration: nil}}}
	if value != "" {
		patch = map[string]any{"metadata": map[string]any{"annotations": map[string]any{karpv1.AnnotationExpiration: value}}}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	pool := &karpv1.NodePool{}
	pool.Name = "default"
	return w.Client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, data))
}
