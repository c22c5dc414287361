package reservation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

func TestRoomForATemplate(t *testing.T) {
	small := func() *catalog.InstanceType { return Type("m.small", 0.05, "cpu", "1") }
	reserved := Require(Capacity, corev1.NodeSelectorOpIn, karpv1.CapacityTypeReserved)
	healthy := func(it *catalog.InstanceType, is bool) *catalog.InstanceType {
		if o := &it.Offerings[len(it.Offerings)-1]; !is {
			o.Available, o.UnavailableReason = false, ""
		}
		return it
	}
	without := func(it *catalog.InstanceType, reason catalog.UnavailableReason) *catalog.InstanceType {
		for i := range it.Offerings {
			if o := &it.Offerings[i]; o.ReservationID == "" {
				o.Available, o.UnavailableReason = false, reason
			}
		}
		return it
	}
	for _, tt := range []struct {
		name      string
		it        *catalog.InstanceType
		edit      []func(*karpv1.NodePool)
		want      reservation.TemplateRoom
		exhausted bool
	}{
		{"full", WithReservation(small(), "cr-1", 0), []func(*karpv1.NodePool){reserved}, reservation.TemplateRoom{Only: true, Full: []string{"cr-1"}}, true},
		{"one of two is full", WithReservation(WithReservation(small(), "cr-1", 0), "cr-2", 3), []func(*karpv1.NodePool){reserved}, reservation.TemplateRoom{Only: true, Free: 3, Full: []string{"cr-1"}}, false},
		{"not healthy", healthy(WithReservation(small(), "cr-1", 0), false), []func(*karpv1.NodePool){reserved}, reservation.TemplateRoom{Only: true}, true},
		{"on-demand is allowed", WithReservation(small(), "cr-1", 0), nil, reservation.TemplateRoom{Full: []string{"cr-1"}}, false},
		{"on-demand lacks capacity now", without(WithReservation(small(), "cr-1", 0), ""), nil, reservation.TemplateRoom{Full: []string{"cr-1"}}, false},
		{"on-demand has no price", without(WithReservation(small(), "cr-1", 0), catalog.ReasonNoPrice), nil, reservation.TemplateRoom{Only: true, Full: []string{"cr-1"}}, true},
		{"nothing fits the template", small(), []func(*karpv1.NodePool){reserved}, reservation.TemplateRoom{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pool := Pool("p", []*catalog.InstanceType{tt.it}, tt.edit...)
			got, err := reservation.RoomFor(&pool, World(nil).Labels)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || got.Exhausted() != tt.exhausted {
				t.Errorf("exhausted %t (-want +got):\n%s", got.Exhausted(), diff)
			}
		})
	}
}

// One more free instance in a reservation changes nothing of the original, and nothing of other reservations.
func TestWithFreedSlot(t *testing.T) {
	full := WithReservation(WithReservation(Type("m.small", 0.05, "cpu", "1"), "cr-1", 0), "cr-2", 2)
	s := World([]snapshot.Pool{Pool("a", []*catalog.InstanceType{full}), Pool("b", []*catalog.InstanceType{full})})
	remaining := func(s *snapshot.Snapshot, pool int) map[string]int {
		out := map[string]int{}
		for _, o := range s.Pools[pool].InstanceTypes[0].Offerings {
			if o.ReservationID != "" && o.Available {
				out[o.ReservationID] = o.Remaining
			}
		}
		return out
	}
	for id, want := range map[string]map[string]int{"cr-1": {"cr-1": 1, "cr-2": 2}, "cr-2": {"cr-2": 3}} {
		freed, ok := reservation.WithFreedSlot(s, id)
		if !ok || !cmp.Equal(remaining(freed, 0), want) || freed.Pools[0].InstanceTypes[0] != freed.Pools[1].InstanceTypes[0] {
			t.Errorf("%s: %t, %v, want %v", id, ok, remaining(freed, 0), want)
		}
		if got := remaining(s, 0); !cmp.Equal(got, map[string]int{"cr-2": 2}) {
			t.Errorf("%s: the original has changed to %v", id, got)
		}
	}
	if _, ok := reservation.WithFreedSlot(s, "cr-unknown"); ok {
		t.Error("an unknown reservation has a free slot")
	}
}
