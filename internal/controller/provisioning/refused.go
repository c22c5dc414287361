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

// replans is how often one pass plans: once as a rule, and again without the pods on account of which claims are refused. Two
// pods may be refused for two reasons, of which the API server names the second only when the first is gone.
const replans = 3

// refusal is a launch that the API server finds invalid.
type refusal struct {
	launch *schedule.Launch
	err    error
}

// why says for the people who own what is left out what the API server found.
func (r refusal) why(what string) string {
	return fmt.Sprintf("The API server refuses the NodeClaim for the %s as invalid: %s. Correct the node selector, affinity or request "+
		"that the value comes from, or the template of NodePool %q", what, Invalidity(r.err), r.launch.Pool.Name)
}

// Invalidity is what the API server finds wrong with an object: the fields and what is the matter with each.
func Invalidity(err error) string {
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

// unitsOf are the units of the pods of launches that were refused.
func unitsOf(refused []refusal, census *quarantine.Census) quarantine.Set {
	units := quarantine.Set{}
	for _, r := range refused {
		for _, pod := range r.launch.Pods {
			units[census.Unit(pod)] = true
		}
	}
	return units
}

// blame finds the pods on account of which claims were refused, and has them left out for a while: the same plan would be
// refused again. It plans for all other pods and has the API server try the claims without creating them. last is true if
// nothing is planned after it in this pass.
func (p *Provisioner) blame(ctx context.Context, snap *snapshot.Snapshot, refused []refusal, last bool) {
	census := quarantine.NewCensus()
	out, _ := p.Quarantine.Out(snap, census, quarantine.Provisioning, quarantine.Refused)
	snap = quarantine.Without(snap, out, census)
	suspects := unitsOf(refused, census)
	deadline := p.Now().Add(searching)
	trial := &trial{p: p, labels: snap.Labels, known: map[string]bool{}}
	accepted := func(out quarantine.Set) bool {
		if ctx.Err() != nil || p.Now().After(deadline) {
			return false
		}
		plan, _, caught := p.attempt(ctx, quarantine.Without(snap, out, census))
		return caught == nil && trial.accepted(ctx, slices.DeleteFunc(plan.Launches, func(l schedule.Launch) bool {
			return !slices.ContainsFunc(l.Pods, func(pod *corev1.Pod) bool { return suspects[census.Unit(pod)] })
		}))
	}
	culprits := suspects
	if len(suspects) > 1 {
		switch ok := accepted(nil); {
		case ok && !last:
			return // what was created meanwhile makes for another plan
		case !ok:
			found := quarantine.Search([][]quarantine.Unit{ordered(suspects)}, quarantine.Tests, accepted)
			culprits = found.All()
		}
	}
	for _, r := range refused {
		mine := unitsOf([]refusal{r}, census)
		maps.DeleteFunc(mine, func(u quarantine.Unit, _ bool) bool { return !culprits[u] })
		maps.DeleteFunc(culprits, func(u quarantine.Unit, _ bool) bool { return mine[u] })
		p.Quarantine.Hold(quarantine.Refused, mine, r.why("pod"))
	}
}

// ordered is the set in an order that is the same each time.
func ordered(set quarantine.Set) []quarantine.Unit {
	return slices.SortedFunc(maps.Keys(set), func(a, b quarantine.Unit) int {
		return strings.Compare(string(a.Owner)+a.Digest, string(b.Owner)+b.Digest)
	})
}

// trial has the API server check claims without creating them.
type trial struct {
	p      *Provisioner
	labels requirement.Labels
	// known is what it said, by what matters of a claim.
	known map[string]bool
}

// accepted tells whether no claim of the launches is invalid. A claim that cannot be tried for another reason counts as valid:
// it has not been refused.
func (t *trial) accepted(ctx context.Context, launches []schedule.Launch) bool {
	unknown := map[string]*karpv1.NodeClaim{}
	for i := range launches {
		claim, err := Claim(&launches[i], t.labels)
		if err != nil {
			continue
		}
		key := validated(claim)
		if valid, said := t.known[key]; said {
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
	group.SetLimit(createAtOnce)
	for i, key := range keys {
		group.Go(func() error {
			errs[i] = panics.Error(func() error { return t.p.Client.Create(ctx, unknown[key], client.DryRunAll) })
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	valid := true
	for i, key := range keys {
		t.known[key] = !apierrors.IsInvalid(errs[i])
		valid = valid && t.known[key]
	}
	return valid
}

// validated is what the API server judges of a claim: two that differ in amounts only are judged alike.
func validated(claim *karpv1.NodeClaim) string {
	data, err := json.Marshal([]any{
		claim.GenerateName, claim.Labels, claim.Spec.Requirements, slices.Sorted(maps.Keys(claim.Spec.Resources.Requests)),
	})
	if err != nil {
		return string(claim.UID) // it is tried for itself
	}
	return string(data)
}
