package validate_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// A plan that was right before its world turned out to be another breaks the rules of that.
func TestVolumesForgottenOnNewNodesAreViolations(t *testing.T) {
	world := func(pods ...*corev1.Pod) *snapshot.Snapshot {
		s := World([]snapshot.Pool{Pool("general", Types())}, pods...)
		class, mode := "wait", storagev1.VolumeBindingWaitForFirstConsumer
		s.Volumes.StorageClasses = map[string]*storagev1.StorageClass{class: {Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &mode}}
		s.Volumes.Claims = map[types.NamespacedName]*corev1.PersistentVolumeClaim{}
		for _, n := range []string{"x", "y"} {
			s.Volumes.Claims[types.NamespacedName{Namespace: "default", Name: n}] = &corev1.PersistentVolumeClaim{
				Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class},
			}
		}
		return s
	}
	onNode := func(s *snapshot.Snapshot) *snapshot.Snapshot {
		s.Nodes = []snapshot.Node{Node("n", "general", func(n *snapshot.Node) { n.VolumeLimits = map[string]int32{"ebs.csi.aws.com": 2} })}
		return s
	}
	for _, c := range []struct {
		name string
		s    *snapshot.Snapshot
		edit func(*snapshot.Snapshot)
		want string
	}{
		{"attach limit of the type", world(Pod("a", Claims("x")), Pod("b", Claims("y"))), func(s *snapshot.Snapshot) {
			for _, it := range s.Pools[0].InstanceTypes {
				it.VolumeLimits = map[string]int{"ebs.csi.aws.com": 1}
			}
		}, "2 volumes of ebs.csi.aws.com, and a node of type"},
		{"volumes that are left over on a node", onNode(world(Pod("a", Claims("x")))), func(s *snapshot.Snapshot) {
			s.Nodes[0].LeftoverVolumes = map[string]int32{"ebs.csi.aws.com": 2}
		}, "1 volumes of ebs.csi.aws.com attached, at most 0 can be"},
		{"two pods of one claim", world(Pod("a", Claims("x")), Pod("b", Claims("x"))), func(s *snapshot.Snapshot) {
			s.Volumes.Claims[types.NamespacedName{Namespace: "default", Name: "x"}].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		}, "volume claim default/x is for one pod, and default/a and default/b use it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := schedule.Solve(c.s, schedule.Budget{})
			if err := validate.Plan(c.s, p); err != nil {
				t.Fatal(err)
			}
			c.edit(c.s)
			if err := validate.Plan(c.s, p); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
