package reservation

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// one is EC2 with a single reservation that always has five free instances.
type one struct{}

func (one) DescribeCapacityReservations(
	context.Context,
	*ec2.DescribeCapacityReservationsInput,
	...func(*ec2.Options),
) (*ec2.DescribeCapacityReservationsOutput, error) {
	return &ec2.DescribeCapacityReservationsOutput{CapacityReservations: []ec2types.CapacityReservation{{
		CapacityReservationId: aws.String(
			"cr-1",
		), AvailableInstanceCount: aws.Int32(5), InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
	}}}, nil
}

// A reservation that its owner takes back still counts free instances. A new count alone must not unblock it.
func TestReclaimedReservationIsUnavailableForThreeMinutes(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := NewFinder(one{}, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	expect := func(after time.Duration, want int, what string) {
		t.Helper()
		now = now.Add(after)
		before := f.Version()
		was := f.Remaining("cr-1")
		if _, err := f.Reservations(t.Context(), "class", []awsv1.CapacityReservationSelectorTerm{{ID: "cr-1"}}); err != nil {
			t.Fatal(err)
		}
		got := f.Remaining("cr-1")
		if got != want {
			t.Errorf("%s: room for %d, want %d", what, got, want)
		}
		if got != was && f.Version() == before {
			t.Errorf("%s: the room has changed and the version has not", what)
		}
	}
	expect(0, 5, "at first")
	f.Full("cr-1")
	expect(time.Second, 0, "full, as EC2 said since")
	expect(time.Minute, 5, "with the next count")
	f.Unavailable("cr-1")
	expect(time.Second, 0, "refused")
	expect(time.Minute, 0, "still refused, whatever the count says")
	expect(time.Minute, 0, "still")
	expect(time.Minute, 5, "three minutes later")
}

// counted answers with a number of free instances, and counts the queries.
type counted struct{ free, queries int32 }

func (c *counted) DescribeCapacityReservations(
	context.Context,
	*ec2.DescribeCapacityReservationsInput,
	...func(*ec2.Options),
) (*ec2.DescribeCapacityReservationsOutput, error) {
	c.queries++
	return &ec2.DescribeCapacityReservationsOutput{CapacityReservations: []ec2types.CapacityReservation{{
		CapacityReservationId: aws.String("cr-1"), AvailableInstanceCount: &c.free, InstanceMatchCriteria: ec2types.InstanceMatchCriteriaTargeted,
	}}}, nil
}

// The place of an instance that has terminated is known at once, not a minute later. A full reservation is healthy; one that
// is not counted, or that EC2 launches nothing into, is not.
func TestEndedInstanceFreesItsPlace(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	api := &counted{}
	f := NewFinder(api, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	used := []awsv1.CapacityReservation{{ID: "cr-1"}}
	use := func() {
		t.Helper()
		now = now.Add(time.Second)
		if f.AllCounted(used) {
			return
		}
		if _, err := f.Reservations(t.Context(), "class", []awsv1.CapacityReservationSelectorTerm{{ID: "cr-1"}}); err != nil {
			t.Fatal(err)
		}
	}
	if f.Healthy("cr-1") {
		t.Error("healthy before it was counted")
	}
	use()
	use()
	if f.Remaining("cr-1") != 0 || !f.Healthy("cr-1") || api.queries != 1 {
		t.Fatalf("room for %d, healthy %v, %d queries", f.Remaining("cr-1"), f.Healthy("cr-1"), api.queries)
	}
	now = now.Add(time.Second)
	api.free = 1
	f.Ended("cr-1")
	f.Ended("cr-unknown")
	use()
	use()
	if f.Remaining("cr-1") != 1 || api.queries != 2 {
		t.Errorf("room for %d after %d queries, want 1 after 2", f.Remaining("cr-1"), api.queries)
	}
	f.Unavailable("cr-1")
	if f.Healthy("cr-1") {
		t.Error("healthy although EC2 launches nothing into it")
	}
}
