package ebs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// attach attaches a volume to the instance of a node. The finalizer is written before, so that a volume that is
// attached is always detached again.
func (c *Controller) attach(ctx context.Context, a *storagev1.VolumeAttachment) error {
	if a.Status.Attached {
		return nil
	}
	if !slices.Contains(a.Finalizers, finalizer) {
		a.Finalizers = append(a.Finalizers, finalizer)
		written, err := c.cfg.Client.StorageV1().VolumeAttachments().Update(ctx, a, metav1.UpdateOptions{})
		if err != nil {
			return gone(err)
		}
		a = written
	}
	pv, err := c.volumes.Get(*a.Spec.Source.PersistentVolumeName)
	if err != nil {
		return err
	}
	if !ours(pv) {
		return fmt.Errorf("volume %s is not of %s", pv.Name, Driver)
	}
	node, err := c.nodes.Get(a.Spec.NodeName)
	if err != nil {
		return err
	}
	instance := node.Spec.ProviderID[strings.LastIndexByte(node.Spec.ProviderID, '/')+1:]
	at, err := c.detachAll(a.Spec.NodeName)
	if err != nil {
		return err
	}
	_, err = c.cfg.EC2.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: &pv.Spec.CSI.VolumeHandle, InstanceId: &instance, Device: &at})
	if code(err) == "VolumeInUse" {
		at, err = c.attached(ctx, pv.Spec.CSI.VolumeHandle, instance, err)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("attach %s to %s: %w", pv.Spec.CSI.VolumeHandle, instance, err), c.updateStatus(ctx, a, err))
	}
	c.cfg.Log.Info("volume attached", "volume", pv.Spec.CSI.VolumeHandle, "node", a.Spec.NodeName)
	a.Status = storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"devicePath": at}}
	_, err = c.cfg.Client.StorageV1().VolumeAttachments().UpdateStatus(ctx, a, metav1.UpdateOptions{})
	return gone(err)
}

// updateStatus writes why a volume is not attached, once.
func (c *Controller) updateStatus(ctx context.Context, a *storagev1.VolumeAttachment, why error) error {
	if was := a.Status.AttachError; was != nil && was.Message == why.Error() {
		return nil
	}
	a.Status.AttachError = &storagev1.VolumeError{Time: metav1.Now(), Message: why.Error()}
	_, err := c.cfg.Client.StorageV1().VolumeAttachments().UpdateStatus(ctx, a, metav1.UpdateOptions{})
	return err
}

// attached is the device of a volume that is attached to an instance already, by a call with a lost response; otherwise
// the error is rejected.
func (c *Controller) attached(ctx context.Context, id, instance string, refused error) (string, error) {
	out, err := c.cfg.EC2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	if err != nil {
		return "", err
	}
	for _, v := range out.Volumes {
		for _, a := range v.Attachments {
			if aws.ToString(a.InstanceId) == instance {
				return aws.ToString(a.Device), nil
			}
		}
	}
	return "", refused
}

// detachAll is a device that no volume of the node has.
func (c *Controller) detachAll(node string) (string, error) {
	all, err := c.attachments.List(labels.Everything())
	if err != nil {
		return "", err
	}
	var used []string
	for _, a := range all {
		if a.Spec.NodeName == node {
			used = append(used, devicePath(a))
		}
	}
	if name := device(used); name != "" {
		return name, nil
	}
	return "", fmt.Errorf("node %s has no device left", node)
}

// detach detaches the volume of an attachment that is deleted, and lets the attachment go.
func (c *Controller) detach(ctx context.Context, a *storagev1.VolumeAttachment) error {
	if !slices.Contains(a.Finalizers, finalizer) {
		return nil
	}
	pv, err := c.volumes.Get(*a.Spec.Source.PersistentVolumeName)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil {
		_, err := c.cfg.EC2.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: aws.String(pv.Spec.CSI.VolumeHandle)})
		switch code(err) {
		case "", "IncorrectState", "InvalidVolume.NotFound": // there is nothing to detach
			if err != nil && code(err) == "" {
				return fmt.Errorf("detach %s: %w", pv.Spec.CSI.VolumeHandle, err)
			}
		default:
			return fmt.Errorf("detach %s: %w", pv.Spec.CSI.VolumeHandle, err)
		}
		c.cfg.Log.Info("volume detached", "volume", pv.Spec.CSI.VolumeHandle, "node", a.Spec.NodeName)
	}
	a.Finalizers = slices.DeleteFunc(a.Finalizers, func(f string) bool { return f == finalizer })
	_, err = c.cfg.Client.StorageV1().VolumeAttachments().Update(ctx, a, metav1.UpdateOptions{})
	return gone(err)
}

// gone is nil when the object is no longer there: then there is nothing to write.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
