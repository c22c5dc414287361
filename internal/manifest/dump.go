package manifest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
)

// Dump writes what a plan of the cluster depends on, as one file for Read, without secrets: see scrub. It writes the
// pods themselves, and each workload's template and selector.
func Dump(ctx context.Context, cluster client.Reader, takenAt time.Time, w io.Writer) error {
	return dump(ctx, cluster, takenAt, func(o any) error {
		data, err := sigsyaml.Marshal(o)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "---\n%s", data)
		return err
	})
}

// DumpJSON is Dump as JSON, one object after the other.
func DumpJSON(ctx context.Context, cluster client.Reader, takenAt time.Time, w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return dump(ctx, cluster, takenAt, encoder.Encode)
}

func dump(ctx context.Context, cluster client.Reader, takenAt time.Time, write func(any) error) error {
	head := header{TypeMeta: metav1.TypeMeta{APIVersion: headerVersion, Kind: headerKind}, TakenAt: metav1.NewTime(takenAt.UTC())}
	if err := write(head); err != nil {
		return err
	}
	spelled := map[reflect.Type]kind{}
	for k, o := range prototypes() {
		spelled[reflect.TypeOf(o)] = k
	}
	scrubbed := func(list client.ObjectList) ([]client.Object, error) { return List(ctx, cluster, list, scrub) }
	return eachDumped(scrubbed, func(written []client.Object) error {
		slices.SortFunc(written, func(a, b client.Object) int {
			return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
		})
		for _, o := range written {
			k := spelled[reflect.TypeOf(o)]
			o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(k.apiVersion, k.kind))
			if err := write(o); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachDumped lists the objects that plans depend on, one kind after the other.
func eachDumped(list Lister, f func([]client.Object) error) error {
	var other func(client.Object) bool
	for _, kind := range dumped() {
		_, deployments := kind.(*appsv1.DeploymentList)
		if deployments && other == nil {
			continue
		}
		objects, err := list(kind)
		if err != nil {
			return fmt.Errorf("take a snapshot: %w", err)
		}
		switch kind.(type) {
		case *bufferv1.CapacityBufferList:
			other = otherDeployments(objects)
		case *appsv1.DeploymentList:
			objects = slices.DeleteFunc(slices.Clone(objects), other)
		}
		if err := f(objects); err != nil {
			return err
		}
	}
	return nil
}

// dumped are the kinds that plans depend on. Nodes come before pods: the node of a pod that is bound meanwhile is then known. Capacity
// buffers come before Deployments, which only they refer to.
func dumped() []client.ObjectList {
	return []client.ObjectList{
		&corev1.NamespaceList{}, &karpv1.NodePoolList{}, &awsv1.EC2NodeClassList{}, &karpv1.NodeClaimList{}, &corev1.NodeList{},
		&storagev1.CSINodeList{}, &storagev1.CSIDriverList{}, &storagev1.CSIStorageCapacityList{},
		&storagev1.StorageClassList{}, &corev1.PersistentVolumeList{},
		&corev1.PersistentVolumeClaimList{}, &storagev1.VolumeAttachmentList{},
		&policyv1.PodDisruptionBudgetList{}, &appsv1.DaemonSetList{}, &corev1.ServiceList{}, &corev1.ReplicationControllerList{},
		&appsv1.ReplicaSetList{}, &appsv1.StatefulSetList{}, &corev1.PodList{},
		&resourcev1.ResourceClaimTemplateList{}, &resourcev1.ResourceClaimList{}, &resourcev1.DeviceClassList{}, &resourcev1.ResourceSliceList{},
		&resourcev1.DeviceTaintRuleList{},
		&corev1.LimitRangeList{}, &nodev1.RuntimeClassList{}, &schedulingv1.PriorityClassList{}, &v1alpha1.NodeOverlayList{},
		&schedulingv1beta1.PodGroupList{},
		&bufferv1.CapacityBufferList{}, &corev1.PodTemplateList{}, &appsv1.DeploymentList{},
	}
}

// page sets how many objects are read at a time. They are scrubbed before the next page: a plan does not depend on most
// of a pod, and a controller that takes a snapshot of a large cluster must not run out of memory.
const page = 500

// List reads all objects of a kind that affect plans, in pages, and reduces each before it reads the next page: see Scrub. A cluster
// without the kind has none, and so has a reader that may not read a kind that few clusters use: its users may have been granted access
// before plans depended on it.
func List(ctx context.Context, cluster client.Reader, kind client.ObjectList, reduce func(client.Object)) ([]client.Object, error) {
	var out []client.Object
	for next := ""; ; {
		list := reflect.New(reflect.TypeOf(kind).Elem()).Interface().(client.ObjectList)
		err := cluster.List(ctx, list, client.Limit(page), client.Continue(next))
		if meta.IsNoMatchError(err) || apierrors.IsForbidden(err) && rarelyUsed(kind) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if o, ok := o.(client.Object); ok && relevant(o) {
				reduce(o)
				out = append(out, o)
			}
		}
		if next = list.GetContinue(); next == "" {
			return out, nil
		}
	}
}

// rarelyUsed reports whether a list is of objects of dynamic resource allocation, which a controller that ignores resource claims may not
// read, or of other objects that most clusters have none of, or that change no plan of theirs.
func rarelyUsed(kind client.ObjectList) bool {
	switch kind.(type) {
	case *storagev1.CSIDriverList, *storagev1.CSIStorageCapacityList, *storagev1.VolumeAttachmentList:
		return true
	case *corev1.LimitRangeList, *nodev1.RuntimeClassList, *schedulingv1.PriorityClassList,
		*v1alpha1.NodeOverlayList, *bufferv1.CapacityBufferList, *corev1.PodTemplateList, *appsv1.DeploymentList:
		return true
	case *resourcev1.ResourceClaimTemplateList, *resourcev1.ResourceClaimList, *resourcev1.DeviceClassList, *resourcev1.ResourceSliceList,
		*resourcev1.DeviceTaintRuleList:
		return true
	case *schedulingv1beta1.PodGroupList:
		return true
	}
	return false
}
