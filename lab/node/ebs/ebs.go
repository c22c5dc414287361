// Package ebs is the controller of a cluster's EBS CSI driver, with the sidecars that come with it: it creates the
// volumes that claims request, deletes those that are released, and attaches and detaches them for VolumeAttachments.
//
// What the driver does on a node, the package kubelet does while the driver's daemon runs there.
package ebs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
)

// Driver is the name of the driver.
const Driver = "ebs.csi.aws.com"

// finalizer keeps a VolumeAttachment until its volume is detached.
const finalizer = "external-attacher/ebs-csi-aws-com"

// EC2 is the part of the EC2 API that the driver calls.
type EC2 interface {
	CreateVolume(context.Context, *ec2.CreateVolumeInput, ...func(*ec2.Options)) (*ec2.CreateVolumeOutput, error)
	DeleteVolume(context.Context, *ec2.DeleteVolumeInput, ...func(*ec2.Options)) (*ec2.DeleteVolumeOutput, error)
	AttachVolume(context.Context, *ec2.AttachVolumeInput, ...func(*ec2.Options)) (*ec2.AttachVolumeOutput, error)
	DescribeVolumes(context.Context, *ec2.DescribeVolumesInput, ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error)
	DetachVolume(context.Context, *ec2.DetachVolumeInput, ...func(*ec2.Options)) (*ec2.DetachVolumeOutput, error)
}

// Config is what a controller needs; fields without a default are required.
type Config struct {
	Client kubernetes.Interface
	EC2    EC2
	// Zones are the zones for volumes without a selected node.
	Zones []string
	Log   *slog.Logger // default discards
}

// Controller is the driver's controller of one cluster.
type Controller struct {
	cfg         Config
	changed     chan struct{} // holds a token while there may be work
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	nodes       corelisters.NodeLister
	classes     storagelisters.StorageClassLister
	attachments storagelisters.VolumeAttachmentLister
}

// New returns a controller that has not talked to anyone.
func New(cfg Config) *Controller {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Controller{cfg: cfg, changed: make(chan struct{}, 1)}
}

// Run works until ctx is done. A controller runs once.
func (c *Controller) Run(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(c.cfg.Client, 0)
	core, storage := factory.Core().V1(), factory.Storage().V1()
	c.claims, c.volumes, c.nodes = core.PersistentVolumeClaims().Lister(), core.PersistentVolumes().Lister(), core.Nodes().Lister()
	c.classes, c.attachments = storage.StorageClasses().Lister(), storage.VolumeAttachments().Lister()
	var synced []cache.InformerSynced
	wake := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.wake() }, UpdateFunc: func(any, any) { c.wake() }, DeleteFunc: func(any) { c.wake() },
	}
	for _, i := range []cache.SharedIndexInformer{
		core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer(), storage.StorageClasses().Informer(),
		storage.VolumeAttachments().Informer(),
	} {
		if _, err := i.AddEventHandler(wake); err != nil {
			return fmt.Errorf("watch volumes: %w", err)
		}
		synced = append(synced, i.HasSynced)
	}
	synced = append(synced, core.Nodes().Informer().HasSynced)
	defer factory.Shutdown()
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	c.work(ctx)
	return nil
}

func (c *Controller) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// again is how long a failure waits for its next try.
const again = 500 * time.Millisecond

func (c *Controller) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
		if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Debug("volumes are not as they should be", "error", err.Error())
			time.AfterFunc(again, c.wake)
		}
	}
}

// sweep does what is to be done now.
func (c *Controller) sweep(ctx context.Context) error {
	claims, err1 := c.claims.List(labels.Everything())
	volumes, err2 := c.volumes.List(labels.Everything())
	attachments, err3 := c.attachments.List(labels.Everything())
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	var failures []error
	for _, pvc := range claims {
		if err := c.provision(ctx, pvc); err != nil {
			failures = append(failures, fmt.Errorf("claim %s/%s: %w", pvc.Namespace, pvc.Name, err))
		}
	}
	for _, pv := range volumes {
		if err := c.reclaim(ctx, pv); err != nil {
			failures = append(failures, fmt.Errorf("volume %s: %w", pv.Name, err))
		}
	}
	for _, a := range attachments {
		if a.Spec.Attacher != Driver || a.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		do := c.attach
		if a.DeletionTimestamp != nil {
			do = c.detach
		}
		if err := do(ctx, a.DeepCopy()); err != nil {
			failures = append(failures, fmt.Errorf("attachment %s: %w", a.Name, err))
		}
	}
	return errors.Join(failures...)
}

// ours reports whether a volume is the driver's.
func ours(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == Driver
}

// device is the first name for a volume that is not used; empty if there is none.
func device(used []string) string {
	for first := 'a'; first <= 'z'; first++ {
		for second := 'a'; second <= 'z'; second++ {
			if name := fmt.Sprintf("/dev/xvd%c%c", first, second); !slices.Contains(used, name) {
				return name
			}
		}
	}
	return ""
}

// devicePath is the attachment metadata key of the volume's device.
func devicePath(a *storagev1.VolumeAttachment) string {
	return a.Status.AttachmentMetadata["devicePath"]
}
