package provisioning

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// lockedState records when the provisioning lock is held.
type lockedState struct {
	*cluster.State
	locked *bool
	cut    func()
}

func (w lockedState) LockProvisioning() func() {
	done := w.State.LockProvisioning()
	*w.locked = true
	return func() { *w.locked = false; done() }
}

func (w lockedState) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	w.cut()
	return w.State.Snapshot(ctx)
}

// Nobody else provisions from the snapshot on until the claims that were planned on it are there.
func TestProvisioningIsLockedFromSnapshotToClaims(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Pool("general"), pending("a"))
	p := provisioner(f)
	var locked bool
	var created int
	p.State = lockedState{stateOf(f.API, f.API, f.Now), &locked, func() {
		if !locked {
			t.Error("others may provision after the snapshot")
		}
	}}
	p.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*karpv1.NodeClaim); ok {
				created++
				if !locked {
					t.Error("others may provision before the claim is there")
				}
			}
			return api.Create(ctx, o, opts...)
		},
	})
	run(t, p)
	if created != 1 || locked {
		t.Errorf("%d claims created; still locked: %v", created, locked)
	}
}
