package provisioning

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/controller/quarantine"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// A controller that is being shut down launches nothing of a plan that it has not finished.
func TestShutdownAbandonsThePlan(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("a"), pending("b"))
	p := provisioner(f)
	snap, err := p.State.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.Quarantine = quarantine.NewRegistry(f.Now)
	if d := p.planAndLaunch(ctx, planned{all: snap, refused: &refusals{}}); !errors.Is(d.err, context.Canceled) || !strings.Contains(d.err.Error(), "abandoned") ||
		len(d.plan.Launches) > 0 {
		t.Errorf("error %v, %d launches", d.err, len(d.plan.Launches))
	}
	if got := claims(t, f.API); len(got) > 0 {
		t.Errorf("%d nodeclaims are created", len(got))
	}
}
