package operator

import (
	"context"
	"time"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclaim"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	"github.com/dovetail-k8s/dovetail/internal/aws/zonalshift"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// The methods of the cloud provider, as Karpenter's metrics name them.
const (
	methodCreate, methodDelete, methodGet, methodList = "Create", "Delete", "Get", "List"
	methodGetInstanceTypes, methodIsDrifted           = "GetInstanceTypes", "IsDrifted"
	methodReboot                                      = "Reboot"
)

// measured are the parts of the cloud provider for one controller, with their calls measured.
type measured struct {
	calls      *metrics.CloudCalls
	controller string
}

// measure returns the parts for a controller.
func (a *assembly) measure(controller string) measured {
	return measured{a.measures.cloudCalls, controller}
}

// instances measures calls about instances.
func (m measured) instances(i *zonalshift.Instances) measuredInstances {
	return measuredInstances{i, m}
}

type measuredInstances struct {
	*zonalshift.Instances
	by measured
}

// Get implements the interfaces of controllers.
func (i measuredInstances) Get(ctx context.Context, providerID string) (cloudprovider.Instance, error) {
	call := i.by.calls.Begin(i.by.controller, methodGet)
	out, err := i.Instances.Get(ctx, providerID)
	call.End("", err)
	return out, err
}

// List implements the interfaces of controllers.
func (i measuredInstances) List(ctx context.Context) ([]cloudprovider.Instance, error) {
	call := i.by.calls.Begin(i.by.controller, methodList)
	out, err := i.Instances.List(ctx)
	call.End("", err)
	return out, err
}

// Recent implements the interfaces of controllers. A listing that is in memory counts, too, and takes no time.
func (i measuredInstances) Recent(ctx context.Context, maxAge time.Duration) ([]cloudprovider.Instance, error) {
	call := i.by.calls.Begin(i.by.controller, methodList)
	out, err := i.Instances.Recent(ctx, maxAge)
	call.End("", err)
	return out, err
}

// Terminate implements the interfaces of controllers.
func (i measuredInstances) Terminate(ctx context.Context, permit destroy.Permit) error {
	call := i.by.calls.Begin(i.by.controller, methodDelete)
	err := i.Instances.Terminate(ctx, permit)
	call.End("", err)
	return err
}

// launcher measures launches.
func (m measured) launcher(l *nodeclaim.Launcher) measuredLauncher { return measuredLauncher{l, m} }

type measuredLauncher struct {
	*nodeclaim.Launcher
	by measured
}

// LaunchInBatch implements the interfaces of controllers.
func (l measuredLauncher) LaunchInBatch(
	ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass, annotate func(ctx context.Context, mark string) error,
) (cloudprovider.Launched, error) {
	call := l.by.calls.Begin(l.by.controller, methodCreate)
	out, err := l.Launcher.LaunchInBatch(ctx, claim, class, annotate)
	call.End(claim.Labels[karpv1.LabelNodePool], err)
	return out, err
}

// drift measures how instances are compared with their class.
func (m measured) drift(d *nodeclaim.DriftDetector) measuredDrift { return measuredDrift{d, m} }

type measuredDrift struct {
	*nodeclaim.DriftDetector
	by measured
}

// Drift implements the interfaces of controllers.
func (d measuredDrift) Drift(ctx context.Context, class *awsv1.EC2NodeClass, claim *karpv1.NodeClaim) (string, error) {
	call := d.by.calls.Begin(d.by.controller, methodIsDrifted)
	reason, err := d.DriftDetector.Drift(ctx, class, claim)
	call.End(claim.Labels[karpv1.LabelNodePool], err)
	return reason, err
}

// offerings measures how instance types are listed.
func (m measured) offerings(s *offerings.Source) measuredOfferings { return measuredOfferings{s, m} }

type measuredOfferings struct {
	*offerings.Source
	by measured
}

// InstanceTypes implements the interfaces of controllers.
func (o measuredOfferings) InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	call := o.by.calls.Begin(o.by.controller, methodGetInstanceTypes)
	out, err := o.Source.InstanceTypes(ctx, class)
	call.End("", err)
	return out, err
}

// rebooter measures reboots.
func (m measured) rebooter(r *zonalshift.Rebooter) measuredRebooter { return measuredRebooter{r, m} }

type measuredRebooter struct {
	*zonalshift.Rebooter
	by measured
}

// Reboot implements the interfaces of controllers.
func (r measuredRebooter) Reboot(ctx context.Context, permit destroy.Permit) error {
	call := r.by.calls.Begin(r.by.controller, methodReboot)
	err := r.Rebooter.Reboot(ctx, permit)
	call.End("", err)
	return err
}
