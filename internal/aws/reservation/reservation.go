// Package reservation finds the capacity reservations of node classes, and counts the free instances of each.
//
// EC2 is read about once a minute. Between two reads the count decreases with each launch of this process, and drops to
// zero when EC2 reports that a reservation is full. It increases only with a read, and no launch is sent to a full
// reservation. When an instance in a reservation has terminated, EC2 is read again at the next use; if it is late to count the
// instance as finished, a minute later.
package reservation

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
)

const (
	// answerTTL sets how long an answer about a node class's reservations is used.
	answerTTL = time.Minute
	// countTTL sets how long a count is kept after its last read.
	countTTL = 24 * time.Hour
	pageSize = 1000
)

// Reservation types and states, as in a node class's status.
const (
	Default  = "default"
	Block    = "capacity-block"
	Active   = "active"
	Expiring = "expiring"
)

// ExpiringBefore sets how long before the end of a capacity block its nodes are drained. EC2 terminates the instances 30
// minutes before the end.
const ExpiringBefore = 40 * time.Minute

// Finder looks up reservations. It is safe for concurrent use.
type Finder struct {
	api   ec2.DescribeCapacityReservationsAPIClient
	now   func() time.Time
	log   *slog.Logger
	found *ttlcache.Cache[string, []ec2types.CapacityReservation]

	mu      sync.Mutex
	counts  map[string]*freeCount
	version uint64
}

// freeCount describes what is known of the free instances of a reservation.
type freeCount struct {
	// free is EC2's count in the answer to a query sent at queriedAt.
	free      int
	queriedAt time.Time
	// launched are the times of launches that the answer may not include.
	launched []time.Time
	full     bool // EC2 reported it since
	// endedAt is the time when an instance in it was last seen to have finished.
	endedAt time.Time
	// blockedUntil is until when no launch is tried, whatever EC2 counts; zero if launches are allowed.
	blockedUntil time.Time
}

// NewFinder returns a Finder with an empty cache.
func NewFinder(api ec2.DescribeCapacityReservationsAPIClient, now func() time.Time, log *slog.Logger) *Finder {
	return &Finder{
		api:    api,
		now:    now,
		log:    log,
		found:  ttlcache.New[string, []ec2types.CapacityReservation](answerTTL, now),
		counts: map[string]*freeCount{},
	}
}

// Reservations returns the active reservations that any of the terms selects, by ID. The caller makes the cache key
// from the node class and its generation, so that an edited class is read again.
func (f *Finder) Reservations(
	ctx context.Context,
	key string,
	terms []awsv1.CapacityReservationSelectorTerm,
) ([]awsv1.CapacityReservation, error) {
	found, ok := f.found.Get(key)
	if !ok {
		asked := f.now()
		byID := map[string]ec2types.CapacityReservation{}
		for _, term := range terms {
			if err := f.query(ctx, term, byID); err != nil {
				return nil, err
			}
		}
		for _, r := range byID {
			found = append(found, r)
		}
		slices.SortFunc(found, func(a, b ec2types.CapacityReservation) int {
			return cmp.Compare(aws.ToString(a.CapacityReservationId), aws.ToString(b.CapacityReservationId))
		})
		f.recordCounts(found, asked)
		f.found.Set(key, found)
	}
	var out []awsv1.CapacityReservation
	for i := range found {
		if r, ok := f.convert(&found[i]); ok {
			out = append(out, r)
		}
	}
	return out, nil
}

func (f *Finder) query(
	ctx context.Context,
	term awsv1.CapacityReservationSelectorTerm,
	into map[string]ec2types.CapacityReservation,
) error {
	in := &ec2.DescribeCapacityReservationsInput{
		Filters: []ec2types.Filter{network.Filter("state", string(ec2types.CapacityReservationStateActive))},
	}
	if term.ID != "" {
		in.CapacityReservationIds = []string{term.ID}
	} else {
		in.MaxResults = aws.Int32(pageSize)
		if term.OwnerID != "" {
			in.Filters = append(in.Filters, network.Filter("owner-id", term.OwnerID))
		}
		if term.InstanceMatchCriteria != "" {
			in.Filters = append(in.Filters, network.Filter("instance-match-criteria", term.InstanceMatchCriteria))
		}
		in.Filters = append(in.Filters, network.TagFilters(term.Tags)...)
	}
	pages := ec2.NewDescribeCapacityReservationsPaginator(f.api, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if awserrors.Is(err, awserrors.NotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("describe capacity reservations: %w", err)
		}
		for _, r := range page.CapacityReservations {
			into[aws.ToString(r.CapacityReservationId)] = r
		}
	}
	return nil
}

// convert returns a reservation as in a node class's status; false if it has finished or is of a kind that nodes cannot
// use.
func (f *Finder) convert(r *ec2types.CapacityReservation) (awsv1.CapacityReservation, bool) {
	now, id := f.now(), aws.ToString(r.CapacityReservationId)
	out := awsv1.CapacityReservation{
		ID: id, AvailabilityZone: aws.ToString(r.AvailabilityZone), InstanceType: aws.ToString(r.InstanceType), OwnerID: aws.ToString(r.OwnerId),
		InstanceMatchCriteria: string(r.InstanceMatchCriteria), ReservationType: cmp.Or(string(r.ReservationType), Default),
		Interruptible: aws.ToBool(r.Interruptible), State: Active,
	}
	criteria := out.InstanceMatchCriteria
	if criteria != string(ec2types.InstanceMatchCriteriaOpen) && criteria != string(ec2types.InstanceMatchCriteriaTargeted) ||
		out.ReservationType != Default && out.ReservationType != Block {
		f.log.Warn(
			"unknown kind of capacity reservation is ignored",
			"id",
			id,
			"instanceMatchCriteria",
			criteria,
			"type",
			out.ReservationType,
		)
		return out, false
	}
	if r.EndDate != nil {
		if !r.EndDate.After(now) {
			return out, false
		}
		out.EndTime = &metav1.Time{Time: *r.EndDate}
		if out.ReservationType == Block && !now.Before(r.EndDate.Add(-ExpiringBefore)) {
			out.State = Expiring
		}
	}
	return out, true
}

// recordCounts records the counts of an answer.
func (f *Finder) recordCounts(found []ec2types.CapacityReservation, asked time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range found {
		id, free := aws.ToString(found[i].CapacityReservationId), int(aws.ToInt32(found[i].AvailableInstanceCount))
		known := f.counts[id]
		if known == nil {
			known = &freeCount{}
			f.counts[id] = known
		}
		if known.queriedAt.After(asked) {
			continue // another node class has queried since
		}
		before, wasHealthy := known.remaining(), known.healthy()
		known.free, known.queriedAt, known.full = free, asked, false
		if !asked.Before(known.blockedUntil) {
			known.blockedUntil = time.Time{}
		}
		known.launched = slices.DeleteFunc(known.launched, asked.After)
		if known.remaining() != before || known.healthy() != wasHealthy {
			f.version++
		}
	}
	for id, c := range f.counts {
		if asked.Sub(c.queriedAt) > countTTL {
			delete(f.counts, id)
		}
	}
}

func (c *freeCount) remaining() int {
	if c.full || !c.healthy() {
		return 0
	}
	return max(0, c.free-len(c.launched))
}

// healthy reports whether EC2 has counted the reservation and launches instances into it.
func (c *freeCount) healthy() bool { return !c.queriedAt.IsZero() && c.blockedUntil.IsZero() }

// outdated reports whether an instance in it has terminated since EC2 was queried.
func (c *freeCount) outdated() bool { return c.endedAt.After(c.queriedAt) }

// Remaining returns how many more instances a reservation accepts, as far as is known; zero for an unknown one.
func (f *Finder) Remaining(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.counts[id]; c != nil {
		return c.remaining()
	}
	return 0
}

// Healthy reports whether a reservation accepts instances, as far as is known, apart from whether one is free.
func (f *Finder) Healthy(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counts[id]
	return c != nil && c.healthy()
}

// AllCounted reports whether all of these were counted once, and no instance in them has terminated since.
func (f *Finder) AllCounted(all []awsv1.CapacityReservation) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !slices.ContainsFunc(all, func(r awsv1.CapacityReservation) bool { return f.counts[r.ID] == nil || f.counts[r.ID].outdated() })
}

// Ended records that an instance in a reservation has terminated: EC2 is queried again at the next use.
func (f *Finder) Ended(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.counts[id]; c != nil {
		c.endedAt = f.now()
		f.found.Clear()
	}
}

// Launched records an instance that was launched into a reservation.
func (f *Finder) Launched(id string) {
	f.update(id, func(c *freeCount) { c.launched = append(c.launched, f.now()) })
}

// Full records that a reservation had no free instance. It is full until EC2 is queried again.
func (f *Finder) Full(id string) { f.update(id, func(c *freeCount) { c.full = true }) }

// Unavailable records that EC2 launches nothing into a reservation for a reason that its count does not show, such as
// an owner who takes it back. Launches into it are blocked as long as those of other unavailable offerings, and until
// EC2 is queried again.
func (f *Finder) Unavailable(id string) {
	f.update(id, func(c *freeCount) { c.blockedUntil = f.now().Add(unavailableofferings.TTL) })
}

func (f *Finder) update(id string, change func(*freeCount)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.counts[id]; c != nil {
		change(c)
		f.version++
	}
}

// Version changes with every count. Results that were computed from the counts are outdated then.
func (f *Finder) Version() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}
