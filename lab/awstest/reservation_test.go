package awstest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// reserve adds a reservation of m5.large in zone a, tagged team=ml.
func (w *world) reserve(total int, change ...func(*awsim.CapacityReservation)) string {
	w.t.Helper()
	r := awsim.CapacityReservation{
		InstanceType: "m5.large",
		Zone:         "us-east-1a",
		Total:        total,
		Targeted:     true,
		Tags:         map[string]string{"team": "ml"},
	}
	for _, f := range change {
		f(&r)
	}
	id, err := w.Sim.AddCapacityReservation(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// reserving is a class that uses the reservations that terms select; by default those of team ml.
func reserving(terms ...awsv1.CapacityReservationSelectorTerm) *awsv1.EC2NodeClass {
	class := nodeClass("default")
	class.Spec.CapacityReservationSelectorTerms = terms
	if len(terms) == 0 {
		class.Spec.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{Tags: map[string]string{"team": "ml"}}}
	}
	return class
}

// room is how many instances the reservations of m5.large take, by ID, of those that is available.
func room(t *testing.T, c *cloud, class *awsv1.EC2NodeClass) map[string]int {
	t.Helper()
	types, err := c.InstanceTypes(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, o := range typeNamed(t, types, "m5.large").Offerings {
		if o.ReservationID != "" && o.Available {
			out[o.ReservationID] = o.Remaining
		}
	}
	return out
}

var anyCapacity = in(karpv1.LabelCapacityType, "reserved", "spot", "on-demand")

func TestReservationsOfANodeClass(t *testing.T) {
	w := newWorld(t)
	end := metav1.Time{Time: w.Clock.Now().Add(time.Hour)}
	mine := w.reserve(1)
	open := w.reserve(2, func(r *awsim.CapacityReservation) {
		r.Targeted, r.Tags, r.OwnerID, r.End = false, nil, "999988887777", end.Time
	})
	block := w.reserve(3, func(r *awsim.CapacityReservation) { r.Block, r.Tags, r.End = true, nil, end.Time })
	over := w.reserve(1, func(r *awsim.CapacityReservation) { r.End = w.Clock.Now() })
	type term = awsv1.CapacityReservationSelectorTerm
	for _, tc := range []struct {
		name  string
		terms []term
		want  []string
	}{
		{"by tag, those that are over left out", []term{{Tags: map[string]string{"team": "ml"}}}, []string{mine}},
		{"by ID", []term{{ID: block}, {ID: mine}}, []string{block, mine}},
		{"an ID that is none", []term{{ID: "cr-0123456789abcdef0"}, {ID: mine}}, []string{mine}},
		{"one that is over", []term{{ID: over}}, nil},
		{"by owner", []term{{OwnerID: "999988887777", Tags: map[string]string{}}}, []string{open}},
		{"by criteria", []term{{InstanceMatchCriteria: "targeted"}}, []string{mine, block}},
		{"found twice, listed once", []term{{InstanceMatchCriteria: "open"}, {ID: open}}, []string{open}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := w.start(w.config("uid-1"))
			r := c.ResolveNodeClass(t.Context(), reserving(tc.terms...))
			if r.Err != nil || conditionOf(r, awsv1.ConditionCapacityReservationsReady).Status != metav1.ConditionTrue || r.Next > time.Minute {
				t.Fatalf("%v, %+v, again in %v", r.Err, r.Conditions, r.Next)
			}
			var got []string
			for _, r := range r.Status.CapacityReservations {
				got = append(got, r.ID)
			}
			slices.Sort(tc.want)
			if !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
	t.Run("as status has it", func(t *testing.T) {
		r := w.start(w.config("uid-1")).ResolveNodeClass(t.Context(), reserving(term{ID: block}, term{ID: open}))
		for _, got := range r.Status.CapacityReservations {
			want := awsv1.CapacityReservation{
				ID: got.ID, AvailabilityZone: "us-east-1a", InstanceType: "m5.large", EndTime: got.EndTime,
				OwnerID: "111122223333", InstanceMatchCriteria: "targeted", ReservationType: "capacity-block", State: "active",
			}
			if got.ID == open {
				want.OwnerID, want.InstanceMatchCriteria, want.ReservationType = "999988887777", "open", "default"
			}
			if got != want || !got.EndTime.Equal(&end) {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	})
	t.Run("a block is left 40 minutes before its end", func(t *testing.T) {
		w.Clock.Advance(20*time.Minute + time.Second)
		c := w.start(w.config("uid-1"))
		class := reserving(term{ID: block})
		resolve(t, c, class)
		if s := class.Status.CapacityReservations[0].State; s != "expiring" || len(room(t, c, class)) != 0 {
			t.Errorf("state %s, room %v", s, room(t, c, class))
		}
	})
	t.Run("gate off", func(t *testing.T) {
		cfg := w.config("uid-1")
		cfg.ReservedCapacity = false
		calls := w.called("DescribeCapacityReservations")
		r := w.start(cfg).ResolveNodeClass(t.Context(), reserving())
		if conditionOf(r, awsv1.ConditionCapacityReservationsReady).Status != "unchanged" ||
			w.called("DescribeCapacityReservations") != calls {
			t.Errorf("%+v", r.Conditions)
		}
	})
}

func TestLaunchIntoAReservation(t *testing.T) {
	w := newWorld(t)
	id := w.reserve(2)
	c := w.start(w.config("uid-1"))
	class := reserving()
	resolve(t, c, class)
	if got := room(t, c, class); got[id] != 2 {
		t.Fatalf("room %v", got)
	}
	w.Sim.SetCapacity(awsim.Pool{InstanceType: "m5.large"}, 0)
	got, err := c.Launch(t.Context(), claim("general-1", anyCapacity), class)
	if err != nil {
		t.Fatal(err)
	}
	i := w.runningInstances()[0]
	if i.CapacityReservationID != id || i.Type != "m5.large" || i.Zone != "us-east-1a" {
		t.Errorf("%s in %s, reservation %q", i.Type, i.Zone, i.CapacityReservationID)
	}
	labels := map[string]string{
		karpv1.LabelCapacityType: "reserved", awsv1.LabelReservationID: id, awsv1.LabelReservationType: "default",
		awsv1.LabelReservationInterruptible: "false",
		corev1.LabelInstanceTypeStable:      "m5.large",
	}
	for key, want := range labels {
		if got.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, got.Labels[key], want)
		}
	}
	if got := room(t, c, class); got[id] != 1 {
		t.Errorf("before the next DescribeCapacityReservations: room %v", got)
	}
	w.advancePastDelays()
	if seen, err := c.Get(t.Context(), got.ProviderID); err != nil || seen.CapacityType != "reserved" || seen.Reservation.ID != id {
		t.Errorf("read as %q, %+v, %v", seen.CapacityType, seen.Reservation, err)
	}
	t.Run("a process that starts anew adopts it as it is", func(t *testing.T) {
		c := w.start(w.config("uid-1"))
		again, err := c.Launch(t.Context(), claim("general-1", anyCapacity), class)
		if err != nil || again.ProviderID != got.ProviderID || again.Labels[awsv1.LabelReservationID] != id ||
			len(w.runningInstances()) != 1 {
			t.Errorf("%+v, %v, %d instances", again, err, len(w.runningInstances()))
		}
	})
	t.Run("and counts what is left at once", func(t *testing.T) {
		if got := room(t, w.start(w.config("uid-1")), class); got[id] != 1 {
			t.Errorf("room %v", got)
		}
	})
	t.Run("the second takes the last", func(t *testing.T) {
		if _, err := c.Launch(t.Context(), claim("general-2", anyCapacity), class); err != nil {
			t.Fatal(err)
		}
		if got := room(t, c, class); len(got) != 0 {
			t.Errorf("room %v", got)
		}
	})
	t.Run("the third launches on-demand", func(t *testing.T) {
		third, err := c.Launch(t.Context(), claim("general-3", in(karpv1.LabelCapacityType, "reserved", "on-demand")), class)
		if err != nil || third.Labels[karpv1.LabelCapacityType] != "on-demand" || third.Labels[awsv1.LabelReservationID] != "" {
			t.Errorf("%v, %v", third.Labels, err)
		}
	})
	t.Run("what has left makes room within a minute", func(t *testing.T) {
		if err := c.Terminate(t.Context(), destroytest.Permit(got.ProviderID)); err != nil {
			t.Fatal(err)
		}
		w.Clock.Advance(time.Minute)
		resolve(t, c, class)
		if got := room(t, c, class); got[id] != 1 {
			t.Errorf("room %v", got)
		}
	})
}

// Another consumer uses the reservation first.
func TestReservationIsUsedUpMeanwhile(t *testing.T) {
	w := newWorld(t)
	id := w.reserve(1)
	mine, theirs := w.start(w.config("uid-1")), w.start(w.config("uid-2"))
	class, other := reserving(), reserving()
	resolve(t, mine, class)
	resolve(t, theirs, other)
	if _, err := theirs.Launch(t.Context(), claim("theirs", anyCapacity), other); err != nil {
		t.Fatal(err)
	}
	_, err := mine.Launch(t.Context(), claim("mine", in(karpv1.LabelCapacityType, "reserved")), class)
	var scarce *cloudprovider.InsufficientCapacityError
	if !errors.As(err, &scarce) {
		t.Fatalf("want insufficient capacity, got %v", err)
	}
	if got := room(t, mine, class); len(got) != 0 {
		t.Errorf("room %v in %s", got, id)
	}
	types, err := mine.InstanceTypes(t.Context(), class)
	if err != nil || !offering(t, typeNamed(t, types, "m5.large"), "us-east-1a", "on-demand").Available {
		t.Errorf("a full reservation makes the type scarce: %v", err)
	}
}

func TestKindsOfReservations(t *testing.T) {
	for kind, edit := range map[string]func(*awsim.CapacityReservation){
		"capacity-block false": func(r *awsim.CapacityReservation) { r.Block = true },
		"default true":         func(r *awsim.CapacityReservation) { r.Interruptible = true },
		"default false":        func(r *awsim.CapacityReservation) { r.Targeted = false },
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			id := w.reserve(1, func(r *awsim.CapacityReservation) {
				r.End = w.Clock.Now().Add(48 * time.Hour)
				edit(r)
			})
			c := w.start(w.config("uid-1"))
			class := reserving()
			resolve(t, c, class)
			got, err := c.Launch(t.Context(), claim("general-1", anyCapacity), class)
			if err != nil {
				t.Fatal(err)
			}
			w.advancePastDelays()
			seen, err := c.Get(t.Context(), got.ProviderID)
			read := fmt.Sprintf("%s %v", seen.Reservation.Type, seen.Reservation.Interruptible)
			labels := got.Labels[awsv1.LabelReservationType] + " " + got.Labels[awsv1.LabelReservationInterruptible]
			if err != nil || seen.Reservation.ID != id || read != kind || labels != kind {
				t.Errorf("launched %q, read %q in %s, %v", labels, read, seen.Reservation.ID, err)
			}
		})
	}
}

// With the gate off an instance may fall into an open reservation, and is on-demand all the same.
func TestOpenReservationUnasked(t *testing.T) {
	w := newWorld(t)
	open := w.reserve(1, func(r *awsim.CapacityReservation) { r.Targeted = false })
	for _, gate := range []bool{true, false} {
		cfg := w.config("uid-1")
		cfg.ReservedCapacity = gate
		c := w.start(cfg)
		class := nodeClass("default")
		resolve(t, c, class)
		name := fmt.Sprintf("gate-%v", gate)
		got, err := c.Launch(
			t.Context(),
			claim(name, onDemand, in(corev1.LabelInstanceTypeStable, "m5.large"), in(corev1.LabelTopologyZone, "us-east-1a")),
			class,
		)
		if err != nil {
			t.Fatal(err)
		}
		w.advancePastDelays()
		seen, err := c.Get(t.Context(), got.ProviderID)
		if err != nil || seen.CapacityType != "on-demand" || seen.Reservation != (cloudprovider.Reservation{}) {
			t.Errorf("%s: read as %s, %+v, %v", name, seen.CapacityType, seen.Reservation, err)
		}
		in := w.Sim.Instances()[len(w.Sim.Instances())-1].CapacityReservationID
		if (in == open) == gate {
			t.Errorf("%s: in reservation %q", name, in)
		}
	}
}
