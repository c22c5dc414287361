package zonalshift

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift/types"
)

// controller is the Application Recovery Controller.
type controller struct {
	out arczonalshift.GetManagedResourceOutput
	err error
}

func (c *controller) GetManagedResource(
	context.Context,
	*arczonalshift.GetManagedResourceInput,
	...func(*arczonalshift.Options),
) (*arczonalshift.GetManagedResourceOutput, error) {
	return &c.out, c.err
}

func TestWatcher(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	arc := &controller{}
	w := New(arc, func() time.Time { return now })
	shift := func(zone string, status types.AppliedStatus, ends time.Duration) types.ZonalShiftInResource {
		return types.ZonalShiftInResource{AwayFrom: aws.String(zone), AppliedStatus: status, ExpiryTime: aws.Time(now.Add(ends))}
	}
	auto := func(zone string, status types.AutoshiftAppliedStatus) types.AutoshiftInResource {
		return types.AutoshiftInResource{AwayFrom: aws.String(zone), AppliedStatus: status}
	}
	away := func(what string, want ...string) {
		t.Helper()
		if got := w.Zones(); !slices.Equal(got, want) {
			t.Errorf("%s: away from %v, want %v", what, got, want)
		}
		for _, id := range []string{"az1", "az2", "az3", ""} {
			if w.Away(id) != slices.Contains(want, id) {
				t.Errorf("%s: away from %q is %v", what, id, w.Away(id))
			}
		}
	}
	refresh := func() {
		t.Helper()
		if err := w.Refresh(t.Context(), "arn"); err != nil {
			t.Fatal(err)
		}
	}
	away("before the first answer")
	arc.out.ZonalShifts = []types.ZonalShiftInResource{
		shift("az1", types.AppliedStatusApplied, time.Hour), shift("az2", types.AppliedStatusApplied, 2*time.Hour),
		shift("az3", types.AppliedStatusNotApplied, time.Hour),
		{AppliedStatus: types.AppliedStatusApplied},
	}
	refresh()
	away("two shifts apply", "az1", "az2")
	arc.out.ZonalShifts = arc.out.ZonalShifts[1:]
	refresh()
	away("one was cancelled while another lasts", "az2")
	arc.err = errors.New("away")
	if err := w.Refresh(t.Context(), "arn"); err == nil {
		t.Error("no error")
	}
	away("without an answer", "az2")
	now = now.Add(2 * time.Hour)
	away("after its end, without an answer")
	arc.err, arc.out.ZonalShifts = nil, nil
	arc.out.Autoshifts = []types.AutoshiftInResource{
		auto("az3", types.AutoshiftAppliedStatusApplied),
		auto("az1", types.AutoshiftAppliedStatusNotApplied),
	}
	refresh()
	away("an autoshift", "az3")
	now = now.Add(59 * time.Minute)
	away("an autoshift that was seen an hour ago", "az3")
	now = now.Add(time.Minute)
	away("an autoshift of which nothing is heard")
}
