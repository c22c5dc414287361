package static

import (
	"context"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/reservation"
)

// reservedState is a cluster state with so much room in capacity reservations.
type reservedState struct {
	*cluster.State
	room reservation.TemplateRoom
}

func (s reservedState) ReservedRoom(context.Context, *karpv1.NodePool) (reservation.TemplateRoom, error) {
	return s.room, nil
}

// A claim beyond what the reservations have free would be launched in vain, again and again.
func TestReservationsBoundAStaticPool(t *testing.T) {
	f := controllertest.New(t, fixed(3, -1))
	r, nodes := reconciler(f), state(f)
	for _, step := range []struct {
		name string
		room reservation.TemplateRoom
		want int
	}{
		{"full", reservation.TemplateRoom{Only: true, Full: []string{"cr-1"}}, 0},
		{"one is free", reservation.TemplateRoom{Only: true, Free: 1}, 1},
		{"it is still free, since the claim has no instance yet", reservation.TemplateRoom{Only: true, Free: 1}, 1},
		{"full, but on-demand is allowed", reservation.TemplateRoom{Full: []string{"cr-1"}}, 3},
	} {
		r.State = reservedState{nodes, step.room}
		result := f.Reconcile(r, "general")
		wait := fullInterval
		if !step.room.Only {
			wait = recheckInterval
		}
		if got := len(live(t, f)); got != step.want || result.RequeueAfter != wait {
			t.Errorf("%s: %d claims, requeued after %v; want %d, %v", step.name, got, result.RequeueAfter, step.want, wait)
		}
	}
}

// EC2 counts a slot as free once the instance has terminated. A finalizer may hold the Node longer: until it is gone, its slot is not
// filled again, and no other slot of the pool is held back.
func TestSlotOfATerminatedNodeIsFilledOnceTheNodeIsGone(t *testing.T) {
	held := controllertest.Claim("held", controllertest.Initialized, func(c *karpv1.NodeClaim) {
		condition.SetTrue(c, karpv1.ConditionInstanceTerminating, controllertest.Start)
	})
	f := controllertest.New(t, fixed(2, -1), held, controllertest.ReadyNode("held"), controllertest.Claim("stays", controllertest.Initialized),
		controllertest.ReadyNode("stays"))
	r, nodes := reconciler(f), state(f)
	free := func(n int) {
		r.State = reservedState{nodes, reservation.TemplateRoom{Only: true, Free: n}}
		f.Reconcile(r, "general")
	}
	f.Do(f.API.Delete(t.Context(), held))
	for range 3 {
		free(1)
	}
	if got := live(t, f); len(got) != 1 {
		t.Fatalf("claims %v are there while the finalizer holds the node, want only the one that stays", got)
	}
	want := "1 of its nodes are terminating and count until they are gone"
	if events := f.RecordedEvents(); len(events) != 1 || !strings.Contains(events[0], "BelowReplicas") || !strings.Contains(events[0], want) {
		t.Errorf("events %q, want one that %s", events, want)
	}
	free(2)
	if got := live(t, f); len(got) != 2 {
		t.Errorf("claims %v are there although a second slot is free, want 2", got)
	}
}

// The node launched instead of a drifted one shows whether another may go: the breaker counts it.
func TestRefillOfADriftingPool(t *testing.T) {
	for gate, want := range map[bool]string{true: "Drifted", false: ""} {
		f := controllertest.New(t, fixed(2, 2), controllertest.Claim("a", controllertest.Initialized, func(c *karpv1.NodeClaim) {
			condition.SetTrueWithReason(c, karpv1.ConditionDrifted, condition.Because("AMIDrift", ""), controllertest.Start)
		}), controllertest.ReadyNode("a"))
		r := reconciler(f)
		r.TerminateFirst = gate
		f.Reconcile(r, "general")
		for _, name := range live(t, f) {
			if got := f.Claim(name).Annotations[karpv1.AnnotationLaunchReason]; name != "a" && got != want {
				t.Errorf("gate %t: the claim is launched for %q, want %q", gate, got, want)
			}
		}
		if n := len(live(t, f)); n != 2 {
			t.Errorf("gate %t: %d claims", gate, n)
		}
	}
}
