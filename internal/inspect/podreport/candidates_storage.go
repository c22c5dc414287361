package podreport

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// ebsProvisioner is the CSI driver of volumes that nodes on EC2 can attach.
const ebsProvisioner = "ebs.csi.aws.com"

// storageClassManifest has a name, a provisioner and a binding mode.
const storageClassManifest = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: %s
provisioner: %s
volumeBindingMode: %s
`

// volumes proposes changes of the storage objects of the pod.
func (g *generator) volumes() {
	for i := range g.pod.Spec.Volumes {
		source := g.pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim := g.lab.base.Volumes.Claims[types.NamespacedName{Namespace: g.pod.Namespace, Name: source.ClaimName}]
		if claim == nil {
			g.missingClaim(i, source.ClaimName)
			continue
		}
		if claim.Spec.VolumeName == "" {
			g.unboundClaim(claim)
		}
		if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) && g.hasCode("VolumeInUse") {
			g.usedClaim(claim)
		}
	}
}

// missingClaim proposes to correct the name of a claim that does not exist.
func (g *generator) missingClaim(i int, name string) {
	var known []string
	for k := range g.lab.base.Volumes.Claims {
		if k.Namespace == g.pod.Namespace {
			known = append(known, k.Name)
		}
	}
	if near := nearest(name, known); near != "" {
		g.add(fmt.Sprintf("In %s, correct the volume claim %s to %s.", g.workload, name, near), corrects, g.editPod(Operation{
			Op: "replace", Path: pointer("spec", "volumes", i, "persistentVolumeClaim", "claimName"), Value: near,
		}))
	}
}

// unboundClaim proposes changes of the storage class of a claim without a volume.
func (g *generator) unboundClaim(claim *corev1.PersistentVolumeClaim) {
	classes := g.lab.base.Volumes.StorageClasses
	name := volume.ClassName(claim)
	class := classes[name]
	switch {
	case name == "":
		for _, other := range slices.Sorted(maps.Keys(classes)) {
			g.reclaim(claim, storage, other)
		}
	case class == nil:
		if near := nearest(name, slices.Sorted(maps.Keys(classes))); near != "" {
			g.reclaim(claim, corrects, near)
		}
		g.createClass(name)
	case class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingImmediate:
		g.waitForConsumer(class)
	}
}

// reclaim proposes to create a claim anew with another storage class. It has no volume, so that no data is lost.
func (g *generator) reclaim(claim *corev1.PersistentVolumeClaim, r reach, class string) {
	patch := []Operation{{Op: "add", Path: "/spec/storageClassName", Value: class}}
	o := Object{"PersistentVolumeClaim", claim.Namespace, claim.Name}
	e := edit{Edit: Edit{Object: o, Action: Recreate, Fields: changes(claim, patch, ""), Patch: patch}}
	e.apply = func(t *trial) bool {
		key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
		changed, err := patched(t.Volumes.Claims[key], patch)
		if err == nil {
			t.Volumes.Claims[key] = changed
		}
		return err == nil
	}
	g.add(fmt.Sprintf("Create %s anew with storage class %s: it has no volume yet.", o, class), r, e)
}

// createClass proposes to create a storage class that a claim names.
func (g *generator) createClass(name string) {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	e := edit{Edit: Edit{
		Object: Object{Kind: "StorageClass", Name: name}, Action: Create, Fields: []FieldChange{}, Patch: []Operation{},
		Manifest: fmt.Sprintf(storageClassManifest, name, ebsProvisioner, wait),
	}}
	e.apply = func(t *trial) bool {
		class := &storagev1.StorageClass{Provisioner: ebsProvisioner, VolumeBindingMode: &wait}
		class.Name = name
		t.Volumes.StorageClasses[name] = class
		return true
	}
	g.add(fmt.Sprintf("Create StorageClass %s, for EBS volumes that wait for their first pod.", name), storage, e)
}

// waitForConsumer proposes that a storage class waits for the pod with the choice of a zone.
func (g *generator) waitForConsumer(class *storagev1.StorageClass) {
	patch := []Operation{{Op: "replace", Path: "/volumeBindingMode", Value: string(storagev1.VolumeBindingWaitForFirstConsumer)}}
	o := Object{Kind: "StorageClass", Name: class.Name}
	e := edit{Edit: Edit{Object: o, Action: Recreate, Fields: changes(class, patch, ""), Patch: patch}}
	e.apply = func(t *trial) bool {
		changed, err := patched(t.Volumes.StorageClasses[class.Name], patch)
		if err == nil {
			t.Volumes.StorageClasses[class.Name] = changed
		}
		return err == nil
	}
	g.add(fmt.Sprintf("Create %s anew with volumeBindingMode WaitForFirstConsumer: volumes exist on after it.", o), shared, e)
}

// usedClaim proposes to delete the pod that uses a claim which only one pod can use.
func (g *generator) usedClaim(claim *corev1.PersistentVolumeClaim) {
	for _, p := range g.view.Pods {
		uses := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
		})
		if !uses || p.Namespace != claim.Namespace || p.UID == g.pod.UID || snapshot.Terminal(p) {
			continue
		}
		o := Object{"Pod", p.Namespace, p.Name}
		e := edit{Edit: Edit{Object: o, Action: Delete, Fields: []FieldChange{}, Patch: []Operation{}, Command: "kubectl delete " + o.resource()}}
		e.apply = func(t *trial) bool {
			t.removePod(p.UID)
			return true
		}
		g.add(fmt.Sprintf("Let %s go, which uses volume claim %s: its access mode is ReadWriteOncePod.", o, claim.Name), others, e)
	}
}
