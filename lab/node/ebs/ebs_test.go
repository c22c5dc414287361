package ebs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// cloud is an EC2 of volumes: where each is, and where it is attached.
type cloud struct {
	mu       sync.Mutex
	zones    map[string]string
	attached map[string]string // volume to instance
	lose     int               // answers to AttachVolume that are lost
	calls    []string
}

func (c *cloud) call(format string, args ...any) func() {
	c.mu.Lock()
	c.calls = append(c.calls, fmt.Sprintf(format, args...))
	return c.mu.Unlock
}

func apiError(code string) error { return &smithy.GenericAPIError{Code: code, Message: code} }

func (c *cloud) CreateVolume(_ context.Context, in *ec2.CreateVolumeInput, _ ...func(*ec2.Options)) (*ec2.CreateVolumeOutput, error) {
	defer c.call("create %d GiB in %s", *in.Size, *in.AvailabilityZone)()
	id := "vol-" + *in.ClientToken
	c.zones[id] = *in.AvailabilityZone
	return &ec2.CreateVolumeOutput{VolumeId: &id}, nil
}

func (c *cloud) DeleteVolume(_ context.Context, in *ec2.DeleteVolumeInput, _ ...func(*ec2.Options)) (*ec2.DeleteVolumeOutput, error) {
	defer c.call("delete %s", *in.VolumeId)()
	if c.zones[*in.VolumeId] == "" {
		return nil, apiError("InvalidVolume.NotFound")
	}
	delete(c.zones, *in.VolumeId)
	return &ec2.DeleteVolumeOutput{}, nil
}

func (c *cloud) AttachVolume(_ context.Context, in *ec2.AttachVolumeInput, _ ...func(*ec2.Options)) (*ec2.AttachVolumeOutput, error) {
	defer c.call("attach %s to %s", *in.VolumeId, *in.InstanceId)()
	if c.attached[*in.VolumeId] != "" {
		return nil, apiError("VolumeInUse")
	}
	c.attached[*in.VolumeId] = *in.InstanceId
	if c.lose > 0 {
		c.lose--
		return nil, apiError("InternalError")
	}
	return &ec2.AttachVolumeOutput{}, nil
}

func (c *cloud) DescribeVolumes(
	_ context.Context,
	in *ec2.DescribeVolumesInput,
	_ ...func(*ec2.Options),
) (*ec2.DescribeVolumesOutput, error) {
	defer c.call("describe %s", in.VolumeIds[0])()
	return &ec2.DescribeVolumesOutput{Volumes: []ec2types.Volume{{Attachments: []ec2types.VolumeAttachment{{
		InstanceId: aws.String(c.attached[in.VolumeIds[0]]), Device: aws.String("/dev/xvdaa"),
	}}}}}, nil
}

func (c *cloud) DetachVolume(_ context.Context, in *ec2.DetachVolumeInput, _ ...func(*ec2.Options)) (*ec2.DetachVolumeOutput, error) {
	defer c.call("detach %s", *in.VolumeId)()
	if c.attached[*in.VolumeId] == "" {
		return nil, apiError("IncorrectState")
	}
	delete(c.attached, *in.VolumeId)
	return &ec2.DetachVolumeOutput{}, nil
}

func class(name string, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: Driver, VolumeBindingMode: &mode}
}

func claim(name, class, node string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", Annotations: map[string]string{annotationProvisioner: Driver}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("7900Mi")},
		}},
	}
	if node != "" {
		c.Annotations[annotationSelectedNode] = node
	}
	return c
}

func machine(zone string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: zone}},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///" + zone + "/i-1"},
	}
}

// serve lets a controller work for ten seconds.
func serve(t *testing.T, c *cloud, objects ...runtime.Object) *fake.Clientset {
	t.Helper()
	client := fake.NewClientset(objects...)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- New(Config{Client: client, EC2: c, Zones: []string{"z1", "z2", "z3"}}).Run(ctx) }()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return client
}

func TestVolumesOfClaims(t *testing.T) {
	for _, tt := range []struct {
		name    string
		objects []runtime.Object
		want    string // zone of the volume; empty = there is none
	}{
		{"the node is not chosen yet", []runtime.Object{class("late", storagev1.VolumeBindingWaitForFirstConsumer), claim("a", "late", "")}, ""},
		{"in the zone of the node that was chosen", []runtime.Object{class("late", storagev1.VolumeBindingWaitForFirstConsumer), claim("a",
			"late", "n"), machine("z2")}, "z2"},
		{"the node has no zone yet", []runtime.Object{
			class("late", storagev1.VolumeBindingWaitForFirstConsumer), claim("a", "late", "n"),
			machine(""),
		}, ""},
		{"at once, anywhere that the class allows", []runtime.Object{func() *storagev1.StorageClass {
			c := class("now", storagev1.VolumeBindingImmediate)
			c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: []string{"z3"}}}}}
			return c
		}(), claim("a", "now", "")}, "z3"},
		{"another driver's", []runtime.Object{class("late", storagev1.VolumeBindingImmediate), func() *corev1.PersistentVolumeClaim {
			c := claim("a", "late", "")
			c.Annotations[annotationProvisioner] = "efs.csi.aws.com"
			return c
		}()}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &cloud{zones: map[string]string{}}
				client := serve(t, c, tt.objects...)
				if got := c.zones["vol-1"]; got != tt.want {
					t.Errorf("the volume is in %q, want %q", got, tt.want)
				}
				pv, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-1", metav1.GetOptions{})
				if (err == nil) != (tt.want != "") {
					t.Errorf("PersistentVolume: %v", err)
				}
				if err == nil &&
					(pv.Spec.ClaimRef.Name != "a" || pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != tt.want || c.calls[0] != "create 8 GiB in "+tt.want) {
					t.Errorf("got %+v after %v", pv.Spec, c.calls)
				}
			})
		})
	}
}

func volume(phase corev1.PersistentVolumePhase) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: "vol-1"},
			},
		},
		Status: corev1.PersistentVolumeStatus{Phase: phase},
	}
}

func attachment(change ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	name := "pv"
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}}
	a.Spec = storagev1.VolumeAttachmentSpec{
		Attacher: Driver,
		NodeName: "n",
		Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
	}
	for _, c := range change {
		c(a)
	}
	return a
}

func TestAttachments(t *testing.T) {
	deleted := func(a *storagev1.VolumeAttachment) {
		a.DeletionTimestamp, a.Finalizers, a.Status.Attached = &metav1.Time{Time: time.Now()}, []string{finalizer}, true
	}
	for _, tt := range []struct {
		name     string
		cloud    *cloud
		a        *storagev1.VolumeAttachment
		attached bool // the object reports it
		held     bool // by the finalizer
		at       string
	}{
		{"attached", &cloud{}, attachment(), true, true, "i-1"},
		{"the answer is lost", &cloud{lose: 1}, attachment(), true, true, "i-1"},
		{"it is elsewhere", &cloud{attached: map[string]string{"vol-1": "i-9"}}, attachment(), false, true, "i-9"},
		{"detached", &cloud{attached: map[string]string{"vol-1": "i-1"}}, attachment(deleted), true, false, ""},
		{"detached before", &cloud{}, attachment(deleted), true, false, ""},
		{"another driver's", &cloud{}, attachment(func(a *storagev1.VolumeAttachment) { a.Spec.Attacher = "other" }), false, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := tt.cloud
				if c.attached == nil {
					c.attached = map[string]string{}
				}
				client := serve(t, c, volume(corev1.VolumeBound), machine("z1"), tt.a)
				a, err := client.StorageV1().VolumeAttachments().Get(t.Context(), "va", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if a.Status.Attached != tt.attached || slices.Contains(a.Finalizers, finalizer) != tt.held || c.attached["vol-1"] != tt.at {
					t.Errorf(
						"attached %v, finalizers %v, at %q; want %v, %v, %q",
						a.Status.Attached,
						a.Finalizers,
						c.attached["vol-1"],
						tt.attached,
						tt.held,
						tt.at,
					)
				}
			})
		})
	}
}

func TestReleasedVolumesAreDeleted(t *testing.T) {
	for phase, kept := range map[corev1.PersistentVolumePhase]bool{corev1.VolumeBound: true, corev1.VolumeReleased: false} {
		synctest.Test(t, func(t *testing.T) {
			c := &cloud{zones: map[string]string{"vol-1": "z1"}}
			client := serve(t, c, volume(phase))
			_, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "pv", metav1.GetOptions{})
			if (err == nil) != kept || (c.zones["vol-1"] != "") != kept {
				t.Errorf("%s: %v, volumes %v", phase, err, c.zones)
			}
		})
	}
}
