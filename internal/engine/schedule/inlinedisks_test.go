package schedule_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// inline has the pod name disks itself, without a claim.
func inline(sources ...corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, s := range sources {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "disk", VolumeSource: s})
		}
	}
}

func ebsDisk(id string) corev1.VolumeSource {
	return corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id}}
}

// TestDisksThatPodsNameThemselves: kube-scheduler does not let two pods of a node use one, unless both only read, and counts EBS volumes
// against the node's attach limit.
func TestDisksThatPodsNameThemselves(t *testing.T) {
	two := func(a, b corev1.VolumeSource) []*corev1.Pod {
		return []*corev1.Pod{Pod("a", Requests("cpu", "400m"), inline(a)), Pod("b", Requests("cpu", "400m"), inline(b))}
	}
	target := func(readOnly bool) corev1.VolumeSource {
		return corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{IQN: "iqn.2026-08.com.example:one", ReadOnly: readOnly}}
	}
	limited := func(n int) *snapshot.Snapshot {
		it := Type("m", 0.1, "cpu", "4", "memory", "16Gi", "pods", "110")
		it.VolumeLimits = map[string]int{"ebs.csi.aws.com": n}
		return World([]snapshot.Pool{Pool("general", []*catalog.InstanceType{it})}, two(ebsDisk("vol-1"), ebsDisk("vol-2"))...)
	}
	used := Node("n", "general", func(n *snapshot.Node) { n.Pods = []*corev1.Pod{Bound(Pod("r", inline(ebsDisk("vol-1"))), "n")} })
	full := Node("n", "general", func(n *snapshot.Node) {
		n.VolumeLimits = map[string]int32{"ebs.csi.aws.com": 1}
		n.Pods = []*corev1.Pod{Bound(Pod("r", inline(ebsDisk("vol-3"))), "n")}
	})
	free := Node("n", "general", func(n *snapshot.Node) { n.VolumeLimits = map[string]int32{"ebs.csi.aws.com": 1} })
	alone := two(ebsDisk("vol-1"), ebsDisk("vol-2"))[:1]
	checkPlans(t, []planCase{
		{"one EBS volume", world(two(ebsDisk("vol-1"), ebsDisk("vol-1"))...), []string{"general m.small: a", "general m.small: b"}},
		{"two EBS volumes", world(two(ebsDisk("vol-1"), ebsDisk("vol-2"))...), []string{"general m.small: a, b"}},
		{"one target that both read", world(two(target(true), target(true))...), []string{"general m.small: a, b"}},
		{"one target that one writes", world(two(target(true), target(false))...), []string{"general m.small: a", "general m.small: b"}},
		{"as many as a new node attaches", limited(2), []string{"general m: a, b"}},
		{"more than a new node attaches", limited(1), []string{"general m: a", "general m: b"}},
		{"a node where another pod has it", withNodes(world(slices.Clone(alone)...), used), []string{"general m.small: a"}},
		{"a node with a free slot", withNodes(world(slices.Clone(alone)...), free), []string{"on n: a"}},
		{"a node without a free slot", withNodes(world(slices.Clone(alone)...), full), []string{"general m.small: a"}},
	})
}
