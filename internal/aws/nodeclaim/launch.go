// Package nodeclaim is what EC2 has for a NodeClaim: it launches the claim's instance, finds it again, and detects when the
// instance drifts from the claim's node class.
package nodeclaim

import (
	"context"
	"fmt"
	"log/slog"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/inventory"
	"github.com/dovetail-k8s/dovetail/internal/aws/launch"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclass"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	"github.com/dovetail-k8s/dovetail/internal/aws/placement"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// LauncherConfig describes what a Launcher is made of. All but Overlay is needed.
type LauncherConfig struct {
	Launch    *launch.Launcher
	Offerings *offerings.Source
	Inventory *inventory.Source
	Groups    *placement.Finder
	Cluster   *ekscluster.Cluster
	// Overlay applies the NodeOverlays of the claim's pool to instance types. Nil leaves the types as they are.
	Overlay func(ctx context.Context, claim *karpv1.NodeClaim, types []*catalog.InstanceType) ([]*catalog.InstanceType, error)
	Log     *slog.Logger
}

// Launcher launches the instances of claims. It is safe for concurrent use.
type Launcher struct{ cfg LauncherConfig }

// NewLauncher returns a Launcher. It makes no calls.
func NewLauncher(cfg LauncherConfig) *Launcher { return &Launcher{cfg: cfg} }

// FindByClaim returns the instances of this cluster that were launched for a claim, whatever the claim's status is. After an
// error, it is not known whether there are any.
func (l *Launcher) FindByClaim(ctx context.Context, claim *karpv1.NodeClaim) ([]cloudprovider.Instance, error) {
	return l.cfg.Launch.Find(ctx, claim)
}

// Launching reports whether a launch for the claim with this UID is in progress, or its outcome not known yet.
func (l *Launcher) Launching(claimUID string) bool { return l.cfg.Launch.InProgress(claimUID) }

// Launch launches the claim's instance, or finds the one that was launched for it before. Called again for the same claim, it
// returns the same instance. Errors are those of package cloudprovider.
func (l *Launcher) Launch(ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass) (cloudprovider.Launched, error) {
	return l.launch(ctx, claim, class, nil)
}

// LaunchInBatch is Launch with one call for all claims with the same requirements that arrive at about the same time. Before
// that call, annotate gets the new value of the claim's annotation karpv1.AnnotationLaunch; it must write it, and fail if the
// claim has changed since it was read. A claim without the annotation is launched alone.
func (l *Launcher) LaunchInBatch(
	ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass, annotate func(ctx context.Context, mark string) error,
) (cloudprovider.Launched, error) {
	return l.launch(ctx, claim, class, annotate)
}

func (l *Launcher) launch(
	ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass, annotate launch.Annotate,
) (cloudprovider.Launched, error) {
	defer l.cfg.Launch.Begin(string(claim.UID))()
	i, adopted, err := l.cfg.Launch.Adopt(ctx, claim)
	resume := err != nil && annotate != nil && l.cfg.Launch.Resumable(claim, err)
	if err != nil && !resume {
		return cloudprovider.Launched{}, err
	}
	if key := nodeclass.RestrictedTag(class.Spec.Tags); key != "" && !adopted {
		return cloudprovider.Launched{}, &cloudprovider.NodeClassNotReadyError{
			Err: fmt.Errorf("node class %q sets the tag %s, which is reserved: remove it from spec.tags", class.Name, key),
		}
	}
	types, kubelets, err := l.types(ctx, claim, class)
	if err != nil {
		return cloudprovider.Launched{}, err
	}
	group, err := l.cfg.Groups.ForLaunch(ctx, class)
	order := launch.Request{Claim: claim, Class: class, Types: types, Group: group, Kubelet: kubelets}
	switch {
	case adopted:
		err = nil
	case err != nil:
	case annotate == nil || launch.IsAlone(claim):
		i, err = l.cfg.Launch.Launch(ctx, order, annotate)
	case resume:
		i, err = l.cfg.Launch.Resume(ctx, order, annotate)
	default:
		i, err = l.cfg.Launch.LaunchInBatch(ctx, order, annotate)
	}
	if err != nil {
		return cloudprovider.Launched{}, err
	}
	l.cfg.Log.Debug("launched instance", "claim", claim.Name, "instance", i.ID, "type", i.Type, "zone", i.Zone,
		"capacityType", i.CapacityType, "adopted", adopted)
	hash, err := nodeclass.Hash(class, l.cfg.Cluster.Bootstrap())
	if err != nil {
		return cloudprovider.Launched{}, fmt.Errorf("hash node class %s: %w", class.Name, err)
	}
	return launched(i, order, hash), nil
}

// types are the instance types that a claim can be launched as, with their kubelet configuration. Without them not even an
// adopted instance is of use: its labels come from its type.
func (l *Launcher) types(
	ctx context.Context, claim *karpv1.NodeClaim, class *awsv1.EC2NodeClass,
) ([]*catalog.InstanceType, inventory.Kubelet, error) {
	types, err := l.cfg.Offerings.InstanceTypes(ctx, class)
	var kubelets inventory.Kubelet
	if err == nil {
		kubelets, err = l.cfg.Inventory.Kubelets(ctx, class)
	}
	if err != nil {
		return nil, kubelets, &cloudprovider.CreateError{
			Reason: "InstanceTypeResolutionFailed", Message: awserrors.WithoutRequestIDs(err).Error(), Err: err,
		}
	}
	if l.cfg.Overlay != nil {
		types, err = l.cfg.Overlay(ctx, claim, types)
	}
	return types, kubelets, err
}
