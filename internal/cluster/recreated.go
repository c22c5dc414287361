package cluster

import (
	"context"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// maybeResized reports whether the resources of a bound pod may have been changed in place: the API server counts each change of a spec
// in the generation. Where an object lacks it, a kubelet that reports resources can resize.
func maybeResized(pod *corev1.Pod) bool {
	if pod.Generation != 0 {
		return pod.Generation > 1
	}
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Resources != nil {
			return true
		}
	}
	return false
}

// addRecreated notes which pods would request more on another node. A pod that was resized in place is made again from its owner's
// template, so a move takes the larger of both.
//
// Cost: linear in the number of pods that may have been resized; one template per owner.
func (w *snapshotBuilder) addRecreated() {
	var templates *ownerTemplates
	for i := range w.snap.Nodes {
		for _, pod := range w.snap.Nodes[i].Pods {
			if !maybeResized(pod) || !snapshot.Reschedulable(pod) {
				continue
			}
			if templates == nil {
				templates = w.ownerTemplates()
			}
			if more := larger(snapshot.Requests(pod), templates.requestsOf(pod)); more != nil {
				if w.snap.Recreated == nil {
					w.snap.Recreated = map[types.UID]corev1.ResourceList{}
				}
				w.snap.Recreated[pod.UID] = more
			}
		}
	}
}

// larger returns the larger amount of each resource; nil if the first list has all of them.
func larger(now, template corev1.ResourceList) (out corev1.ResourceList) {
	for name, q := range template {
		if q.Cmp(now[name]) > 0 {
			if out == nil {
				out = now.DeepCopy()
			}
			out[name] = q
		}
	}
	return out
}

// ownerTemplates finds the templates of pods among the owners that were read.
type ownerTemplates struct {
	*snapshotBuilder
	byUID  map[types.UID]*corev1.PodTemplateSpec
	byName map[ownerName]*corev1.PodTemplateSpec
	// requests are the requests of pods of a template, once they are known.
	requests map[*corev1.PodTemplateSpec]corev1.ResourceList
}

// ownerName identifies an owner in files, which may lack UIDs.
type ownerName struct{ kind, namespace, name string }

func (w *snapshotBuilder) ownerTemplates() *ownerTemplates {
	t := &ownerTemplates{
		w, map[types.UID]*corev1.PodTemplateSpec{}, map[ownerName]*corev1.PodTemplateSpec{}, map[*corev1.PodTemplateSpec]corev1.ResourceList{},
	}
	for _, o := range w.ReplicaSets {
		t.add("ReplicaSet", o, &o.Spec.Template)
	}
	for _, o := range w.StatefulSets {
		t.add("StatefulSet", o, &o.Spec.Template)
	}
	for _, o := range w.ReplicationControllers {
		if o.Spec.Template != nil {
			t.add("ReplicationController", o, o.Spec.Template)
		}
	}
	return t
}

func (t *ownerTemplates) add(kind string, o client.Object, template *corev1.PodTemplateSpec) {
	if len(template.Spec.Containers) == 0 {
		return
	}
	t.byUID[o.GetUID()] = template
	t.byName[ownerName{kind, o.GetNamespace(), o.GetName()}] = template
}

// requestsOf returns what the pod will request when its owner makes it again; nil if its template is not known.
func (t *ownerTemplates) requestsOf(pod *corev1.Pod) corev1.ResourceList {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return nil
	}
	template := t.byUID[owner.UID]
	if template == nil {
		template = t.byName[ownerName{owner.Kind, pod.Namespace, owner.Name}]
	}
	// A file may have a Deployment in place of its ReplicaSet.
	if hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; template == nil && hash != "" {
		template = t.byName[ownerName{owner.Kind, pod.Namespace, strings.TrimSuffix(owner.Name, "-"+hash)}]
	}
	if template == nil {
		return nil
	}
	if known, found := t.requests[template]; found {
		return known
	}
	made := &corev1.Pod{Spec: *template.Spec.DeepCopy()}
	var out corev1.ResourceList
	if t.rules.Complete(pod.Namespace, &made.Spec) == nil {
		out = snapshot.Requests(made)
	}
	t.requests[template] = out
	return out
}

const (
	// templateAge sets how long the template of an owner counts as known. Those of ReplicaSets do not change, and those of StatefulSets
	// rarely.
	templateAge = 5 * time.Minute
	// maxTemplateReads bounds how many owners are read for one Snapshot, so that none waits for hundreds of answers. After a restart, the
	// next Snapshots read the others.
	maxTemplateReads = 20
)

// readOwner is an owner as the API server had it; nil if it is gone.
type readOwner struct {
	client.Object
	at time.Time
}

// readResizedOwners reads the owners of pods that were resized in place, for their templates, unless all owners are read anyway. It reads
// them from the API server: a cache of all ReplicaSets would cost more memory than the few that matter. One that cannot be read is left
// out: its pods count as they are now.
func (s *State) readResizedOwners(ctx context.Context, o *Objects) error {
	if len(s.cfg.Settings.DefaultSpread) > 0 || s.cfg.Live == nil {
		return nil
	}
	wanted := map[types.UID]client.Object{}
	for _, pod := range o.Pods {
		if pod.Spec.NodeName == "" || pod.Generation <= 1 || !snapshot.Reschedulable(pod) {
			continue
		}
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && wanted[owner.UID] == nil {
			if object := ownerOfKind(owner.Kind); object != nil {
				object.SetNamespace(pod.Namespace)
				object.SetName(owner.Name)
				wanted[owner.UID] = object
			}
		}
	}
	s.owners.Lock()
	defer s.owners.Unlock()
	for uid := range s.read {
		if wanted[uid] == nil {
			delete(s.read, uid)
		}
	}
	reads := 0
	for uid, object := range wanted {
		known, found := s.read[uid]
		if (!found || s.cfg.Now().Sub(known.at) > templateAge) && reads < maxTemplateReads {
			reads++
			err := s.cfg.Live.Get(ctx, client.ObjectKeyFromObject(object), object)
			if err == nil || apierrors.IsNotFound(err) {
				if known = (readOwner{object, s.cfg.Now()}); err != nil || object.GetUID() != uid {
					known.Object = nil
				}
				s.read[uid] = known
			}
		}
		switch t := known.Object.(type) {
		case *appsv1.ReplicaSet:
			o.ReplicaSets = append(o.ReplicaSets, t)
		case *appsv1.StatefulSet:
			o.StatefulSets = append(o.StatefulSets, t)
		case *corev1.ReplicationController:
			o.ReplicationControllers = append(o.ReplicationControllers, t)
		}
	}
	return nil
}

// ownerOfKind is an empty owner of pods that are made again when they are evicted; nil for other kinds.
func ownerOfKind(kind string) client.Object {
	switch kind {
	case "ReplicaSet":
		return &appsv1.ReplicaSet{}
	case "StatefulSet":
		return &appsv1.StatefulSet{}
	case "ReplicationController":
		return &corev1.ReplicationController{}
	}
	return nil
}
