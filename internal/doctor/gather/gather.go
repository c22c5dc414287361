// Package gather reads the facts that package doctor evaluates. It only reads, and it records what it cannot read.
package gather

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Cloud reads from AWS.
type Cloud interface {
	List(ctx context.Context) ([]cloudprovider.Instance, error)
	InstanceTypes(ctx context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error)
	CheckNodeClass(ctx context.Context, class *awsv1.EC2NodeClass) []cloudprovider.Finding
	MissingPermissions(ctx context.Context) []string
}

// Sources states where facts come from.
type Sources struct {
	Kubernetes client.Reader
	// Pods lists all pods; nil reads them from Kubernetes.
	Pods func(ctx context.Context) ([]*corev1.Pod, error)
	// Cloud is nil where AWS cannot be called; NoCloud is why.
	Cloud       Cloud
	NoCloud     string
	ClusterName string
	// Mismatch states why the named cluster is not that of the API server; empty if it is.
	Mismatch string
	// Unproven states why it may be another one; empty if it is not. Then nothing is concluded from what the account has under this name.
	Unproven string
	Now      time.Time
}

// Facts reads everything that can be read.
func Facts(ctx context.Context, s Sources) *doctor.Facts {
	f := &doctor.Facts{Now: s.Now, ClusterName: s.ClusterName, Mismatch: s.Mismatch}
	var pools karpv1.NodePoolList
	var classes awsv1.EC2NodeClassList
	var claims karpv1.NodeClaimList
	var nodes corev1.NodeList
	var daemons appsv1.DaemonSetList
	var budgets policyv1.PodDisruptionBudgetList
	var storage storagev1.StorageClassList
	var volumes corev1.PersistentVolumeList
	var volumeClaims corev1.PersistentVolumeClaimList
	var attachments storagev1.VolumeAttachmentList
	for _, read := range []struct {
		fact doctor.Fact
		into client.ObjectList
	}{
		{doctor.NodePools, &pools},
		{doctor.NodeClasses, &classes},
		{doctor.NodeClaims, &claims},
		{doctor.Nodes, &nodes},
		{doctor.DaemonSets, &daemons},
		{doctor.PDBs, &budgets},
		{doctor.StorageClasses, &storage},
		{doctor.Volumes, &volumes},
		{doctor.VolumeClaims, &volumeClaims},
		{doctor.VolumeAttachments, &attachments},
	} {
		if err := s.Kubernetes.List(ctx, read.into, client.UnsafeDisableDeepCopy); err != nil {
			f.Miss(read.fact, err.Error())
		}
	}
	var err error
	if f.Pods, err = s.pods(ctx); err != nil {
		f.Miss(doctor.Pods, err.Error())
	}
	f.NodePools, f.NodeClasses, f.NodeClaims, f.Nodes = pools.Items, classes.Items, claims.Items, nodes.Items
	f.DaemonSets, f.PDBs, f.StorageClasses = daemons.Items, budgets.Items, storage.Items
	f.Volumes, f.VolumeClaims, f.VolumeAttachments = volumes.Items, volumeClaims.Items, attachments.Items
	readCloud(ctx, s, f)
	return f
}

func (s Sources) pods(ctx context.Context) ([]*corev1.Pod, error) {
	if s.Pods != nil {
		return s.Pods(ctx)
	}
	var list corev1.PodList
	err := s.Kubernetes.List(ctx, &list, client.UnsafeDisableDeepCopy)
	out := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, err
}

func readCloud(ctx context.Context, s Sources, f *doctor.Facts) {
	if s.Cloud == nil {
		facts := []doctor.Fact{doctor.Instances, doctor.InstanceTypes, doctor.Joining, doctor.Permissions}
		if s.Mismatch == "" {
			facts = append(facts, doctor.Identity)
		}
		for _, fact := range facts {
			f.Miss(fact, s.NoCloud)
		}
		return
	}
	var err error
	if f.Instances, err = s.Cloud.List(ctx); err != nil {
		f.Miss(doctor.Instances, err.Error())
	}
	if s.Unproven != "" && !f.SharesInstance() {
		why := fmt.Sprintf("whether %q of this account and region is the cluster of this API server is not known: %s", s.ClusterName, s.Unproven)
		f.Miss(doctor.Identity, why)
		f.Miss(doctor.Instances, why)
	}
	f.MissingPermissions = s.Cloud.MissingPermissions(ctx)
	f.Types, f.Joining = map[string][]*catalog.InstanceType{}, map[string][]cloudprovider.Finding{}
	for i := range f.NodeClasses {
		class := &f.NodeClasses[i]
		if class.Status.InstanceProfile != "" {
			f.Joining[class.Name] = s.Cloud.CheckNodeClass(ctx, class)
		}
		if len(class.Status.Subnets) == 0 {
			continue // nothing can be launched, which another check reports
		}
		if f.Types[class.Name], err = s.Cloud.InstanceTypes(ctx, class); err != nil {
			f.Miss(doctor.InstanceTypes, err.Error())
		}
	}
}
