package zonalshift

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// shifts are the zones that a cluster keeps away from.
type shifts struct {
	zones []string
	calls []time.Time
	// answers reports which calls succeed.
	answers func(call int) bool
	state   cloudprovider.ShiftState
}

func (s *shifts) RefreshZonalShifts(context.Context) error {
	s.calls = append(s.calls, time.Now())
	if s.answers(len(s.calls)) {
		return nil
	}
	return errors.New("not reachable")
}
func (s *shifts) ShiftedZones() []string                    { return s.zones }
func (s *shifts) ZonalShiftState() cloudprovider.ShiftState { return s.state }

func TestTeller(t *testing.T) {
	wants := func(key string, values ...string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) {
			p.UID = types.UID("uid-" + p.Name)
			p.Spec.Template.Spec.Requirements = []karpv1.Requirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}
		}
	}
	class := controllertest.Class(func(c *awsv1.EC2NodeClass) {
		c.Status.Subnets = []awsv1.Subnet{
			{ID: "s1", Zone: "us-east-1a", ZoneID: "use1-az1"},
			{ID: "s2", Zone: "us-east-1b", ZoneID: "use1-az2"},
			{ID: "s3", Zone: "us-east-1a", ZoneID: "use1-az1"},
		}
	})
	f := controllertest.New(t, class,
		controllertest.Pool("anywhere", func(p *karpv1.NodePool) { p.UID = "uid-anywhere" }),
		controllertest.Pool("elsewhere", wants(corev1.LabelTopologyZone, "us-east-1b")),
		controllertest.Pool("by-id", wants(awsv1.LabelZoneID, "use1-az1")),
		controllertest.Pool("classless", func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = "none" }),
	)
	service := &shifts{}
	teller := &EventRecorder{
		Client: f.API,
		Cloud:  service,
		Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()},
		Events: f.Events,
		Log:    f.Log,
	}
	says := func(what string, zones, want []string) {
		t.Helper()
		service.zones = zones
		f.Do(teller.pass(f.Context()))
		if diff := cmp.Diff(want, f.RecordedEvents()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	active := "Warning ZonalShiftActive The cluster is shifted away from zone us-east-1a (use1-az1): no nodes are launched there"
	cleared := "Normal ZonalShiftCleared The cluster is not shifted away from zone us-east-1a (use1-az1) any more"
	says("no shift", nil, nil)
	says("a shift, to those who can launch in its zone", []string{"use1-az1", "use1-az6"}, []string{active, active})
	says("still", []string{"use1-az1", "use1-az6"}, nil)
	f.Do(f.API.Create(f.Context(), controllertest.Pool("late", func(p *karpv1.NodePool) { p.UID = "uid-late" })))
	says("a pool that has come since", []string{"use1-az1"}, []string{active})
	f.Clock = f.Clock.Add(2 * time.Hour)
	says("again after a while", []string{"use1-az1"}, []string{active, active, active})
	says("over", nil, []string{cleared, cleared, cleared})
	says("still over", nil, nil)
}

// While AWS fails, the shifts are read again with a growing delay; a gauge shows it.
func TestFailingZonalShiftsAreRetriedWithBackoff(t *testing.T) {
	f := controllertest.New(t)
	synctest.Test(t, func(t *testing.T) {
		gauge, err := NewReadableGauge(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		readable := gauge.WithLabelValues()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		var shown []float64
		service := &shifts{answers: func(call int) bool {
			shown = append(shown, testutil.ToFloat64(readable))
			return call == 7 || call == 8
		}}
		if err := (&Refresher{Cloud: service, Readable: readable, Log: f.Log}).Start(ctx); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, at := range service.calls {
			got = append(got, at.Sub(began).String())
		}
		// Six failures, two answers, and failures again.
		if diff := cmp.Diff([]string{"0s", "5s", "15s", "35s", "1m15s", "2m15s", "3m15s", "3m45s"}, got); diff != "" {
			t.Errorf("called at (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]float64{0, 0, 0, 0, 0, 0, 0, 1}, shown); diff != "" {
			t.Errorf("the gauge before each call (-want +got):\n%s", diff)
		}
	})
}

// Events on pools report that the shifts are unknown, and the consequence.
func TestPoolsSayThatZonalShiftsCannotBeRead(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general", func(p *karpv1.NodePool) { p.UID = "uid" }))
	service := &shifts{}
	teller := &EventRecorder{
		Client: f.API, Cloud: service, Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()}, Events: f.Events, Log: f.Log,
		Now: func() time.Time { return f.Clock },
	}
	failed := errors.New("InternalServerException: try later")
	for _, tc := range []struct {
		name  string
		state cloudprovider.ShiftState
		want  []string
	}{
		{"known", cloudprovider.ShiftState{Read: f.Clock}, nil},
		{"never read", cloudprovider.ShiftState{Err: failed}, []string{"Warning ZonalShiftsUnreadable The zonal shifts of the cluster cannot be read (InternalServerException: try later). " +
			"Until they can, nodes may be launched in a zone that the cluster is shifted away from"}},
		{"still", cloudprovider.ShiftState{Err: failed}, nil},
		{"failed once", cloudprovider.ShiftState{Read: f.Clock.Add(-time.Minute), Err: failed}, nil},
		{"read long ago", cloudprovider.ShiftState{Read: f.Clock.Add(-2 * time.Minute), Err: failed}, []string{"Warning ZonalShiftsUnreadable The zonal shifts of the cluster cannot be read since " +
			f.Clock.Add(-2*time.Minute).UTC().Format(time.RFC3339) + " (InternalServerException: try later). Known shifts stay in effect until they expire; nodes may be launched in a zone shifted away from since"}},
	} {
		service.state = tc.state
		f.Do(teller.pass(f.Context()))
		if diff := cmp.Diff(tc.want, f.RecordedEvents()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}
