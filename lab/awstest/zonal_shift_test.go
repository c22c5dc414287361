package awstest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

const clusterARN = "arn:aws:eks:us-east-1:111122223333:cluster/" + clusterName

// shifting starts a process that follows zonal shifts.
func (w *world) shifting() *cloud {
	cfg := w.config("uid-1")
	cfg.ZonalShift = true
	c := w.start(cfg)
	w.refreshed(c)
	return c
}

func (w *world) refreshed(c *cloud) {
	w.t.Helper()
	if err := c.RefreshZonalShifts(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// shift begins a zonal shift away from the zone of a name, and returns its ID.
func (w *world) shift(class *awsv1.EC2NodeClass, zone string, life time.Duration) string {
	w.t.Helper()
	n := slices.IndexFunc(class.Status.Subnets, func(s awsv1.Subnet) bool { return s.Zone == zone })
	if err := w.Sim.ZonalShifts().Start(clusterARN, class.Status.Subnets[n].ZoneID, life); err != nil {
		w.t.Fatal(err)
	}
	return class.Status.Subnets[n].ZoneID
}

func TestZonalShift(t *testing.T) {
	w := newWorld(t)
	c := w.shifting()
	class := nodeClass("default")
	resolve(t, c, class)
	sold := func() map[string]bool {
		t.Helper()
		types, err := c.InstanceTypes(t.Context(), class)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, o := range typeNamed(t, types, "m5.large").Offerings {
			out[o.Zone] = out[o.Zone] || o.Available
		}
		return out
	}
	if !sold()["us-east-1a"] {
		t.Fatal("m5.large is not sold in zone a")
	}
	id := w.shift(class, "us-east-1a", time.Hour)
	w.refreshed(c)
	if got := sold(); got["us-east-1a"] || !got["us-east-1b"] || !slices.Equal(c.ShiftedZones(), []string{id}) {
		t.Errorf("sold in %v, shifted %v", got, c.ShiftedZones())
	}
	var scarce *cloudprovider.InsufficientCapacityError
	if _, err := c.Launch(t.Context(), claim("a", onDemand, in(corev1.LabelTopologyZone, "us-east-1a")), class); !errors.As(err, &scarce) {
		t.Errorf("launched in the zone: %v", err)
	}
	t.Run("elsewhere nodes are launched", func(t *testing.T) {
		launched(t, c, class, claim("b", onDemand))
		if i := w.runningInstances()[0]; i.Zone == "us-east-1a" {
			t.Errorf("in %s", i.Zone)
		}
	})
	t.Run("without an answer the shift holds", func(t *testing.T) {
		w.Sim.Inject(awsim.Fault{Service: "arc-zonal-shift", Error: protocol.Errorf("InternalServerException", "bad minute").WithStatus(500)})
		if err := c.RefreshZonalShifts(t.Context()); err == nil || sold()["us-east-1a"] {
			t.Errorf("%v, sold in %v", err, sold())
		}
		if s := c.ZonalShiftState(); s.Err == nil || s.Read.IsZero() {
			t.Errorf("the state is %+v", s)
		}
	})
	t.Run("a shift that is cancelled ends, and another holds", func(t *testing.T) {
		w.Sim.ZonalShifts().Cancel(clusterARN)
		w.shift(class, "us-east-1b", time.Hour)
		w.refreshed(c)
		if got := sold(); !got["us-east-1a"] || got["us-east-1b"] {
			t.Errorf("sold in %v", got)
		}
	})
	t.Run("the shift expires without a call", func(t *testing.T) {
		w.Clock.Advance(time.Hour)
		if got := sold(); !got["us-east-1a"] || !got["us-east-1b"] || len(c.ShiftedZones()) > 0 {
			t.Errorf("sold in %v, shifted %v", got, c.ShiftedZones())
		}
	})
	t.Run("who does not follow shifts is not concerned", func(t *testing.T) {
		w.shift(class, "us-east-1a", time.Hour)
		other := w.start(w.config("uid-1"))
		w.refreshed(other)
		if len(other.ShiftedZones()) > 0 {
			t.Errorf("shifted %v", other.ShiftedZones())
		}
	})
}

func TestInstancesInAShiftedZone(t *testing.T) {
	w := newWorld(t)
	c := w.shifting()
	class := nodeClass("default")
	resolve(t, c, class)
	inZone := func(name, zone string) string {
		return launched(t, c, class, claim(name, onDemand, in(corev1.LabelTopologyZone, zone))).Status.ProviderID
	}
	a, a2, b := inZone("a", "us-east-1a"), inZone("a2", "us-east-1a"), inZone("b", "us-east-1b")
	w.Clock.Advance(5 * time.Minute)
	listed := func() (ids []string) {
		t.Helper()
		all, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range all {
			ids = append(ids, i.ProviderID)
		}
		return sorted(ids...)
	}
	if got := listed(); !slices.Equal(got, sorted(a, a2, b)) {
		t.Fatalf("listed %v", got)
	}
	w.shift(class, "us-east-1a", 3*time.Hour)
	w.refreshed(c)
	// EC2 loses sight of the instances: a listing is without them, and requested by ID they are unknown.
	blind := func(times int) {
		w.Sim.Inject(
			awsim.Fault{
				Service: "ec2",
				Action:  "DescribeInstances",
				Error:   protocol.Errorf("InvalidInstanceID.NotFound", "The instance ID does not exist").WithStatus(400),
				Times:   times,
			},
		)
	}
	t.Run("one that EC2 does not know is not taken to be gone", func(t *testing.T) {
		for what, ask := range map[string]func(id string) error{
			"read":       func(id string) error { _, err := c.Get(t.Context(), id); return err },
			"terminated": func(id string) error { return c.Terminate(t.Context(), destroytest.Permit(id)) },
			"named":      func(id string) error { return c.Name(t.Context(), id, "node", "claim") },
		} {
			blind(4)
			if err := ask(a); err == nil || errors.Is(err, cloudprovider.ErrNotFound) ||
				!strings.Contains(err.Error(), "its zone is shifted away") {
				t.Errorf("%s: %v", what, err)
			}
			w.Sim.ClearFaults()
			blind(4)
			if err := ask(b); !errors.Is(err, cloudprovider.ErrNotFound) {
				t.Errorf("%s in another zone: %v", what, err)
			}
			w.Sim.ClearFaults()
		}
	})
	t.Run("an instance in the shifted zone can be found and terminated", func(t *testing.T) {
		if err := c.Name(t.Context(), a, "node-a", "a"); err != nil {
			t.Error(err)
		}
		if err := c.Terminate(t.Context(), destroytest.Permit(a)); err != nil {
			t.Error(err)
		}
		w.Clock.Advance(time.Minute)
		if err := c.Terminate(t.Context(), destroytest.Permit(a)); !errors.Is(err, cloudprovider.ErrNotFound) {
			t.Errorf("once it is terminated: %v", err)
		}
		if got := listed(); !slices.Equal(got, sorted(a2, b)) {
			t.Errorf("listed %v", got)
		}
	})
	t.Run("nothing is rebooted in the shifted zone", func(t *testing.T) {
		reboot := func(ctx context.Context, id string) error { return c.Reboot(ctx, destroytest.Permit(id)) }
		for _, call := range []func(context.Context, string) error{c.CheckReboot, reboot} {
			if err := call(t.Context(), a2); err == nil || errors.Is(err, cloudprovider.ErrRebootRefused) ||
				!strings.Contains(err.Error(), "shifted away") {
				t.Errorf("error %v, want one that may pass", err)
			}
			// The policy of a controller without the feature gate RebootForRepair does not allow it.
			if err := call(t.Context(), b); !errors.Is(err, cloudprovider.ErrRebootRefused) {
				t.Errorf("in another zone EC2 does not decide: %v", err)
			}
		}
		if !c.Away(a2) || c.Away(b) {
			t.Errorf("%t, %t", c.Away(a2), c.Away(b))
		}
	})
	admin := ec2.NewFromConfig(w.Config)
	instanceID := func(id string) []string { return []string{id[strings.LastIndexByte(id, '/')+1:]} }
	t.Run("one that a listing misses is gone from it, unless its zone is shifted", func(t *testing.T) {
		for _, id := range []string{a2, b} { // listings go by tags
			awsimtest.OK(
				admin.DeleteTags(
					t.Context(),
					&ec2.DeleteTagsInput{Resources: instanceID(id), Tags: []ec2types.Tag{{Key: awssdk.String(awsv1.TagNodePool)}}},
				),
			)(
				t,
			)
		}
		w.Clock.Advance(time.Minute)
		for range 2 {
			if got := listed(); !slices.Equal(got, []string{a2}) {
				t.Errorf("listed %v", got)
			}
		}
		t.Run("until EC2 reports it as terminated", func(t *testing.T) {
			awsimtest.OK(admin.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: instanceID(a2)}))(t)
			w.Clock.Advance(time.Minute)
			if got := listed(); len(got) > 0 {
				t.Errorf("listed %v", got)
			}
		})
	})
}

func TestZonalShiftCannotBeRead(t *testing.T) {
	w := newWorld(t)
	cfg := w.config("uid-1")
	cfg.ZonalShift = true
	c := w.start(cfg)
	for _, tc := range []struct {
		name, says string
		fault      awsim.Fault
	}{
		{"it is not enabled for the cluster", "--zonal-shift-config enabled=true", awsim.Fault{
			Service: "arc-zonal-shift",
			Error:   protocol.Errorf("ResourceNotFoundException", "The resource could not be found.").WithStatus(404),
		}},
		{"it may not be read", "allow arc-zonal-shift:GetManagedResource", awsim.Fault{
			Service: "arc-zonal-shift",
			Error:   protocol.Errorf("AccessDeniedException", "User is not authorized").WithStatus(403),
		}},
		{"EKS does not tell the cluster's ARN", "describe EKS cluster", awsim.Fault{
			Service: "eks",
			Error:   protocol.Errorf("AccessDeniedException", "User is not authorized").WithStatus(403),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w.Sim.Inject(tc.fault)
			defer w.Sim.ClearFaults()
			fresh := c
			if tc.fault.Service == "eks" {
				w.Sim.ClearFaults()
				fresh = w.start(cfg)
				w.Sim.Inject(tc.fault)
			}
			if err := fresh.RefreshZonalShifts(t.Context()); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %q in it", err, tc.says)
			}
		})
	}
}
