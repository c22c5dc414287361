package termination

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

const ebs = "ebs.csi.aws.com"

// hostPath mounts a directory of the host.
func hostPath(path string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(
			p.Spec.Volumes,
			corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}},
		)
	}
}

// disk is a volume of the EBS driver, its claim, and its attachment to node-a.
func disk(change ...func(*storagev1.VolumeAttachment)) []client.Object {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: ebs, VolumeHandle: "vol-1"}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	pvc.Spec.VolumeName = "pv-1"
	a := attachment("va-1", "node-a", "pv-1")
	a.Spec.Attacher = ebs
	for _, c := range change {
		c(a)
	}
	return []client.Object{pv, pvc, a}
}

func detaching(a *storagev1.VolumeAttachment) {
	a.DeletionTimestamp, a.Finalizers = &metav1.Time{Time: controllertest.Start}, []string{"external-attacher/ebs-csi-aws-com"}
}

// A wait for a volume reports who has to act.
func TestHolders(t *testing.T) {
	inUse := func(n *corev1.Node) {
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/ebs.csi.aws.com^vol-1"}
	}
	plugin := controllertest.Pod(
		"ebs-csi-node",
		"node-a",
		controllertest.OwnedByDaemonSet,
		hostPath("/var/lib/kubelet/plugins/ebs.csi.aws.com/"),
	)
	with := func(objects []client.Object, more ...client.Object) []client.Object { return append(objects, more...) }
	for _, tt := range []struct {
		name    string
		node    func(*corev1.Node)
		objects []client.Object
		want    string
	}{
		{"its pod is there", inUse, with(disk(), plugin, controllertest.Pod("db", "node-a", mounting("data"),
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })), "pod shop/db still runs with it"},
		{"it is being unmounted", inUse, with(disk(), plugin), "kubelet is unmounting it"},
		{
			"nobody can unmount it", inUse, disk(),
			"it is mounted, and the daemon of ebs.csi.aws.com that has to unmount it does not run on the node",
		},
		{"it is unmounted", closed, disk(), "waiting for kube-controller-manager to detach it"},
		{"it is being detached", closed, disk(detaching), "waiting for ebs.csi.aws.com to detach it"},
		{"it cannot be detached", closed, disk(detaching, func(a *storagev1.VolumeAttachment) {
			a.Status.DetachError = &storagev1.VolumeError{Message: "UnauthorizedOperation"}
		}), "ebs.csi.aws.com cannot detach it: UnauthorizedOperation"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(
				t,
				append(
					tt.objects,
					controllertest.Claim("a", controllertest.Initialized, controllertest.Deleting, drainedBefore),
					controllertest.ReadyNode("a", controllertest.DeletingNode, closed, tt.node),
				)...)
			r := nodeReconciler(f, &ec2{})
			node := f.Node("node-a")
			e, err := r.observe(t.Context(), node)
			if err != nil {
				t.Fatal(err)
			}
			all, err := r.attachments(t.Context(), "node-a")
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.holders(t.Context(), e, all)
			if err != nil || len(got) != 1 || got[0] != "volume pv-1: "+tt.want {
				t.Errorf("got %q (%v), want %q", got, err, tt.want)
			}
		})
	}
}

// The daemon that unmounts volumes goes after the last of them, whatever it tolerates and however critical the others
// are.
func TestDriverGoesAfterTheVolumes(t *testing.T) {
	plugin := controllertest.Pod(
		"ebs-csi-node",
		"node-a",
		controllertest.OwnedByDaemonSet,
		hostPath("/var/lib/kubelet/plugins/ebs.csi.aws.com/"),
	)
	f := controllertest.New(t, append(append(leaving(drainedBefore), disk()...), plugin)...)
	e := &ec2{}
	r := nodeReconciler(f, e)
	for range 3 {
		f.Reconcile(r, "node-a")
		f.Clock = f.Clock.Add(10 * time.Second)
	}
	if len(r.Evictor.requests) > 0 || len(e.terminated) > 0 {
		t.Fatal("the driver's daemon is evicted while a volume is attached")
	}
	f.Do(f.API.Delete(t.Context(), attachment("va-1", "node-a", "pv-1")))
	f.Reconcile(r, "node-a")
	if len(r.Evictor.requests) != 1 || len(e.terminated) > 0 {
		t.Errorf(
			"%d evicted, %d instances terminated; want the daemon evicted, and then the instance terminated",
			len(r.Evictor.requests),
			len(e.terminated),
		)
	}
	if events := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(
		events,
		"Warning FailedDraining Failed to drain node, 1 pods are waiting to be evicted",
	) {
		t.Errorf("events %q: none reports what the node waits for", events)
	}
	f.Do(f.API.Delete(t.Context(), plugin))
	f.Reconcile(r, "node-a")
	if len(e.terminated) != 1 {
		t.Error("the instance is not terminated")
	}
}

// A daemon that is driven off after the volumes, and has one itself, does not wait for its own.
func TestDriverWithAVolumeOfItsOwn(t *testing.T) {
	plugin := controllertest.Pod("ebs-csi-node", "node-a", controllertest.OwnedByDaemonSet, mounting("data"), func(p *corev1.Pod) {
		p.Spec.Volumes = append(
			p.Spec.Volumes,
			corev1.Volume{
				Name:         "socket",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins/ebs.csi.aws.com/"}},
			},
		)
	})
	f := controllertest.New(t, append(append(leaving(drainedBefore), disk()...), plugin)...)
	e := &ec2{}
	r := nodeReconciler(f, e)
	f.Reconcile(r, "node-a")
	if len(r.Evictor.requests) != 1 || len(e.terminated) > 0 {
		t.Fatalf(
			"%d evicted, %d instances terminated: the daemon waits for its volume, and the volume for the daemon",
			len(r.Evictor.requests),
			len(e.terminated),
		)
	}
	f.Do(f.API.Delete(t.Context(), plugin))
	f.Reconcile(r, "node-a")
	if len(e.terminated) > 0 {
		t.Error("the instance is terminated with the daemon's volume attached")
	}
	f.Do(f.API.Delete(t.Context(), attachment("va-1", "node-a", "pv-1")))
	f.Reconcile(r, "node-a")
	if len(e.terminated) != 1 {
		t.Error("the instance is not terminated")
	}
}

// EC2 may not know an instance that runs. As long as its kubelet reports, its volumes are not taken from it by force.
func TestVolumesOfAMachineThatReports(t *testing.T) {
	f := controllertest.New(t, append(leaving(drainedBefore, deadlineIn(-time.Second)), disk()...)...)
	r := nodeReconciler(f, &ec2{terminate: []error{nil, cloudprovider.ErrNotFound}})
	f.Reconcile(r, "node-a")
	f.Clock = f.Clock.Add(instancePoll)
	if result := f.Reconcile(r, "node-a"); result.RequeueAfter != poll {
		t.Errorf("is requeued after %v", result.RequeueAfter)
	}
	if taints := controllertest.Taints(f.Node("node-a")); slices.Contains(taints, "node.kubernetes.io/out-of-service:NoExecute") {
		t.Errorf("taints %v, and kubelet still reports", taints)
	}
	f.Clock = f.Clock.Add(forceDetachTimeout)
	f.Reconcile(r, "node-a")
	if f.Node("node-a") != nil {
		t.Error("the node waits forever")
	}
}

// silent returns objects with the Node changed: its kubelet does not report any more.
func silent(objects []client.Object) []client.Object {
	for _, o := range objects {
		if node, ok := o.(*corev1.Node); ok {
			controllertest.NotReady(node)
		}
	}
	return objects
}

// A volume that is attached to an instance that is gone is detached by force, instead of after six minutes.
func TestVolumesOfAGoneMachine(t *testing.T) {
	for _, tt := range []struct {
		name    string
		objects []client.Object
		cloud   ec2
	}{
		{"drained, past its deadline", silent(leaving(drainedBefore, deadlineIn(-time.Second))), ec2{terminate: errGone}},
		{"dead", []client.Object{controllertest.Claim("a", controllertest.Initialized, controllertest.Deleting), controllertest.ReadyNode("a",
			controllertest.DeletingNode, controllertest.NotReady)}, ec2{get: cloudprovider.ErrNotFound}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, append(tt.objects, disk()...)...)
			r := nodeReconciler(f, &tt.cloud)
			if result := f.Reconcile(r, "node-a"); result.RequeueAfter != poll {
				t.Errorf("is requeued after %v", result.RequeueAfter)
			}
			taints := controllertest.Taints(f.Node("node-a"))
			if !slices.Contains(taints, "node.kubernetes.io/out-of-service:NoExecute") {
				t.Errorf("taints %v", taints)
			}
			if events := strings.Join(f.RecordedEvents(), "\n"); !strings.Contains(
				events,
				"VolumesLeftAttached The instance is gone and 1 volumes are still attached",
			) {
				t.Errorf("events %q", events)
			}
			f.Clock = f.Clock.Add(5 * time.Minute)
			f.Reconcile(r, "node-a")
			if f.Node("node-a") == nil {
				t.Fatal("the node is let go with a volume attached")
			}
			f.Do(f.API.Delete(t.Context(), attachment("va-1", "node-a", "pv-1")))
			f.Reconcile(r, "node-a")
			if f.Node("node-a") != nil {
				t.Error("the node stays, though nothing is attached any more")
			}
		})
	}
	t.Run("bounded where a person has put the taint on the node", func(t *testing.T) {
		objects := append(silent(leaving(drainedBefore, deadlineIn(-time.Second))), disk()...)
		node := objects[1].(*corev1.Node)
		node.Spec.Taints = append(
			node.Spec.Taints,
			corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute},
		)
		f := controllertest.New(t, objects...)
		r := nodeReconciler(f, &ec2{terminate: errGone})
		f.Reconcile(r, "node-a")
		f.Clock = f.Clock.Add(forceDetachTimeout)
		f.Reconcile(r, "node-a")
		if f.Node("node-a") != nil {
			t.Error("the node waits forever for an attachment that nobody removes")
		}
	})
	t.Run("bounded", func(t *testing.T) {
		f := controllertest.New(t, append(silent(leaving(drainedBefore, deadlineIn(-time.Second))), disk()...)...)
		r := nodeReconciler(f, &ec2{terminate: errGone})
		f.Reconcile(r, "node-a")
		f.Clock = f.Clock.Add(forceDetachTimeout)
		f.Reconcile(r, "node-a")
		if f.Node("node-a") != nil {
			t.Error("the node waits forever for an attachment that nobody removes")
		}
	})
}
