package nodeclass

import (
	"context"
	"errors"
	"time"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/dryrun"
	"github.com/dovetail-k8s/dovetail/internal/aws/instanceprofile"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Resources describes what is created in AWS for node classes: instance profiles and launch templates.
type Resources struct{ cfg ResourcesConfig }

// ResourcesConfig describes what Resources are made of. All of it is needed.
type ResourcesConfig struct {
	Profiles  *instanceprofile.Profiles
	Templates *launch.Templates
	DryRuns   *dryrun.Cache
	Meter     cloudprovider.Meter
	// IsolatedVPC has no route to IAM, other than to create profiles: none is deleted there.
	IsolatedVPC bool
}

// NewResources returns Resources. It makes no calls.
func NewResources(cfg ResourcesConfig) *Resources { return &Resources{cfg: cfg} }

// DeleteNodeClassResources deletes the launch templates and instance profiles of a class.
func (r *Resources) DeleteNodeClassResources(ctx context.Context, class *awsv1.EC2NodeClass) error {
	var profiles error
	if !r.cfg.IsolatedVPC {
		profiles = r.cfg.Profiles.DeleteAll(ctx, string(class.UID))
	}
	r.cfg.DryRuns.Invalidate(string(class.UID))
	templates := r.cfg.Templates.DeleteAll(ctx, class.Name)
	if templates == nil {
		r.cfg.Meter.UserData(class.Name, -1)
	}
	return errors.Join(profiles, templates)
}

// CollectLaunchTemplates deletes launch templates of this cluster that were created before cutoff and are not in use.
func (r *Resources) CollectLaunchTemplates(ctx context.Context, cutoff time.Time) error {
	return r.cfg.Templates.CollectGarbage(ctx, cutoff)
}

// CollectInstanceProfiles deletes instance profiles of this cluster that have not been used for an hour, and returns their names.
// It calls use after it has listed them, so that one that is taken into use meanwhile stays. In an isolated VPC it does nothing.
func (r *Resources) CollectInstanceProfiles(
	ctx context.Context, use func(ctx context.Context) (cloudprovider.ProfileUse, error),
) ([]string, error) {
	if r.cfg.IsolatedVPC {
		return nil, nil
	}
	return r.cfg.Profiles.CollectGarbage(ctx, use)
}
