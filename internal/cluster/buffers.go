package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/admission"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
)

// Buffer is a CapacityBuffer with the template of its pods.
type Buffer struct {
	*bufferv1.CapacityBuffer
	Shape
}

// Shape is the resolved pod template of a buffer.
type Shape struct {
	Template *corev1.PodTemplateSpec
	// Generation is that of the PodTemplate, Scalable the replicas of the workload; one of them is nil.
	Generation *int64
	Scalable   *int32
}

// PodTemplateError states why a buffer's pod template cannot be resolved. Reason is one of the condition ReadyForProvisioning.
type PodTemplateError struct{ Reason, Message string }

func (e *PodTemplateError) Error() string { return e.Message }

// ResolvePodTemplate resolves the pod template of a buffer, and completes it as the API server completes its pods. An error that the user
// must correct is a *PodTemplateError.
func ResolvePodTemplate(ctx context.Context, r client.Reader, b *bufferv1.CapacityBuffer) (Shape, error) {
	out, err := templateOf(ctx, r, b)
	if err != nil {
		return Shape{}, err
	}
	out.Template, err = admittedTemplate(ctx, r, b.Namespace, out.Template)
	return out, err
}

// templateOf finds the template that a buffer refers to.
func templateOf(ctx context.Context, r client.Reader, b *bufferv1.CapacityBuffer) (Shape, error) {
	switch {
	case b.Spec.PodTemplateRef != nil:
		t := &corev1.PodTemplate{}
		err := r.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.PodTemplateRef.Name}, t)
		if apierrors.IsNotFound(err) {
			return Shape{}, &PodTemplateError{
				bufferv1.ReasonPodTemplateNotFound,
				fmt.Sprintf("PodTemplate %q does not exist in namespace %q", b.Spec.PodTemplateRef.Name, b.Namespace),
			}
		}
		return Shape{Template: &t.Template, Generation: &t.Generation}, err
	case b.Spec.ScalableRef != nil:
		return templateOfScalable(ctx, r, b.Namespace, b.Spec.ScalableRef)
	}
	return Shape{}, &PodTemplateError{bufferv1.ReasonResolutionFailed, "neither podTemplateRef nor scalableRef is set"}
}

// admittedTemplate is the template of a buffer with what the API server adds to its pods. An error that the user must correct is a
// *PodTemplateError.
func admittedTemplate(
	ctx context.Context, r client.Reader, namespace string, template *corev1.PodTemplateSpec,
) (*corev1.PodTemplateSpec, error) {
	var ranges corev1.LimitRangeList
	if err := r.List(ctx, &ranges, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	from := admission.Objects{LimitRanges: pointers(ranges.Items)}
	if name := template.Spec.RuntimeClassName; name != nil {
		class := &nodev1.RuntimeClass{}
		if err := r.Get(ctx, client.ObjectKey{Name: *name}, class); err == nil {
			from.RuntimeClasses = append(from.RuntimeClasses, class)
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	out := template.DeepCopy()
	if err := admission.New(from).Complete(namespace, &out.Spec); err != nil {
		return nil, &PodTemplateError{bufferv1.ReasonResolutionFailed, "the API server would reject pods of the template: " + err.Error()}
	}
	return out, nil
}

// TemplateRules lists the kinds of objects from which the API server completes the pods of a buffer.
func TemplateRules() []client.Object {
	return []client.Object{&corev1.LimitRange{}, &nodev1.RuntimeClass{}}
}

// Scalable is a kind of workload that a buffer can refer to.
type Scalable struct {
	Name   string
	Object client.Object
}

// Scalables lists the kinds of workload that a buffer can refer to.
func Scalables() []Scalable {
	return []Scalable{{"Deployment", &appsv1.Deployment{}}, {"StatefulSet", &appsv1.StatefulSet{}}, {"ReplicaSet", &appsv1.ReplicaSet{}}}
}

func templateOfScalable(ctx context.Context, r client.Reader, namespace string, ref *bufferv1.ScalableRef) (Shape, error) {
	if ref.APIGroup != "" && ref.APIGroup != appsv1.GroupName {
		return Shape{}, &PodTemplateError{
			bufferv1.ReasonResolutionFailed,
			fmt.Sprintf("scalableRef: API group %q is not %q", ref.APIGroup, appsv1.GroupName),
		}
	}
	var out Shape
	var err error
	key := client.ObjectKey{Namespace: namespace, Name: ref.Name}
	switch ref.Kind {
	case "Deployment":
		o := &appsv1.Deployment{}
		err = r.Get(ctx, key, o)
		out.Template, out.Scalable = &o.Spec.Template, o.Spec.Replicas
	case "StatefulSet":
		o := &appsv1.StatefulSet{}
		err = r.Get(ctx, key, o)
		out.Template, out.Scalable = &o.Spec.Template, o.Spec.Replicas
	case "ReplicaSet":
		o := &appsv1.ReplicaSet{}
		err = r.Get(ctx, key, o)
		out.Template, out.Scalable = &o.Spec.Template, o.Spec.Replicas
	default:
		return Shape{}, &PodTemplateError{
			bufferv1.ReasonResolutionFailed,
			fmt.Sprintf("scalableRef: kind %q is none of Deployment, StatefulSet, ReplicaSet", ref.Kind),
		}
	}
	if apierrors.IsNotFound(err) {
		return Shape{}, &PodTemplateError{
			bufferv1.ReasonScalableRefNotFound,
			fmt.Sprintf("%s %q does not exist in namespace %q", ref.Kind, ref.Name, namespace),
		}
	}
	if out.Scalable == nil {
		one := int32(1)
		out.Scalable = &one
	}
	return out, err
}

// readBuffers reads the buffers to provide capacity for. It skips a buffer with a template that has been deleted since
// it was resolved.
func (s *State) readBuffers(ctx context.Context, o *Objects) error {
	if !s.cfg.CapacityBuffers {
		return nil
	}
	var list bufferv1.CapacityBufferList
	if err := s.listCached(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		b := &list.Items[i]
		if b.DeletionTimestamp != nil || b.Status.Replicas == nil || *b.Status.Replicas <= 0 ||
			!meta.IsStatusConditionTrue(b.Status.Conditions, bufferv1.ConditionReadyForProvisioning) {
			continue
		}
		shape, err := ResolvePodTemplate(ctx, s.cfg.Cache, b)
		if _, userError := err.(*PodTemplateError); userError {
			continue
		}
		if err != nil {
			return fmt.Errorf("capacity buffer %s/%s: %w", b.Namespace, b.Name, err)
		}
		o.Buffers = append(o.Buffers, Buffer{b, shape})
	}
	return nil
}

// addBuffers creates the virtual pods, and sets how many of them the last plan put on each node. Before the first plan,
// every managed node may hold one.
func (w *snapshotBuilder) addBuffers() {
	for _, b := range w.Buffers {
		w.snap.Virtual = append(w.snap.Virtual, buffer.Pods(b.CapacityBuffer, b.Template, *b.Status.Replicas)...)
	}
	slices.SortFunc(w.snap.Virtual, byNamespacedName)
	for i := range w.snap.Nodes {
		n := &w.snap.Nodes[i]
		n.Virtual = max(n.Virtual, w.facts.BufferPods[n.Name], w.facts.BufferPods[n.Claim])
		if w.facts.BufferPods == nil && len(w.snap.Virtual) > 0 {
			n.Virtual = max(n.Virtual, 1)
		}
	}
}

// SetBufferPods replaces the numbers of virtual pods on each node, by the snapshot's name of the node.
func (s *State) SetBufferPods(nodes map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bufferPods = maps.Clone(nodes)
}
