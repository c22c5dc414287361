package zonalshift

import (
	"context"
	"fmt"

	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// Rebooter reboots instances, except in zones that the cluster is shifted away from: a fault there may be the zone's, which no
// reboot clears, and an instance that is rebooted while its zone is impaired may not come back. It is safe for concurrent use.
type Rebooter struct {
	instances *Instances
	rebooter  *instance.Rebooter
}

// NewRebooter returns a Rebooter.
func NewRebooter(instances *Instances, rebooter *instance.Rebooter) *Rebooter {
	return &Rebooter{instances: instances, rebooter: rebooter}
}

// Away reports whether the cluster is shifted away from the zone of a provider ID. It makes no calls.
func (r *Rebooter) Away(providerID string) bool { return r.instances.shiftedAway(providerID) }

// Reboot reboots an instance, as instance.Rebooter does. The error of an instance in a zone that is shifted away may pass.
func (r *Rebooter) Reboot(ctx context.Context, permit destroy.Permit) error {
	providerID, err := permit.ProviderID()
	if err != nil {
		return err
	}
	if err := r.refuse(providerID); err != nil {
		return err
	}
	return r.rebooter.Reboot(ctx, permit)
}

// CheckReboot reports whether an instance may be rebooted, without rebooting it. Its errors are those of Reboot.
func (r *Rebooter) CheckReboot(ctx context.Context, providerID string) error {
	if err := r.refuse(providerID); err != nil {
		return err
	}
	return r.rebooter.CheckReboot(ctx, providerID)
}

func (r *Rebooter) refuse(providerID string) error {
	if !r.Away(providerID) {
		return nil
	}
	return fmt.Errorf("the cluster is shifted away from the zone of %s, where nothing is rebooted", providerID)
}
