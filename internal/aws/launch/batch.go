package launch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/internal/aws/batch"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Annotate sets the annotation karpv1.AnnotationLaunch of a NodeClaim; empty removes it. It fails unless the NodeClaim
// is unchanged since the launch began.
type Annotate func(ctx context.Context, mark string) error

// batchMember is a NodeClaim that waits for a batch launch.
type batchMember struct {
	// ctx is the caller's. A member with a canceled context is not launched.
	ctx      context.Context
	request  Request
	fleet    fleet
	plan     plan
	annotate Annotate
	// slot is that of a NodeClaim with a batch launch that is resumed.
	slot cloudprovider.BatchSlot
}

func (m *batchMember) uid() string { return string(m.request.Claim.UID) }

// LaunchInBatch launches an instance for the NodeClaim in one call with other NodeClaims that need the same at about
// the same time. It must follow an Adopt that found none. The NodeClaim must have the annotation Unlaunched or a batch
// slot: only then it is certain that no call was made before. Errors are those of package cloudprovider, or of
// annotate.
func (l *Launcher) LaunchInBatch(ctx context.Context, o Request, annotate Annotate) (cloudprovider.Instance, error) {
	m, key, err := l.member(ctx, o, annotate)
	if err != nil {
		return cloudprovider.Instance{}, err
	}
	return l.batcher.Do(ctx, key, m) // from here on the batch launch settles the choice
}

// member plans what to launch for a NodeClaim, and returns a key that is equal for those that need the same. The batch launch settles the
// choice of the plan.
func (l *Launcher) member(ctx context.Context, o Request, annotate Annotate) (*batchMember, string, error) {
	p, err := l.plan(o)
	if err != nil {
		return nil, "", err
	}
	m, key := &batchMember{ctx: ctx, request: o, plan: p, annotate: annotate}, ""
	if m.fleet, err = l.fleet(ctx, o, p); err == nil {
		key, err = m.fleet.key()
	}
	if err != nil {
		p.choice.Settle("")
		return nil, "", err
	}
	return m, key, nil
}

// key is equal for fleets that request the same.
func (f fleet) key() (string, error) {
	content, err := json.Marshal(f.input())
	if err != nil {
		return "", fmt.Errorf("compare fleets: %w", err)
	}
	sum := sha256.Sum256(content)
	return string(sum[:]), nil
}

type launchResult = batch.Result[cloudprovider.Instance]

// launchBatch launches instances for NodeClaims that need the same.
func (l *Launcher) launchBatch(ctx context.Context, _ string, members []*batchMember) []launchResult {
	out := make([]launchResult, len(members))
	if len(members) == 1 {
		out[0].Value, out[0].Err = l.launchSingle(ctx, members[0])
		return out
	}
	numbers := map[string]int{}
	for n, m := range members {
		numbers[m.uid()] = n
		defer m.plan.choice.Settle("") // no effect for members that get an instance, see below
	}
	e := l.annotateAll(ctx, members)
	for n, m := range members {
		out[n].Err = e.failed[m.uid()]
	}
	if len(e.members) == 0 {
		return out
	}
	j := l.newBatchLaunch(e)
	l.settle(ctx, j)
	for _, m := range e.members {
		r := &out[numbers[m.uid()]]
		if r.Value, _, r.Err = j.outcome(m.uid()); r.Err == nil {
			m.plan.choice.Settle(r.Value.SubnetID)
		}
	}
	return out
}

// launchSingle launches an instance for a NodeClaim that is alone in its batch.
func (l *Launcher) launchSingle(ctx context.Context, m *batchMember) (cloudprovider.Instance, error) {
	m.plan.choice.Settle("") // Launch makes its own choice
	if err := m.ctx.Err(); err != nil {
		return cloudprovider.Instance{}, err
	}
	if err := m.annotate(ctx, ""); err != nil {
		return cloudprovider.Instance{}, err
	}
	l.single.Set(m.uid(), struct{}{})
	l.ledger.begin(m.uid())
	return l.Launch(ctx, m.request, m.annotate)
}

const (
	// maxConcurrentAnnotations bounds the annotation writes in flight, so that a full batch does not use up the request
	// budget of the API server client.
	maxConcurrentAnnotations = 50
	// annotateTimeout bounds the time between the first annotation and the call. It must be much shorter than
	// VisibleWithin: after that time another process may conclude that no call was made.
	annotateTimeout = 30 * time.Second
)

// slotAssignment is the result of annotating the NodeClaims of a batch.
type slotAssignment struct {
	// launch is the ID in the annotations.
	launch string
	// members are the annotated NodeClaims, by slot; emptySlots are the slots of all others, ascending; failed has
	// their errors, by UID.
	members    []*batchMember
	emptySlots []int
	failed     map[string]error
}

// annotateAll writes its slot on each NodeClaim.
func (l *Launcher) annotateAll(ctx context.Context, members []*batchMember) slotAssignment {
	sorted := slices.SortedFunc(slices.Values(members), func(a, b *batchMember) int { return strings.Compare(a.uid(), b.uid()) })
	e := slotAssignment{launch: l.launchID(sorted), failed: map[string]error{}}
	errs, late := l.writeSlots(ctx, sorted, func(n int) cloudprovider.BatchSlot {
		return cloudprovider.BatchSlot{Launch: e.launch, Index: n, Of: len(sorted)}
	})
	for n, m := range sorted {
		if errs[n] == nil && late {
			errs[n] = errors.New("annotating the NodeClaims of the batch launch took too long")
		}
		if errs[n] == nil {
			e.members = append(e.members, m)
			continue
		}
		// If the annotation was written nevertheless, its slot is empty.
		l.recordBatch(m.uid(), emptyBatchLaunch(e.launch, errs[n]))
		e.emptySlots = append(e.emptySlots, n)
		e.failed[m.uid()] = errs[n]
	}
	return e
}

// writeSlots writes the slot of each member on its NodeClaim. The errors are by the order of the members. It is late if so much time passed
// that another process may have concluded that no call was made.
func (l *Launcher) writeSlots(
	ctx context.Context,
	members []*batchMember,
	slot func(n int) cloudprovider.BatchSlot,
) (errs []error, late bool) {
	errs = make([]error, len(members))
	began := l.cfg.Now()
	var writing errgroup.Group
	writing.SetLimit(maxConcurrentAnnotations)
	for n, m := range members {
		writing.Go(func() error {
			if errs[n] = m.ctx.Err(); errs[n] == nil {
				errs[n] = m.annotate(ctx, slot(n).String())
			}
			return nil
		})
	}
	_ = writing.Wait() // the errors are in errs
	return errs, l.cfg.Now().Sub(began) > annotateTimeout
}

// launchID returns an ID that no launch had before.
func (l *Launcher) launchID(members []*batchMember) string {
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%s %d %d", l.cfg.Identity.ClusterUID, l.cfg.Now().UnixNano(), l.batchCount.Add(1)) // a hash does not fail
	for _, m := range members {
		_, _ = io.WriteString(hash, " "+m.uid())
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// emptyBatchLaunch is a batch launch with the known outcome that no NodeClaim got an instance.
func emptyBatchLaunch(id string, err error) *batchLaunch {
	return &batchLaunch{id: id, settled: true, err: err}
}

// maxTag is EC2's limit for the value of a tag, in characters.
const maxTag = 256

// newBatchLaunch prepares the one call for all members, and records it for each of them before it is made.
func (l *Launcher) newBatchLaunch(e slotAssignment) *batchLaunch {
	j, fits := l.batchCall(e)
	if !fits {
		j = emptyBatchLaunch(e.launch, errors.New("too many NodeClaims changed during the batch launch"))
	}
	l.recordMembers(j, e.members)
	return j
}

// batchCall returns the one call for all members; false if the empty slots do not fit in a tag.
func (l *Launcher) batchCall(e slotAssignment) (j *batchLaunch, fits bool) {
	f := e.members[0].fleet
	f.instances = len(e.members)
	f.tags[identity.TagLaunch] = e.launch
	if len(e.emptySlots) > 0 {
		f.tags[identity.TagUnusedSlots] = strings.Trim(fmt.Sprint(e.emptySlots), "[]")
	}
	f.token = token(l.cfg.Identity.ClusterUID, e.launch, 0)
	return &batchLaunch{id: e.launch, call: f.call()}, len(f.tags[identity.TagUnusedSlots]) <= maxTag
}

// recordMembers records a batch launch for each of its NodeClaims.
func (l *Launcher) recordMembers(j *batchLaunch, members []*batchMember) {
	for _, m := range members {
		j.requests = append(j.requests, m.request)
		l.recordBatch(m.uid(), j)
		l.firstLookups.Delete(m.uid())
	}
}
