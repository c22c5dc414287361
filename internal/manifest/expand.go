package manifest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workload makes pods from a template.
type workload struct {
	client.Object
	kind     kind
	template *corev1.PodTemplateSpec
	replicas int
	// replicasUnset is true if the manifest leaves the number of replicas to the cluster, for example to a
	// HorizontalPodAutoscaler.
	replicasUnset bool
	volumes       []corev1.PersistentVolumeClaim
	firstIndex    int
	// labels returns the labels that the workload's controller adds to each of its pods.
	labels func(pod string, index int) map[string]string
}

// DefaultMaxPods keeps a typing mistake from using all memory: a plan takes some 5 KB for each pod. Kubernetes supports clusters of 150,000
// pods.
const DefaultMaxPods = 1_000_000

// expansion is a workload with pods that are made.
type expansion struct {
	workload
	id identity
	// overrides is true if the snapshot has the workload, too.
	overrides bool
}

// expand makes the pods of workloads. A workload makes none if another workload owns it, or if the inputs have its pods
// already. A workload supplied beside a snapshot overrides the snapshot's.
func (r *reader) expand() error {
	overrides := r.newOverrides()
	list, err := r.expansions(overrides)
	if err != nil {
		return err
	}
	if len(list) > 0 { // only workloads need it
		names := r.podNames(list)
		for i := range list {
			if w := &list[i]; w.overrides {
				overrides.replace(w.id, w.workload, names)
			} else {
				r.makePods(&w.workload, names)
			}
		}
	}
	r.world.Pods = slices.DeleteFunc(r.world.Pods, func(p *corev1.Pod) bool { return overrides.gone[p] })
	for pod := range overrides.gone {
		r.gone[pod.UID] = true
	}
	return nil
}

// makePods makes the pods of a workload that has none among the inputs.
func (r *reader) makePods(w *workload, names podNames) {
	ordinal := w.firstIndex
	for range w.replicas {
		ordinal = names.free(w, ordinal)
		r.world.Pods = append(r.world.Pods, w.pod(ordinal))
		r.claimsOf(*w, ordinal)
		ordinal++
	}
}

// expansions lists the workloads with pods that are made. It makes none yet: the error is that of the workload with which they become too
// many.
func (r *reader) expansions(overrides *overrides) (out []expansion, _ error) {
	owners := r.ownersInFiles()
	pods := len(r.world.Pods)
	for _, o := range r.order {
		id := o.identity()
		if o.document.taken {
			continue // its pods are in the snapshot
		}
		if set, ok := o.Object.(*appsv1.DaemonSet); ok {
			overrides.replaceDaemons(id, set)
		}
		w, ok := newWorkload(o.Object)
		if !ok {
			continue
		}
		if len(w.template.Spec.Containers) == 0 {
			r.note("%s: %s has no containers in spec.template.spec: its pods are planned without requests, and the API server "+
				"rejects it; check its indentation", o.document.place, o.document.name())
		}
		owner, existing := metav1.GetControllerOf(o), len(overrides.pods[id])
		switch {
		case owner != nil && r.objects[identity{owner.Kind, id.namespace, owner.Name}] != nil:
			continue
		case existing > 0 && w.replicasUnset:
		case existing > 0:
			pods += w.replicas - existing
		case owners[id]:
			continue
		default:
			pods += w.replicas
		}
		if pods > r.maxPods {
			return nil, o.errorf("%s: %s: with its %d pods the inputs exceed the %d pods of one plan", o.document.name(),
				replicasField(o.Object), w.replicas, r.maxPods)
		}
		out = append(out, expansion{w, id, existing > 0})
	}
	return out, nil
}

// ownersInFiles are the controllers of objects of the inputs.
func (r *reader) ownersInFiles() map[identity]bool {
	out := map[identity]bool{}
	for _, o := range r.order {
		if owner := metav1.GetControllerOf(o); owner != nil {
			out[identity{owner.Kind, o.GetNamespace(), owner.Name}] = true
			// The inputs may have a Deployment's pods without its ReplicaSet.
			if hash := o.GetLabels()[appsv1.DefaultDeploymentUniqueLabelKey]; owner.Kind == "ReplicaSet" && hash != "" {
				out[identity{"Deployment", o.GetNamespace(), strings.TrimSuffix(owner.Name, "-"+hash)}] = true
			}
		}
	}
	return out
}

// podNames are the names that pods have or will have, with their namespaces. Workloads of different kinds may have the
// same name, and a plan identifies pods by name.
type podNames map[string]bool

// podNames returns the names of the pods in the inputs, and of the pods that StatefulSets make.
func (r *reader) podNames(made []expansion) podNames {
	out := podNames{}
	for _, pod := range r.world.Pods {
		out[pod.Namespace+"/"+pod.Name] = true
	}
	for i := range made {
		if w := &made[i]; w.kind.kind == "StatefulSet" {
			for n := range w.replicas {
				out[w.GetNamespace()+"/"+w.podName(w.firstIndex+n)] = true
			}
		}
	}
	return out
}

// free reserves the first unused name from an ordinal on, and returns its ordinal. The names of a StatefulSet's pods
// are fixed.
func (n podNames) free(w *workload, ordinal int) int {
	if w.kind.kind == "StatefulSet" {
		return ordinal
	}
	for ; ; ordinal++ {
		if name := w.GetNamespace() + "/" + w.podName(ordinal); !n[name] {
			n[name] = true
			return ordinal
		}
	}
}

func newWorkload(o client.Object) (workload, bool) {
	w := workload{Object: o, labels: func(string, int) map[string]string { return nil }}
	switch t := o.(type) {
	case *appsv1.Deployment:
		w.kind, w.template, w.replicas = kind{"apps/v1", "ReplicaSet"}, &t.Spec.Template, orOne(t.Spec.Replicas)
		hash := templateHash(w.template)
		w.labels = func(string, int) map[string]string {
			return map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}
		}
	case *appsv1.ReplicaSet:
		w.kind, w.template, w.replicas = kind{"apps/v1", "ReplicaSet"}, &t.Spec.Template, orOne(t.Spec.Replicas)
	case *corev1.ReplicationController:
		if t.Spec.Template == nil {
			return workload{}, false
		}
		w.kind, w.template, w.replicas = kind{"v1", "ReplicationController"}, t.Spec.Template, orOne(t.Spec.Replicas)
	case *appsv1.StatefulSet:
		w.kind, w.template, w.replicas = kind{"apps/v1", "StatefulSet"}, &t.Spec.Template, orOne(t.Spec.Replicas)
		w.volumes = t.Spec.VolumeClaimTemplates
		if t.Spec.Ordinals != nil {
			w.firstIndex = int(t.Spec.Ordinals.Start)
		}
		w.labels = func(pod string, index int) map[string]string {
			return map[string]string{appsv1.StatefulSetPodNameLabel: pod, appsv1.PodIndexLabel: strconv.Itoa(index)}
		}
	case *batchv1.Job:
		w.kind, w.template, w.replicas = kind{"batch/v1", "Job"}, &t.Spec.Template, activePods(t)
		w.labels = func(string, int) map[string]string {
			return map[string]string{batchv1.JobNameLabel: t.Name, "job-name": t.Name}
		}
	default:
		return workload{}, false
	}
	w.replicasUnset = replicasOf(o) == nil
	return w, true
}

// replicasOf returns the replicas in a workload's spec; nil if unset.
func replicasOf(o client.Object) *int32 {
	switch t := o.(type) {
	case *appsv1.Deployment:
		return t.Spec.Replicas
	case *appsv1.ReplicaSet:
		return t.Spec.Replicas
	case *appsv1.StatefulSet:
		return t.Spec.Replicas
	case *corev1.ReplicationController:
		return t.Spec.Replicas
	case *batchv1.Job:
		return t.Spec.Parallelism
	}
	return nil
}

// replicasField is the path of that number.
func replicasField(o client.Object) string {
	if _, job := o.(*batchv1.Job); job {
		return "spec.parallelism"
	}
	return "spec.replicas"
}

func orOne(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// activePods returns how many pods of a Job run at the same time.
func activePods(job *batchv1.Job) int {
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		return 0
	}
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return 0
		}
	}
	n := orOne(job.Spec.Parallelism)
	if c := job.Spec.Completions; c != nil {
		n = min(n, int(*c))
	}
	return n
}

// pod makes the pod with an ordinal.
func (w *workload) pod(ordinal int) *corev1.Pod {
	t := w.template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Namespace, pod.Name = w.GetNamespace(), w.podName(ordinal)
	pod.UID = madeUID("Pod", pod.Namespace, pod.Name)
	controller := true
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: w.kind.apiVersion, Kind: w.kind.kind, Name: w.GetName(), UID: w.GetUID(), Controller: &controller,
	}}
	added := w.labels(pod.Name, ordinal)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, added)
	for _, claim := range w.volumes {
		source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + pod.Name}
		pod.Spec.Volumes = append(
			pod.Spec.Volumes,
			corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source}},
		)
	}
	return pod
}

func (w *workload) podName(ordinal int) string { return fmt.Sprintf("%s-%d", w.GetName(), ordinal) }

// claimsOf makes the volume claims of a StatefulSet's pod, unless they are among the inputs.
func (r *reader) claimsOf(w workload, ordinal int) {
	for i := range w.volumes {
		claim := w.volumes[i].DeepCopy()
		claim.Namespace, claim.Name = w.GetNamespace(), claim.Name+"-"+w.podName(ordinal)
		r.addClaim(claim)
	}
}

// addClaim adds a volume claim, unless one with its name exists.
func (r *reader) addClaim(claim *corev1.PersistentVolumeClaim) {
	id := identity{"PersistentVolumeClaim", claim.Namespace, claim.Name}
	if r.objects[id] != nil {
		return
	}
	claim.UID = madeUID(id.kind, id.namespace, id.name)
	r.objects[id] = &object{Object: claim}
	r.world.PersistentVolumeClaims = append(r.world.PersistentVolumeClaims, claim)
}

// templateHash distinguishes the templates of Deployments, like the label pod-template-hash.
func templateHash(t *corev1.PodTemplateSpec) string {
	h := fnv.New32a()
	_ = json.NewEncoder(h).Encode(t) // a hash never fails to write
	return fmt.Sprintf("%08x", h.Sum32())
}
