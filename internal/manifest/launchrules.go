package manifest

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// completeOverlays adds the NodeOverlays. A cluster's overlay that no controller has evaluated applies to nothing there: the feature gate
// is off.
func (r *reader) completeOverlays() {
	for _, o := range all[*v1alpha1.NodeOverlay](r) {
		if o.DeletionTimestamp != nil {
			continue
		}
		verdict, _ := condition.Get(o, v1alpha1.ConditionValidationSucceeded)
		if r.taken("NodeOverlay", "", o.Name) && verdict.Status == metav1.ConditionUnknown {
			r.note("NodeOverlay %s is left out: no controller of its cluster has evaluated it; the feature gate NodeOverlay turns that on", o.Name)
			continue
		}
		r.world.NodeOverlays = append(r.world.NodeOverlays, o)
	}
}

// ReadOverlays adds the NodeOverlays of a live cluster to a state that has nothing but NodePools and node classes.
func (w *ClusterState) ReadOverlays(ctx context.Context, cluster client.Reader) error {
	objects, err := List(ctx, cluster, &v1alpha1.NodeOverlayList{}, scrub)
	if err != nil {
		return err
	}
	r := &reader{world: w, live: true}
	r.collect(objects)
	r.completeOverlays()
	return nil
}

// completeBuffers adds the CapacityBuffers that reserve room. One of a cluster has its number of replicas from its controller, another
// gets it as the controller would compute it.
func (r *reader) completeBuffers() error {
	pods := len(r.world.Pods)
	for _, b := range all[*bufferv1.CapacityBuffer](r) {
		if b.DeletionTimestamp != nil {
			continue
		}
		taken := r.taken("CapacityBuffer", b.Namespace, b.Name)
		if taken && !meta.IsStatusConditionTrue(b.Status.Conditions, bufferv1.ConditionReadyForProvisioning) {
			r.note("CapacityBuffer %s/%s reserves nothing: no controller of its cluster has resolved it%s", b.Namespace, b.Name, whyUnresolved(b))
			continue
		}
		shape, err := cluster.ResolvePodTemplate(context.Background(), objectReader{r}, b) // it reads no network: there is nothing to cancel
		if wrong := (*cluster.PodTemplateError)(nil); errors.As(err, &wrong) {
			r.note("CapacityBuffer %s/%s reserves nothing: %s", b.Namespace, b.Name, wrong.Message)
			continue
		}
		if err != nil {
			return fmt.Errorf("capacity buffer %s/%s: %w", b.Namespace, b.Name, err)
		}
		if !taken || b.Status.Replicas == nil {
			chunks := buffer.Chunks(&b.Spec, shape.Template, r.scale(b, shape.Scalable))
			b = b.DeepCopy() // others may share it
			b.Status.Replicas = &chunks
		}
		if pods += int(min(*b.Status.Replicas, buffer.MaxChunks)); !taken && pods > r.maxPods {
			document := r.objects[identity{"CapacityBuffer", b.Namespace, b.Name}].document
			return document.errorf("%s: spec: with the room that it reserves for %d pods the inputs exceed the %d pods of one plan",
				document.name(), *b.Status.Replicas, r.maxPods)
		}
		if *b.Status.Replicas > 0 {
			r.world.Buffers = append(r.world.Buffers, cluster.Buffer{CapacityBuffer: b, Shape: shape})
		}
	}
	return nil
}

// whyUnresolved returns what the condition of a buffer has to state, as the end of a note.
func whyUnresolved(b *bufferv1.CapacityBuffer) string {
	if c := meta.FindStatusCondition(b.Status.Conditions, bufferv1.ConditionReadyForProvisioning); c != nil {
		return ": " + c.Message
	}
	return "; the feature gate CapacityBuffer turns that on"
}

// scale returns how many replicas the workload of a buffer has. A snapshot has its pods, and not that number.
func (r *reader) scale(b *bufferv1.CapacityBuffer, replicas *int32) *int32 {
	ref := b.Spec.ScalableRef
	if ref == nil || !r.taken(ref.Kind, b.Namespace, ref.Name) {
		return replicas
	}
	count := int32(0)
	for _, pod := range r.world.Pods {
		for _, owner := range r.ownersOf(pod) {
			if owner == (identity{ref.Kind, b.Namespace, ref.Name}) && snapshot.Active(pod) {
				count++
			}
		}
	}
	return &count
}

// objectReader reads the objects of the inputs, as far as templates of buffers need them.
type objectReader struct{ *reader }

// Get implements client.Reader.
func (o objectReader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	want := reflect.TypeOf(into)
	for _, found := range o.order {
		if found.GetName() == key.Name && found.GetNamespace() == key.Namespace && reflect.TypeOf(found.Object) == want {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List implements client.Reader for LimitRanges of a namespace.
func (o objectReader) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	list, of := into.(*corev1.LimitRangeList)
	if !of {
		return fmt.Errorf("list %T of the inputs: not supported", into)
	}
	options := (&client.ListOptions{}).ApplyOptions(opts)
	for _, l := range o.world.LimitRanges {
		if l.Namespace == options.Namespace {
			list.Items = append(list.Items, *l)
		}
	}
	return nil
}

// otherDeployments selects the Deployments that no buffer refers to: they affect no plan, since their ReplicaSets are read. It is nil if
// all are others.
func otherDeployments(buffers []client.Object) func(client.Object) bool {
	wanted := map[client.ObjectKey]bool{}
	for _, o := range buffers {
		if b, is := o.(*bufferv1.CapacityBuffer); is && b.Spec.ScalableRef != nil && b.Spec.ScalableRef.Kind == "Deployment" {
			wanted[client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.ScalableRef.Name}] = true
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	return func(o client.Object) bool { return !wanted[client.ObjectKeyFromObject(o)] }
}
