package ebs

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	annotationProvisioner  = "volume.kubernetes.io/storage-provisioner" // written when a claim waits for the driver
	annotationSelectedNode = "volume.kubernetes.io/selected-node"       // written by the scheduler
	annotationProvisioned  = "pv.kubernetes.io/provisioned-by"
	gibi                   = int64(1) << 30
)

// provision creates the volume of a claim that waits for one, and the object that the claim is bound to.
func (c *Controller) provision(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	if pvc.Spec.VolumeName != "" || pvc.DeletionTimestamp != nil || pvc.Annotations[annotationProvisioner] != Driver ||
		pvc.Spec.StorageClassName == nil {
		return nil
	}
	name := "pvc-" + string(pvc.UID)
	if _, err := c.volumes.Get(name); err == nil {
		return nil // it is about to be bound
	}
	class, err := c.classes.Get(*pvc.Spec.StorageClassName)
	if err != nil {
		return err
	}
	zone, err := c.zone(pvc, class)
	if err != nil {
		return err
	}
	size := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	tags := map[string]string{
		"ebs.csi.aws.com/cluster": "true", "CSIVolumeName": name, "kubernetes.io/created-for/pvc/name": pvc.Name,
		"kubernetes.io/created-for/pvc/namespace": pvc.Namespace, "kubernetes.io/created-for/pv/name": name,
	}
	spec := ec2types.TagSpecification{ResourceType: ec2types.ResourceTypeVolume}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		spec.Tags = append(spec.Tags, ec2types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	volume, err := c.cfg.EC2.CreateVolume(ctx, &ec2.CreateVolumeInput{
		AvailabilityZone: &zone, Size: aws.Int32(int32(max(1, (size.Value()+gibi-1)/gibi))), VolumeType: ec2types.VolumeTypeGp3,
		ClientToken: aws.String(string(pvc.UID)), TagSpecifications: []ec2types.TagSpecification{spec},
	})
	if err != nil {
		return fmt.Errorf("create volume: %w", err)
	}
	_, err = c.cfg.Client.CoreV1().PersistentVolumes().Create(
		ctx,
		persistentVolume(name, pvc, class, ebsVolume{id: aws.ToString(volume.VolumeId), zone: zone}),
		metav1.CreateOptions{},
	)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// zone is where the volume of a claim has to be: where the scheduler wants its pod, or, if the class does not wait for
// that, anywhere that the class allows.
func (c *Controller) zone(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (string, error) {
	if selected := pvc.Annotations[annotationSelectedNode]; selected != "" {
		node, err := c.nodes.Get(selected)
		if err != nil {
			return "", err
		}
		if zone := node.Labels[corev1.LabelTopologyZone]; zone != "" {
			return zone, nil
		}
		return "", fmt.Errorf("node %s has no zone yet", selected)
	}
	if class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer {
		return "", errors.New("no node is selected yet")
	}
	zones := c.cfg.Zones
	for _, term := range class.AllowedTopologies {
		for _, r := range term.MatchLabelExpressions {
			if r.Key == corev1.LabelTopologyZone || r.Key == "topology."+Driver+"/zone" {
				zones = r.Values
			}
		}
	}
	if len(zones) == 0 {
		return "", errors.New("the driver knows no zone")
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(pvc.Namespace + "/" + pvc.Name)) // a hash does not fail
	return zones[h.Sum32()%uint32(len(zones))], nil
}

// ebsVolume is an EBS volume and its zone.
type ebsVolume struct{ id, zone string }

func persistentVolume(
	name string,
	pvc *corev1.PersistentVolumeClaim,
	class *storagev1.StorageClass,
	v ebsVolume,
) *corev1.PersistentVolume {
	reclaim := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		reclaim = *class.ReclaimPolicy
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationProvisioned: Driver}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: pvc.Spec.Resources.Requests[corev1.ResourceStorage],
			}, AccessModes: pvc.Spec.AccessModes,
			StorageClassName: class.Name, PersistentVolumeReclaimPolicy: reclaim, VolumeMode: pvc.Spec.VolumeMode,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: v.id, FSType: "ext4"},
			},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID,
				ResourceVersion: pvc.ResourceVersion,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{v.zone}},
				},
			}}}},
		},
	}
}

// reclaim deletes a volume that nobody claims any more.
func (c *Controller) reclaim(ctx context.Context, pv *corev1.PersistentVolume) error {
	if !ours(pv) || pv.Status.Phase != corev1.VolumeReleased ||
		pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		pv.DeletionTimestamp != nil {
		return nil
	}
	_, err := c.cfg.EC2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &pv.Spec.CSI.VolumeHandle})
	if err != nil && code(err) != "InvalidVolume.NotFound" {
		return fmt.Errorf("delete volume: %w", err)
	}
	err = c.cfg.Client.CoreV1().PersistentVolumes().Delete(
		ctx,
		pv.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pv.UID}},
	)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// code is the code of an AWS error; empty for any other.
func code(err error) string {
	var failure smithy.APIError
	if errors.As(err, &failure) {
		return failure.ErrorCode()
	}
	return ""
}
