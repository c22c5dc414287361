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

// Enroll writes on a claim what its annotation karpv1.AnnotationLaunch is to say; empty removes it. It fails unless the claim
// is as it was when the launch began.
type Enroll func(ctx context.Context, mark string) error

// member is a claim that is to be launched together with others.
type batchMember struct {
	// ctx is the caller's: one that has gone is not launched for.
	ctx      context.Context
	request  Order
	fleet    fleet
	plan     plan
	annotate Enroll
}

func (m *batchMember) uid() string { return string(m.request.Claim.UID) }

// LaunchTogether buys an instance for the claim, in one call with others that ask for the same at about the same time. It
// must follow an Adopt that found none, and only claims may be launched so that say Unlaunched or bear a ticket: for no
// other is it certain that no call was made before. Errors are those of package cloud, or of enroll.
func (l *Launcher) LaunchTogether(ctx context.Context, o Order, enroll Enroll) (cloudprovider.Instance, error) {
	p, err := l.plan(o)
	if err != nil {
		return cloudprovider.Instance{}, err
	}
	m := &batchMember{ctx: ctx, request: o, plan: p, annotate: enroll}
	if m.fleet, err = l.fleet(ctx, o, p); err != nil {
		p.choice.Settle("")
		return cloudprovider.Instance{}, err
	}
	key, err := m.fleet.key()
	if err != nil {
		p.choice.Settle("")
		return cloudprovider.Instance{}, err
	}
	return l.batcher.Do(ctx, key, m) // from here on the launch settles the choice
}

// key is equal for fleets that ask for the same.
func (f fleet) key() (string, error) {
	content, err := json.Marshal(f.input())
	if err != nil {
		return "", fmt.Errorf("compare fleets: %w", err)
	}
	sum := sha256.Sum256(content)
	return string(sum[:]), nil
}

type launchResult = batch.Result[cloudprovider.Instance]

// together launches for claims that ask for the same.
func (l *Launcher) launchBatch(ctx context.Context, _ string, members []*batchMember) []launchResult {
	out := make([]launchResult, len(members))
	if len(members) == 1 {
		out[0].Value, out[0].Err = l.launchSingle(ctx, members[0])
		return out
	}
	numbers := map[string]int{}
	for n, m := range members {
		numbers[m.uid()] = n
		defer m.plan.choice.Settle("") // of no effect for those that get an instance, see below
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
		if r.Value, r.Err, _ = j.outcome(m.uid()); r.Err == nil {
			m.plan.choice.Settle(r.Value.SubnetID)
		}
	}
	return out
}

// single launches for a claim that nobody shares its wishes with, alone.
func (l *Launcher) launchSingle(ctx context.Context, m *batchMember) (cloudprovider.Instance, error) {
	m.plan.choice.Settle("") // Launch makes its own
	if err := m.ctx.Err(); err != nil {
		return cloudprovider.Instance{}, err
	}
	if err := m.annotate(ctx, ""); err != nil {
		return cloudprovider.Instance{}, err
	}
	l.single.Put(m.uid(), struct{}{})
	l.ledger.begin(m.uid())
	return l.Launch(ctx, m.request)
}

const (
	// maxConcurrentAnnotations is how many claims are written on at a time.
	maxConcurrentAnnotations = 50
	// annotateTimeout bounds the time between the first ticket and the call. It is much shorter than VisibleWithin, after which
	// others may take it that no call was made.
	annotateTimeout = 30 * time.Second
)

// enrollment is what has become of writing tickets on claims.
type slotAssignment struct {
	// launch is the ID on the tickets.
	launch string
	// part are the claims that bear one, in the order of their places; emptySlots the places of all others, ascending, and
	// failed says why, by UID.
	members    []*batchMember
	emptySlots []int
	failed     map[string]error
}

// annotateAll writes a ticket on each claim.
func (l *Launcher) annotateAll(ctx context.Context, members []*batchMember) slotAssignment {
	sorted := slices.SortedFunc(slices.Values(members), func(a, b *batchMember) int { return strings.Compare(a.uid(), b.uid()) })
	e := slotAssignment{launch: l.launchID(sorted), failed: map[string]error{}}
	began := l.cfg.Now()
	errs := make([]error, len(sorted))
	var writing errgroup.Group
	writing.SetLimit(maxConcurrentAnnotations)
	for n, m := range sorted {
		writing.Go(func() error {
			if errs[n] = m.ctx.Err(); errs[n] == nil {
				errs[n] = m.annotate(ctx, cloudprovider.Ticket{Launch: e.launch, Place: n, Of: len(sorted)}.String())
			}
			return nil
		})
	}
	_ = writing.Wait()
	late := l.cfg.Now().Sub(began) > annotateTimeout
	for n, m := range sorted {
		if errs[n] == nil && late {
			errs[n] = errors.New("annotating the NodeClaims of the batch launch took too long")
		}
		if errs[n] == nil {
			e.members = append(e.members, m)
			continue
		}
		// Should the ticket be there all the same, it stands for nothing.
		l.recordBatch(m.uid(), emptyBatchLaunch(e.launch, errs[n]))
		e.emptySlots = append(e.emptySlots, n)
		e.failed[m.uid()] = errs[n]
	}
	return e
}

// launchID is one that no launch had before.
func (l *Launcher) launchID(members []*batchMember) string {
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%s %d %d", l.cfg.Identity.ClusterUID, l.cfg.Now().UnixNano(), l.batchCount.Add(1)) // a hash does not fail
	for _, m := range members {
		_, _ = io.WriteString(hash, " "+m.uid())
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// nothing is a launch that is known to have brought nobody anything.
func emptyBatchLaunch(id string, err error) *batchLaunch {
	return &batchLaunch{id: id, settled: true, err: err}
}

// maxTag is how many characters the value of a tag may have.
const maxTag = 256

// prepare makes the one call for all that take part, and remembers it for each of them before it is made.
func (l *Launcher) newBatchLaunch(e slotAssignment) *batchLaunch {
	f := e.members[0].fleet
	f.instances = len(e.members)
	f.tags[identity.TagLaunch] = e.launch
	if len(e.emptySlots) > 0 {
		f.tags[identity.TagLeftOut] = strings.Trim(fmt.Sprint(e.emptySlots), "[]")
	}
	f.token = token(l.cfg.Identity.ClusterUID, e.launch, 0)
	j := &batchLaunch{id: e.launch, call: f.call()}
	if len(f.tags[identity.TagLeftOut]) > maxTag {
		j = emptyBatchLaunch(e.launch, errors.New("too many NodeClaims changed during the batch launch"))
	}
	for _, m := range e.members {
		j.requests = append(j.requests, m.request)
		l.recordBatch(m.uid(), j)
		l.firstLookups.Drop(m.uid())
	}
	return j
}
