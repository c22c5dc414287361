package zonalshift

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/fixture"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// shifts are the zones that a cluster keeps away from.
type shifts struct {
	zones []string
	asked int
}

func (s *shifts) RefreshZonalShifts(context.Context) error {
	s.asked++
	return errors.New("not reachable")
}
func (s *shifts) ShiftedZones() []string { return s.zones }

func TestTeller(t *testing.T) {
	wants := func(key string, values ...string) func(*karpv1.NodePool) {
		return func(p *karpv1.NodePool) {
			p.UID = types.UID("uid-" + p.Name)
			p.Spec.Template.Spec.Requirements = []karpv1.Requirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}
		}
	}
	class := fixture.Class(func(c *awsv1.EC2NodeClass) {
		c.Status.Subnets = []awsv1.Subnet{{ID: "s1", Zone: "us-east-1a", ZoneID: "use1-az1"}, {ID: "s2", Zone: "us-east-1b", ZoneID: "use1-az2"}, {ID: "s3", Zone: "us-east-1a", ZoneID: "use1-az1"}}
	})
	f := fixture.New(t, class,
		fixture.Pool("anywhere", func(p *karpv1.NodePool) { p.UID = "uid-anywhere" }),
		fixture.Pool("elsewhere", wants(corev1.LabelTopologyZone, "us-east-1b")),
		fixture.Pool("by-id", wants(awsv1.LabelZoneID, "use1-az1")),
		fixture.Pool("classless", func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = "none" }),
	)
	cloud := &shifts{}
	teller := &Teller{Client: f.API, Cloud: cloud, Labels: requirement.Labels{Vocabulary: awsv1.Vocabulary()}, Events: f.Events, Log: f.Log}
	says := func(what string, zones, want []string) {
		t.Helper()
		cloud.zones = zones
		f.Do(teller.pass(f.Context()))
		if diff := cmp.Diff(want, f.Said()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	active := "Warning ZonalShiftActive The cluster is shifted away from zone us-east-1a (use1-az1): no nodes are launched there"
	cleared := "Normal ZonalShiftCleared The cluster is not shifted away from zone us-east-1a (use1-az1) any more"
	says("no shift", nil, nil)
	says("a shift, to those who can launch in its zone", []string{"use1-az1", "use1-az6"}, []string{active, active})
	says("still", []string{"use1-az1", "use1-az6"}, nil)
	f.Do(f.API.Create(f.Context(), fixture.Pool("late", func(p *karpv1.NodePool) { p.UID = "uid-late" })))
	says("a pool that has come since", []string{"use1-az1"}, []string{active})
	f.Clock = f.Clock.Add(2 * time.Hour)
	says("again after a while", []string{"use1-az1"}, []string{active, active, active})
	says("over", nil, []string{cleared, cleared, cleared})
	says("still over", nil, nil)
}

// A failure is logged, and asked again after.
func TestRefresher(t *testing.T) {
	f := fixture.New(t)
	synctest.Test(t, func(t *testing.T) {
		cloud := &shifts{}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+time.Second)
		defer cancel()
		if err := (&Refresher{Cloud: cloud, Log: f.Log}).Start(ctx); err != nil || cloud.asked != 5 {
			t.Errorf("asked %d times in two minutes, %v", cloud.asked, err)
		}
	})
}
