package kubelet

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

const (
	driver   = "ebs.csi.aws.com"
	handle   = corev1.UniqueVolumeName("kubernetes.io/csi/ebs.csi.aws.com^vol-1")
	provider = "aws:///us-east-1a/i-1"
)

// daemon is the pod of a CSI driver.
func daemon(phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "ebs-csi-node", UID: "daemon"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "kubelet", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet"}}},
			{
				Name:         "registration",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins_registry/"}},
			},
			{
				Name:         "plugin",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins/ebs.csi.aws.com/"}},
			},
		}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// claiming is a pod with a volume.
func claiming(phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0", UID: "db"},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// mounting runs the volumes of a node with an API server that knows a claim and its volume.
func mounting(t *testing.T, others ...runtime.Object) (*volumes, *fake.Clientset, func() []types.UID) {
	t.Helper()
	return mountingFrom(t, corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-1"},
	}, others...)
}

// mountingFrom is mounting with a volume from a source, and with other objects.
func mountingFrom(
	t *testing.T, source corev1.PersistentVolumeSource, others ...runtime.Object,
) (*volumes, *fake.Clientset, func() []types.UID) {
	t.Helper()
	cfg, client, _ := node(
		t,
		append(others,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n"}},
			&corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
			},
			&corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pv"},
				Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: source},
			})...,
	)
	cfg.ProviderID = provider
	v := newVolumes(cfg)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	var started []types.UID
	go func() {
		defer close(done)
		v.run(ctx, func(uid types.UID) { started = append(started, uid) })
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return v, client, func() []types.UID {
		synctest.Wait()
		return started
	}
}

func inUse(t *testing.T, client *fake.Clientset) []corev1.UniqueVolumeName {
	t.Helper()
	n, err := client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Status.VolumesInUse
}

func attach(t *testing.T, client *fake.Clientset) {
	t.Helper()
	n, err := client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: handle}}
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func drivers(t *testing.T, client *fake.Clientset) []string {
	t.Helper()
	n, err := client.StorageV1().CSINodes().Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	var out []string
	for _, d := range n.Spec.Drivers {
		out = append(out, d.Name+" "+d.NodeID)
	}
	return out
}

// A pod starts when its volume is attached and the driver's daemon runs, whichever comes first.
func TestPodWaitsForItsVolume(t *testing.T) {
	for _, first := range []string{"attached", "driver"} {
		t.Run(first+" first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, client, started := mounting(t)
				if v.see(claiming(corev1.PodPending), false) {
					t.Error("the pod may start at once")
				}
				time.Sleep(time.Second)
				if got := inUse(t, client); !slices.Equal(got, []corev1.UniqueVolumeName{handle}) {
					t.Errorf("in use before it is attached: %v", got)
				}
				steps := []func(){func() { attach(t, client) }, func() { v.see(daemon(corev1.PodRunning), false) }}
				if first == "driver" {
					slices.Reverse(steps)
				}
				steps[0]()
				time.Sleep(10 * time.Second)
				if got := started(); len(got) > 0 {
					t.Error("the pod has started too early")
				}
				steps[1]()
				time.Sleep(time.Second)
				if got := started(); !slices.Equal(got, []types.UID{"db"}) || !v.see(claiming(corev1.PodPending), false) {
					t.Errorf("started %v", got)
				}
				if got := drivers(t, client); !slices.Equal(got, []string{driver + " i-1"}) {
					t.Errorf("registered %v", got)
				}
			})
		})
	}
}

// A volume stays in use until it is unmounted, which needs the driver's daemon for a while.
func TestUnmountNeedsTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, client, _ := mounting(t)
		attach(t, client)
		v.see(daemon(corev1.PodRunning), false)
		v.see(claiming(corev1.PodPending), false)
		time.Sleep(time.Second)
		v.see(daemon(corev1.PodSucceeded), false)
		if why := v.blocked("db"); why != "driver name ebs.csi.aws.com not found in the list of registered CSI drivers" {
			t.Errorf("the pod may go without the driver: %q", why)
		}
		v.see(claiming(corev1.PodSucceeded), false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := inUse(t, client); len(got) != 1 {
			t.Error("the volume was unmounted without its driver")
		}
		if got := drivers(t, client); len(got) != 0 {
			t.Errorf("registered %v", got)
		}
		v.see(daemon(corev1.PodRunning), false)
		time.Sleep(500 * time.Millisecond)
		if got := inUse(t, client); len(got) != 1 {
			t.Error("the volume was unmounted in no time")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := inUse(t, client); len(got) != 0 {
			t.Errorf("still in use: %v", got)
		}
		if why := v.blocked("db"); why != "" {
			t.Errorf("the pod may not go: %s", why)
		}
		v.see(claiming(corev1.PodSucceeded), true)
	})
}

func TestPodsWithoutVolumesStartAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, client, _ := mounting(t)
		if !v.see(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "plain"}}, false) {
			t.Error("a pod without volumes has to wait")
		}
		time.Sleep(time.Second)
		for _, a := range client.Actions() {
			t.Errorf("nothing was to do, but: %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	})
}

// The limit of attachments follows the flags of the driver's daemon, as those of the EBS driver's chart set them.
func TestTheAttachLimitFollowsTheFlagsOfTheDriver(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want int32 // 0 = none
	}{
		{"no flags", nil, 25},
		{"a limit", []string{"node", "--volume-attach-limit=5"}, 5},
		{"a limit as the next word", []string{"node", "--volume-attach-limit", "7"}, 7},
		{"the default of the flag", []string{"--volume-attach-limit=-1", "--reserved-volume-attachments=-1"}, 25},
		{"reserved", []string{"--reserved-volume-attachments=4"}, 22},
		{"nothing reserved", []string{"--reserved-volume-attachments=0"}, 26},
		{"all reserved", []string{"--reserved-volume-attachments=40"}, 1},
		{"no limit", []string{"--volume-attach-limit=0"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, client, _ := mounting(t)
				pod := daemon(corev1.PodRunning)
				pod.Spec.Containers = []corev1.Container{{Name: "ebs-plugin", Args: c.args}, {Name: "node-driver-registrar", Args: []string{"--v=2"}}}
				v.see(pod, false)
				synctest.Wait()
				n, err := client.StorageV1().CSINodes().Get(t.Context(), "node", metav1.GetOptions{})
				if err != nil || len(n.Spec.Drivers) != 1 {
					t.Fatalf("%v, CSINode %+v", err, n)
				}
				got := int32(0)
				if a := n.Spec.Drivers[0].Allocatable; a != nil {
					got = *a.Count
				}
				if got != c.want {
					t.Errorf("%d volumes are allocatable, want %d", got, c.want)
				}
			})
		})
	}
}

// Volumes of other drivers are mounted: at once if the driver is not installed, and without an attachment if it needs none.
func TestVolumesOfOtherDriversAreMounted(t *testing.T) {
	efs := corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "efs.csi.aws.com", VolumeHandle: "fs-1"}}
	installed := func(attach bool) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "efs.csi.aws.com"}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}}
	}
	served := daemon(corev1.PodRunning)
	served.Spec.Volumes[2].HostPath.Path = "/var/lib/kubelet/plugins/efs.csi.aws.com/"
	for _, c := range []struct {
		name    string
		source  corev1.PersistentVolumeSource
		objects []runtime.Object
		daemon  *corev1.Pod
		starts  bool
	}{
		{"EFS, not installed", efs, nil, nil, true},
		{"EFS, installed, and on the node", efs, []runtime.Object{installed(false)}, served, true},
		{"EFS, installed, and not on the node", efs, []runtime.Object{installed(false)}, nil, false},
		{"a driver that attaches, and nobody does", efs, []runtime.Object{installed(true)}, served, false},
		{"FSx", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "fsx.csi.aws.com", VolumeHandle: "fs-2"}}, nil, nil, true},
		{"local", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/disk"}}, nil, nil, true},
		{"NFS", corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs", Path: "/"}}, nil, nil, true},
		{"a path of the node", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}, nil, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, client, started := mountingFrom(t, c.source, c.objects...)
				v.see(claiming(corev1.PodPending), false)
				if c.daemon != nil {
					v.see(c.daemon, false)
				}
				time.Sleep(10 * time.Second)
				if got := slices.Equal(started(), []types.UID{"db"}); got != c.starts {
					t.Errorf("the pod starts: %v, want %v", got, c.starts)
				}
				if got := inUse(t, client); c.starts && len(got) > 0 {
					t.Errorf("in use as if it were attached: %v", got)
				}
				v.see(claiming(corev1.PodSucceeded), false)
				time.Sleep(10 * time.Second)
				if why := v.blocked("db"); why != "" {
					t.Errorf("the pod cannot go: %s", why)
				}
			})
		})
	}
}
