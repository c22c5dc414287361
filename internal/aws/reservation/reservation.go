// Package reservation finds the capacity reservations of node classes, and counts how many instances each still takes.
//
// EC2 is asked about once a minute. Between two answers the count goes down with each launch of this process, and to
// nothing when EC2 says that a reservation is full. It goes up only with an answer: an instance that leaves makes room a
// minute late at most, and no launch is sent where there is none.
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
	"github.com/dovetail-k8s/dovetail/internal/aws/memo"
	"github.com/dovetail-k8s/dovetail/internal/aws/network"
	"github.com/dovetail-k8s/dovetail/internal/aws/unavailableofferings"
)

const (
	// believed is how long an answer about a node class's reservations is.
	answerTTL = time.Minute
	// remembered is how long a count is that nobody has asked for again.
	countTTL = 24 * time.Hour
	pageSize = 1000
)

// Reservation types and states, as a node class's status has them.
const (
	Default  = "default"
	Block    = "capacity-block"
	Active   = "active"
	Expiring = "expiring"
)

// ExpiringBefore is how long before the end of a capacity block its nodes leave. EC2 terminates them ten minutes later.
const ExpiringBefore = 40 * time.Minute

// Finder looks up reservations. It is safe for concurrent use.
type Finder struct {
	api   ec2.DescribeCapacityReservationsAPIClient
	now   func() time.Time
	log   *slog.Logger
	found *memo.Memo[string, []ec2types.CapacityReservation]

	mu      sync.Mutex
	counts  map[string]*freeCount
	version uint64
}

// count is what is known of a reservation's room.
type freeCount struct {
	// free is what EC2 said in answer to a question asked at asked.
	free      int
	queriedAt time.Time
	// launched are the times of launches into it that the answer may not know of.
	launched []time.Time
	full     bool // said EC2 since
	// refused is until when no launch is tried, whatever EC2 counts; zero if launches are.
	blockedUntil time.Time
}

// NewFinder returns a Finder that knows of no reservation.
func NewFinder(api ec2.DescribeCapacityReservationsAPIClient, now func() time.Time, log *slog.Logger) *Finder {
	return &Finder{api: api, now: now, log: log, found: memo.New[string, []ec2types.CapacityReservation](answerTTL, now), counts: map[string]*freeCount{}}
}

// Reservations returns the active reservations that any of the terms selects, by ID. Answers are kept under a key that the
// caller makes from the node class and its generation, so that an edited class is looked up anew.
func (f *Finder) Reservations(ctx context.Context, key string, terms []awsv1.CapacityReservationSelectorTerm) ([]awsv1.CapacityReservation, error) {
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
		f.found.Put(key, found)
	}
	var out []awsv1.CapacityReservation
	for i := range found {
		if r, ok := f.convert(&found[i]); ok {
			out = append(out, r)
		}
	}
	return out, nil
}

func (f *Finder) query(ctx context.Context, term awsv1.CapacityReservationSelectorTerm, into map[string]ec2types.CapacityReservation) error {
	in := &ec2.DescribeCapacityReservationsInput{Filters: []ec2types.Filter{network.Filter("state", string(ec2types.CapacityReservationStateActive))}}
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

// read is a reservation as a node class's status has it; false if it is over or of a kind that nodes cannot use.
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
		f.log.Warn("unknown kind of capacity reservation is ignored", "id", id, "instanceMatchCriteria", criteria, "type", out.ReservationType)
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

// count learns the counts of an answer.
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
			continue // another node class has asked since
		}
		before := known.remaining()
		known.free, known.queriedAt, known.full = free, asked, false
		if !asked.Before(known.blockedUntil) {
			known.blockedUntil = time.Time{}
		}
		known.launched = slices.DeleteFunc(known.launched, asked.After)
		if known.remaining() != before {
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
	if c.full || !c.blockedUntil.IsZero() {
		return 0
	}
	return max(0, c.free-len(c.launched))
}

// Remaining is how many more instances a reservation takes, as far as is known; of an unknown one none.
func (f *Finder) Remaining(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.counts[id]; c != nil {
		return c.remaining()
	}
	return 0
}

// Counts tells whether all of these were counted once.
func (f *Finder) Counts(all []awsv1.CapacityReservation) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !slices.ContainsFunc(all, func(r awsv1.CapacityReservation) bool { return f.counts[r.ID] == nil })
}

// Launched notes that an instance was launched into a reservation.
func (f *Finder) Launched(id string) {
	f.update(id, func(c *freeCount) { c.launched = append(c.launched, f.now()) })
}

// Full notes that EC2 had no room in a reservation. It is believed until EC2 has been asked again.
func (f *Finder) Full(id string) { f.update(id, func(c *freeCount) { c.full = true }) }

// Unavailable notes that EC2 launches nothing into a reservation for a reason that its count does not show, such as an owner
// who takes it back. No launch into it is tried for as long as with other offerings, and until EC2 has been queried again.
func (f *Finder) Unavailable(id string) {
	f.update(id, func(c *freeCount) { c.blockedUntil = f.now().Add(unavailableofferings.For) })
}

func (f *Finder) update(id string, change func(*freeCount)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.counts[id]; c != nil {
		change(c)
		f.version++
	}
}

// Version changes with every count; what was computed from the counts is out of date then.
func (f *Finder) Version() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}
