package manifest

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Dump writes what a plan of the cluster depends on, as one file that Read takes back. What is secret stays behind,
// see scrub. Workloads are not written: their pods are.
func Dump(ctx context.Context, cluster client.Reader, takenAt time.Time, w io.Writer) error {
	head := header{TypeMeta: metav1.TypeMeta{APIVersion: headerVersion, Kind: headerKind}, TakenAt: metav1.NewTime(takenAt.UTC())}
	if err := writeDocument(w, head); err != nil {
		return err
	}
	spelled := map[reflect.Type]kind{}
	for k, o := range prototypes() {
		spelled[reflect.TypeOf(o)] = k
	}
	// Nodes come before pods: a pod that is bound meanwhile is then on a node that is there.
	for _, list := range []client.ObjectList{
		&corev1.NamespaceList{}, &karpv1.NodePoolList{}, &awsv1.EC2NodeClassList{}, &karpv1.NodeClaimList{}, &corev1.NodeList{},
		&storagev1.CSINodeList{}, &storagev1.StorageClassList{}, &corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{},
		&policyv1.PodDisruptionBudgetList{}, &appsv1.DaemonSetList{}, &corev1.ServiceList{}, &corev1.ReplicationControllerList{},
		&appsv1.ReplicaSetList{}, &appsv1.StatefulSetList{}, &corev1.PodList{},
	} {
		err := cluster.List(ctx, list)
		if meta.IsNoMatchError(err) {
			continue // a cluster that lacks a kind has none of it
		}
		if err != nil {
			return fmt.Errorf("take a snapshot: %w", err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return err
		}
		written := make([]client.Object, 0, len(objects))
		for _, o := range objects {
			if o, ok := o.(client.Object); ok && selecting(o) {
				written = append(written, o)
			}
		}
		slices.SortFunc(written, func(a, b client.Object) int {
			return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
		})
		for _, o := range written {
			scrub(o)
			k := spelled[reflect.TypeOf(o)]
			o.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(k.apiVersion, k.kind))
			if err := writeDocument(w, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeDocument writes one document of a stream.
func writeDocument(w io.Writer, o any) error {
	data, err := sigsyaml.Marshal(o)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "---\n%s", data)
	return err
}
