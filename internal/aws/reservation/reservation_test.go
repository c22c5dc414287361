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
