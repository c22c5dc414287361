package doctor

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// Fact is a kind of data that was read, or could not be read.
type Fact string

// The facts.
const (
	NodePools         Fact = "NodePools"
	NodeClasses       Fact = "EC2NodeClasses"
	NodeClaims        Fact = "NodeClaims"
	Nodes             Fact = "Nodes"
	Pods              Fact = "Pods"
	DaemonSets        Fact = "DaemonSets"
	PDBs              Fact = "PodDisruptionBudgets"
	StorageClasses    Fact = "StorageClasses"
	Volumes           Fact = "PersistentVolumes"
	VolumeClaims      Fact = "PersistentVolumeClaims"
	VolumeAttachments Fact = "VolumeAttachments"
	Instances         Fact = "EC2 instances"
	InstanceTypes     Fact = "EC2 instance types"
	Joining           Fact = "what keeps nodes from joining"
	Identity          Fact = "the identity of the cluster"
	Permissions       Fact = "permissions in AWS"
)

// Facts describes what the checks evaluate. They are shared, and only read.
type Facts struct {
	Now time.Time
	// Missed states why a fact could not be read. A fact that is not in it was read.
	Missed map[Fact]string

	NodePools         []karpv1.NodePool
	NodeClasses       []awsv1.EC2NodeClass
	NodeClaims        []karpv1.NodeClaim
	Nodes             []corev1.Node
	Pods              []*corev1.Pod
	DaemonSets        []appsv1.DaemonSet
	PDBs              []policyv1.PodDisruptionBudget
	StorageClasses    []storagev1.StorageClass
	Volumes           []corev1.PersistentVolume
	VolumeClaims      []corev1.PersistentVolumeClaim
	VolumeAttachments []storagev1.VolumeAttachment

	// ClusterName is the name that the controller uses. Mismatch states why it is not the name of this API server's
	// cluster; empty if it is.
	ClusterName, Mismatch string
	// Instances are the instances with the cluster's name in their tags, no matter who owns them.
	Instances []cloudprovider.Instance
	// Types holds what can be launched, by node class.
	Types map[string][]*catalog.InstanceType
	// Joining are the findings about nodes that cannot join, by node class.
	Joining map[string][]cloudprovider.Finding
	// MissingPermissions are actions that the role may not do, such as "ec2:DescribeImages".
	MissingPermissions []string
}

// missing returns which of the needs is not met, and the cause alone; empty if all are met.
func (f *Facts) missing(needs []Fact) (missed, cause string) {
	for _, need := range needs {
		if why, missed := f.Missed[need]; missed {
			return string(need) + " could not be read: " + why, why
		}
	}
	return "", ""
}

// Miss records that a fact could not be read.
func (f *Facts) Miss(fact Fact, why string) {
	if f.Missed == nil {
		f.Missed = map[Fact]string{}
	}
	f.Missed[fact] = why
}

// SharesInstance reports whether an instance with the cluster's name is one of this API server: it has the UID of this cluster, or a Node
// here stands for it. The IDs of instances are unique, so account, region and name are then those of this cluster.
func (f *Facts) SharesInstance() bool {
	joined := map[string]bool{}
	for i := range f.Nodes {
		joined[instanceID(f.Nodes[i].Spec.ProviderID)] = true
	}
	return slices.ContainsFunc(f.Instances, func(i cloudprovider.Instance) bool { return i.Owner == cloudprovider.Ours || joined[i.ID] })
}

// instanceID is the last part of a provider ID.
func instanceID(providerID string) string {
	return providerID[strings.LastIndexByte(providerID, '/')+1:]
}

// proven reports whether the account, region and name are those of this API server's cluster.
func (f *Facts) proven() bool {
	_, unknown := f.Missed[Identity]
	return f.Mismatch == "" && !unknown
}
