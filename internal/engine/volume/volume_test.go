package volume_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

const ebs = "ebs.csi.aws.com"

// cluster has claims that are bound in z1 or z2 (b1, b2), that bind with their first pod (late), and that are broken in
// one way each.
func cluster() *snapshot.Snapshot {
	wait, now := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	late, immediate, missing := "late", "immediate", "missing"
	s := &snapshot.Snapshot{Labels: requirement.CoreLabels(), Volumes: snapshot.Volumes{
		Claims:  map[types.NamespacedName]*corev1.PersistentVolumeClaim{},
		Volumes: map[string]*corev1.PersistentVolume{},
		StorageClasses: map[string]*storagev1.StorageClass{
			late:      {Provisioner: ebs, VolumeBindingMode: &wait},
			immediate: {Provisioner: ebs, VolumeBindingMode: &now},
		},
	}}
	add := func(name string, edit func(*corev1.PersistentVolumeClaim)) {
		c := &corev1.PersistentVolumeClaim{}
		edit(c)
		s.Volumes.Claims[types.NamespacedName{Namespace: "default", Name: name}] = c
	}
	for name, zone := range map[string]string{"b1": "z1", "b2": "z2", "unconfirmed": "z1"} {
		add(name, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName = "pv-" + name
			if name != "unconfirmed" {
				c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
			}
		})
		s.Volumes.Volumes["pv-"+name] = &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: ebs}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{Expr(Zone, corev1.NodeSelectorOpIn, zone)}},
			}}},
		}}
	}
	add("late", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &late })
	add("alone", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName, c.Spec.AccessModes = &late, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	add("immediate", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &immediate })
	add("classless", func(*corev1.PersistentVolumeClaim) {})
	add("unknown class", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &missing })
	add("dangling", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "gone" })
	add("lost", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })
	add("deleted", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} })
	return s
}

func pod(claims ...string) *corev1.Pod {
	p := Pod("p")
	for _, name := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	p.UID = types.UID("p-" + strings.Join(claims, "-"))
	return p
}

func TestClaimNames(t *testing.T) {
	ephemeral := corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
	if name, ok := snapshot.ClaimName(Pod("web-0"), &ephemeral); !ok || name != "web-0-scratch" {
		t.Errorf("claim of an ephemeral volume: %q, %v", name, ok)
	}
	if _, ok := snapshot.ClaimName(Pod("web-0"), &corev1.Volume{Name: "tmp"}); ok || volume.HasClaims(Pod("web-0")) {
		t.Error("a volume without a claim has one")
	}
}

func TestAlternatives(t *testing.T) {
	tests := []struct {
		name   string
		claims []string
		zones  []string // of each alternative
		code   rejection.Code
	}{
		{"no volumes", nil, []string{""}, ""},
		{"bound in a zone", []string{"b1"}, []string{"z1"}, ""},
		{"bound with the first pod", []string{"late"}, []string{""}, ""},
		{"one bound, one not", []string{"late", "b2"}, []string{"z2"}, ""},
		{"two zones exclude each other, and are kept for the explanation", []string{"b1", "b2"}, []string{"none"}, ""},
		{"missing", []string{"no such claim"}, nil, rejection.Volume},
		{"being deleted", []string{"deleted"}, nil, rejection.Volume},
		{"lost", []string{"lost"}, nil, rejection.Volume},
		{"its volume is missing", []string{"dangling"}, nil, rejection.Volume},
		{"its class is missing", []string{"unknown class"}, nil, rejection.Volume},
		{"binding is not complete", []string{"unconfirmed"}, nil, rejection.VolumePending},
		{"binds immediately, and is not bound", []string{"immediate"}, nil, rejection.VolumePending},
		{"neither volume nor class", []string{"classless"}, nil, rejection.VolumePending},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := cluster()
			sets, reasons := volume.Alternatives(volume.NewIndex(s), volume.Of(s, pod(tt.claims...)))
			var code rejection.Code
			if len(reasons) > 0 {
				code = reasons[0].Code
			}
			var zones []string
			for _, set := range sets {
				zone, ok := set.Get(Zone).Single()
				if !ok && set.Get(Zone).Impossible() {
					zone = "none"
				}
				zones = append(zones, zone)
			}
			if code != tt.code || !slices.Equal(zones, tt.zones) {
				t.Errorf("zones %q and reason %q, want %q and %q", zones, code, tt.zones, tt.code)
			}
		})
	}
}

func TestUnsupportedDriver(t *testing.T) {
	s := cluster()
	s.Volumes.Unsupported.Provisioners = []string{ebs}
	if _, reasons := volume.Alternatives(volume.NewIndex(s), volume.Of(s, pod("b1"))); len(reasons) != 1 || reasons[0].Code != rejection.Unsupported {
		t.Errorf("reasons %v", reasons)
	}
}

// TestLimits has one type that attaches two volumes of the driver.
func TestLimits(t *testing.T) {
	s := cluster()
	first, second, own := pod("b1"), pod("b1", "b2"), pod("b2", "late")
	s.Pods = []*corev1.Pod{first, second, own}
	small := Type("small", 1, "cpu", "4")
	small.VolumeLimits = map[string]int{ebs: 2}
	s.Pools = []snapshot.Pool{Pool("default", []*catalog.InstanceType{small, Type("large", 2, "cpu", "8")})}
	l := volume.NewLimits(s, map[types.UID]bool{})
	axes := resources.NewAxes(l.Axes())
	if axes.Len() != 1 {
		t.Fatalf("axes %v, want one for the driver", axes.All())
	}
	requests := make(resources.Vec, 1)
	shared := l.AddTo(requests, axes, own)
	if requests[l.Axis(axes, ebs)] != 1 || len(shared) != 1 || shared[0].Claim.Name != "b2" {
		t.Errorf("requests %v and shares %v, want one volume of its own and b2", requests, shared)
	}
	l.Forget(second)
	if l.Shared(shared[0].Claim) {
		t.Error("b2 is still shared with a pod that never runs")
	}
	room := make(resources.Vec, 1)
	if l.LimitType(room, axes, small.VolumeLimits, map[string]int{ebs: 1}); room[0] != 1 {
		t.Errorf("room %v on a node with a daemon's volume, want 1", room)
	}
	if l.LimitType(room, axes, nil, nil); room[0] < 1000 {
		t.Errorf("room %v on a type without a limit", room)
	}
	on := volume.NewAttached(map[string]int32{ebs: 2})
	on.Attach(shared)
	if l.LimitNode(room, axes, &on); room[0] != 1 {
		t.Errorf("room %v on a node with one of two volumes, want 1", room)
	}
}

func TestLimitsOfNodes(t *testing.T) {
	s := cluster()
	small := Type("small", 1, "cpu", "4")
	small.VolumeLimits = map[string]int{ebs: 2}
	s.Pools = []snapshot.Pool{Pool("default", []*catalog.InstanceType{small})}
	l := volume.NewLimits(s, map[types.UID]bool{})
	n := snapshot.Node{Pool: "default", Claim: "c", Labels: map[string]string{corev1.LabelInstanceTypeStable: "small"}}
	if got := l.OfNode(&n); got[ebs] != 2 {
		t.Errorf("limits %v of a node without a CSINode object, want those of its type", got)
	}
	n.Initialized, n.VolumeLimits = true, map[string]int32{ebs: 7}
	if got := l.OfNode(&n); got[ebs] != 7 {
		t.Errorf("limits %v, want those of the CSINode object", got)
	}
}

func TestAttached(t *testing.T) {
	list := func(claims ...string) []volume.Attachment {
		var out []volume.Attachment
		for _, name := range claims {
			out = append(out, volume.Attachment{Driver: ebs, Claim: types.NamespacedName{Name: name}})
		}
		return out
	}
	n := volume.NewAttached(map[string]int32{ebs: 2})
	n.Attach(list("a"))
	before := n
	n = n.Clone()
	n.Attach(list("b", "a"))
	if !n.CanAttach(list("a", "b")) || n.CanAttach(list("c")) {
		t.Error("a full node takes volumes that it has, and no others")
	}
	if !before.CanAttach(list("c", "c")) || before.CanAttach(list("c", "d")) {
		t.Error("the copy changed the node before, or equal volumes count twice")
	}
	var free volume.Attached
	if !free.CanAttach(list("a", "b", "c")) {
		t.Error("a node without a limit refuses volumes")
	}
}

func TestOneUser(t *testing.T) {
	s := cluster()
	a, b := pod("alone"), pod("alone")
	claims := volume.Exclusive(volume.Of(s, a))
	if len(claims) != 1 {
		t.Fatalf("exclusive claims %v", claims)
	}
	users := volume.Users{}
	if why := users.Blocked(b, claims); why.Code != "" {
		t.Errorf("blocked by nobody: %v", why)
	}
	users.Take(a, claims)
	if users.Blocked(a, claims).Code != "" || users.Blocked(b, claims).Code != rejection.VolumeInUse {
		t.Error("the user is blocked by itself, or another pod is not")
	}
}

func TestUnboundZonal(t *testing.T) {
	s := cluster()
	for name, want := range map[string]int{"late": 1, "b1": 0, "alone": 0} {
		if got := volume.UnboundZonal(volume.Of(s, pod(name))); len(got) != want {
			t.Errorf("%s: %v, want %d", name, got, want)
		}
	}
}
