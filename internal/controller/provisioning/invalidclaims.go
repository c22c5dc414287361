package provisioning

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/panics"
	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maxPlansPerPass limits how often one pass plans: usually once, and again without the pods that cause invalid claims. Pods
// with different mistakes may take a plan each, since the API server may name the second mistake only when the first is
// gone.
const maxPlansPerPass = 3

// invalidClaim is a launch with a NodeClaim that the API server rejected as invalid.
type invalidClaim struct {
	launch *schedule.Launch
	err    error
}

// message explains the rejection to the owners of the pods.
func (r invalidClaim) message(what string) string {
	return fmt.Sprintf("The API server rejects the NodeClaim for the %s as invalid: %s. Correct the node selector, affinity or request "+
		"that the value comes from, or the template of NodePool %q", what, InvalidCauses(r.err), r.launch.Pool.Name)
}

// InvalidCauses lists what the API server rejects in an object: the fields, each with the problem.
func InvalidCauses(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return err.Error()
	}
	const shown = 3
	causes := status.Status().Details.Causes
	var parts []string
	for _, c := range causes[:min(shown, len(causes))] {
		parts = append(parts, strings.TrimPrefix(c.Field+": "+c.Message, ": "))
	}
	text := strings.Join(parts, "; ")
	if rest := len(causes) - shown; rest > 0 {
		text += fmt.Sprintf("; and %d more", rest)
	}
	return text
}

// unitsOf returns the quarantine units of the pods of rejected launches.
func unitsOf(refused []invalidClaim, unitIndex *quarantine.Units) quarantine.Set {
	units := quarantine.Set{}
	for _, r := range refused {
		for _, pod := range r.launch.Pods {
			units[unitIndex.Unit(pod)] = true
		}
	}
	return units
}

// quarantineRefused finds the pods that cause the rejected claims and quarantines them: the same plan would be rejected
// again. It searches with plans for the other pods, and validates their claims by dry-run requests. last is true for
// the last plan of this pass.
func (p *Provisioner) quarantineRefused(ctx context.Context, snap *snapshot.Snapshot, refused []invalidClaim, last bool) {
	unitIndex := quarantine.NewUnits()
	out, _ := p.Quarantine.Excluded(snap, unitIndex, quarantine.Provisioning, quarantine.Refused)
	snap = quarantine.Without(snap, out, unitIndex)
	suspects := unitsOf(refused, unitIndex)
	deadline := p.Now().Add(searchTimeout)
	trial := &dryRunner{p: p, labels: snap.Labels, results: map[string]bool{}}
	accepted := func(out quarantine.Set) bool {
		if ctx.Err() != nil || p.Now().After(deadline) {
			return false
		}
		plan, _, caught := p.planAndValidate(ctx, quarantine.Without(snap, out, unitIndex))
		return caught == nil && trial.accepted(ctx, slices.DeleteFunc(plan.Launches, func(l schedule.Launch) bool {
			return !slices.ContainsFunc(l.Pods, func(pod *corev1.Pod) bool { return suspects[unitIndex.Unit(pod)] })
		}))
	}
	culprits := suspects
	if len(suspects) > 1 {
		switch ok := accepted(nil); {
		case ok && !last:
			return // with the claims created since, the next plan is valid
		case !ok:
			found := quarantine.Search([][]quarantine.Unit{sortedUnits(suspects)}, quarantine.MaxPlans, accepted)
			culprits = found.All()
		}
	}
	for _, r := range refused {
		mine := unitsOf([]invalidClaim{r}, unitIndex)
		maps.DeleteFunc(mine, func(u quarantine.Unit, _ bool) bool { return !culprits[u] })
		maps.DeleteFunc(culprits, func(u quarantine.Unit, _ bool) bool { return mine[u] })
		p.Quarantine.Add(quarantine.Refused, mine, r.message("pod"))
	}
}

// sortedUnits returns the set in a deterministic order.
func sortedUnits(set quarantine.Set) []quarantine.Unit {
	return slices.SortedFunc(maps.Keys(set), func(a, b quarantine.Unit) int {
		return strings.Compare(string(a.Owner)+a.Digest, string(b.Owner)+b.Digest)
	})
}

// dryRunner validates claims by dry-run requests to the API server.
type dryRunner struct {
	p      *Provisioner
	labels requirement.Labels
	// results is whether a claim is valid, by dryRunKey.
	results map[string]bool
}

// accepted reports whether the API server rejects no claim of the launches as invalid. A request that fails for another
// reason counts as valid.
func (t *dryRunner) accepted(ctx context.Context, launches []schedule.Launch) bool {
	unknown := map[string]*karpv1.NodeClaim{}
	for i := range launches {
		claim, err := Claim(&launches[i], t.labels)
		if err != nil {
			continue
		}
		key := dryRunKey(claim)
		if valid, known := t.results[key]; known {
			if !valid {
				return false
			}
			continue
		}
		unknown[key] = claim
	}
	keys := slices.Sorted(maps.Keys(unknown))
	errs := make([]error, len(keys))
	var group errgroup.Group
	group.SetLimit(maxParallelCreates)
	for i, key := range keys {
		group.Go(func() error {
			errs[i] = panics.Error(func() error { return t.p.Client.Create(ctx, unknown[key], client.DryRunAll) })
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	valid := true
	for i, key := range keys {
		t.results[key] = !apierrors.IsInvalid(errs[i])
		valid = valid && t.results[key]
	}
	return valid
}

// dryRunKey identifies a claim by the fields that the API server validates. Claims that differ only in amounts share a
// key.
func dryRunKey(claim *karpv1.NodeClaim) string {
	data, err := json.Marshal([]any{
		claim.GenerateName, claim.Labels, claim.Spec.Requirements, slices.Sorted(maps.Keys(claim.Spec.Resources.Requests)),
	})
	if err != nil {
		return string(claim.UID) // share no result
	}
	return string(data)
}
