package manifest

import (
	"cmp"
	"encoding/json"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Change describes how a workload supplied beside a snapshot changes its pods in the cluster.
type Change struct {
	Kind, Name string
	// Was and Now are the numbers of the workload's pods.
	Was, Now int
	// Added pods are planned, Removed pods are gone, and Replaced pods are both: the template differs.
	Added, Removed, Replaced int
	// Fields are the template's fields that differ, if pods are replaced.
	Fields []string
}

// overrides are the workloads supplied beside a snapshot, and the pods that the snapshot has of each.
type overrides struct {
	*reader
	// pods are the snapshot's running and pending pods, by workload.
	pods map[identity][]*corev1.Pod
	gone map[*corev1.Pod]bool
	// compared are the fields in which the template of an owner differs from the overriding one.
	compared map[compared][]string
}

// compared is an owner of pods, and the template with which its own is compared.
type compared struct {
	owner    identity
	template *corev1.PodTemplateSpec
}

func (r *reader) newOverrides() *overrides {
	s := &overrides{reader: r, pods: map[identity][]*corev1.Pod{}, gone: map[*corev1.Pod]bool{}, compared: map[compared][]string{}}
	for _, pod := range r.world.Pods {
		if !r.takenPod(pod) || pod.DeletionTimestamp != nil || snapshot.Terminal(pod) {
			continue
		}
		for _, id := range r.ownersOf(pod) {
			s.pods[id] = append(s.pods[id], pod)
		}
	}
	return s
}

// ownersOf returns the workloads that a pod belongs to: its controller, and the controller's.
func (r *reader) ownersOf(pod *corev1.Pod) []identity {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil
	}
	direct := identity{owner.Kind, pod.Namespace, owner.Name}
	out := []identity{direct}
	if o := r.objects[direct]; o != nil {
		if above := metav1.GetControllerOf(o); above != nil {
			return append(out, identity{above.Kind, pod.Namespace, above.Name})
		}
	}
	// The snapshot may have a Deployment's pods without its ReplicaSet.
	if hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; owner.Kind == "ReplicaSet" && hash != "" {
		out = append(out, identity{"Deployment", pod.Namespace, strings.TrimSuffix(owner.Name, "-"+hash)})
	}
	return out
}

// replace overrides a workload of the snapshot: pods of the same template stay on their nodes, up to the number of
// replicas, and new pods replace the others.
func (s *overrides) replace(id identity, w workload, names podNames) {
	pods := s.pods[id]
	if w.replicasUnset { // applied to the cluster, the manifest would not change their number
		w.replicas = len(pods)
	}
	change := Change{Kind: id.kind, Name: id.namespace + "/" + id.name, Was: len(pods), Now: w.replicas}
	fields := map[*corev1.Pod][]string{}
	for _, pod := range pods {
		fields[pod] = s.differs(pod, w.template)
	}
	var kept []*corev1.Pod
	for pod, wanted := range w.wanted(pods, fields) {
		switch {
		case wanted && len(fields[pod]) == 0:
			kept = append(kept, pod)
			continue
		case wanted:
			change.Replaced++
			change.Fields = fields[pod]
		}
		s.gone[pod] = true
	}
	missing := w.replicas - len(kept)
	change.Added, change.Removed = missing-change.Replaced, len(pods)-len(kept)-change.Replaced
	taken := map[string]bool{}
	for _, pod := range pods {
		taken[pod.Name] = !s.gone[pod]
	}
	for ordinal := w.firstIndex; missing > 0; ordinal++ {
		ordinal = names.free(&w, ordinal)
		pod := w.pod(ordinal)
		if taken[pod.Name] {
			continue
		}
		if len(kept) > 0 { // they are of one ReplicaSet
			pod.OwnerReferences = kept[0].OwnerReferences
			if hash := kept[0].Labels[appsv1.DefaultDeploymentUniqueLabelKey]; hash != "" {
				pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
			}
		}
		s.world.Pods = append(s.world.Pods, pod)
		s.claimsOf(w, ordinal)
		missing--
	}
	if change.Added+change.Removed+change.Replaced > 0 {
		s.world.Changes = append(s.world.Changes, change)
	}
}

// wanted yields all pods with whether they stay at the workload's number of replicas: of a StatefulSet those of the
// first ordinals, of others those of the right template, and then those that controllers delete last: bound ones, those
// with the higher deletion cost, the older.
func (w *workload) wanted(pods []*corev1.Pod, fields map[*corev1.Pod][]string) iter.Seq2[*corev1.Pod, bool] {
	unbound := func(p *corev1.Pod) int {
		if p.Spec.NodeName == "" {
			return 1
		}
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(len(fields[a]), len(fields[b])), cmp.Compare(unbound(a), unbound(b)), cmp.Compare(deletionCost(b), deletionCost(a)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name),
		)
	})
	return func(yield func(*corev1.Pod, bool) bool) {
		for i, pod := range sorted {
			stays := i < w.replicas
			if w.kind.kind == "StatefulSet" {
				ordinal, err := strconv.Atoi(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:])
				stays = err == nil && ordinal >= w.firstIndex && ordinal < w.firstIndex+w.replicas
			}
			if !yield(pod, stays) {
				return
			}
		}
	}
}

// deletionCost returns the deletion cost of a pod; 0 if it is no number.
func deletionCost(pod *corev1.Pod) int {
	cost, err := strconv.Atoi(pod.Annotations[corev1.PodDeletionCost])
	if err != nil {
		return 0
	}
	return cost
}

// replaceDaemons replaces a DaemonSet's pods with those of the overriding template, each on its node.
func (s *overrides) replaceDaemons(id identity, set *appsv1.DaemonSet) {
	change := Change{Kind: id.kind, Name: id.namespace + "/" + id.name, Was: len(s.pods[id])}
	nodes := map[string]*corev1.Node{}
	for _, node := range s.world.Nodes {
		nodes[node.Name] = node
	}
	for _, old := range s.pods[id] {
		fields := s.differs(old, &set.Spec.Template)
		if len(fields) == 0 {
			change.Now++
			continue
		}
		s.gone[old], change.Fields = true, fields
		pod := &corev1.Pod{ObjectMeta: *set.Spec.Template.ObjectMeta.DeepCopy(), Spec: *set.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.Name, pod.OwnerReferences = old.Namespace, old.Name, old.OwnerReferences
		pod.UID = madeUID("Pod", old.Namespace, old.Name)
		pod.Status.Phase = corev1.PodRunning
		node := nodes[old.Spec.NodeName]
		if node != nil {
			if fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !fits {
				change.Removed++
				continue
			}
		}
		pod.Spec.NodeName = old.Spec.NodeName
		snapshot.RequestLimits(&pod.Spec)
		s.world.Pods = append(s.world.Pods, pod)
		change.Replaced, change.Now = change.Replaced+1, change.Now+1
	}
	if change.Removed+change.Replaced > 0 {
		s.world.Changes = append(s.world.Changes, change)
	}
}

// differs returns the fields that plans read and in which a pod's template differs from the given one. If the pod's
// owner is in the snapshot, its template is compared; otherwise the pod, to which admission may have added.
func (s *overrides) differs(pod *corev1.Pod, template *corev1.PodTemplateSpec) []string {
	owner := metav1.GetControllerOf(pod)
	id := identity{owner.Kind, pod.Namespace, owner.Name}
	if fields, known := s.compared[compared{id, template}]; known {
		return fields
	}
	o := s.overridden[id]
	if o == nil {
		o = s.objects[id]
	}
	want := withDefaults(template.Labels, &template.Spec)
	if o != nil && o.document.taken {
		if old := templateOf(o.Object); old != nil && len(old.Spec.Containers) > 0 {
			fields := differences("spec.template", withDefaults(old.Labels, &old.Spec), want)
			s.compared[compared{id, template}] = fields
			return fields
		}
	}
	have := withDefaults(pod.Labels, &pod.Spec)
	have.dropAdmitted(&want)
	return differences("spec.template", have, want)
}

// templateOf returns the template of a workload; nil if the object is none.
func templateOf(o any) *corev1.PodTemplateSpec {
	switch t := o.(type) {
	case *appsv1.ReplicaSet:
		return &t.Spec.Template
	case *appsv1.StatefulSet:
		return &t.Spec.Template
	case *appsv1.DaemonSet:
		return &t.Spec.Template
	case *corev1.ReplicationController:
		return t.Spec.Template
	}
	return nil
}

// normalized is the part of a template that plans read, with the defaults of the API server.
type normalized struct {
	Metadata struct {
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Spec corev1.PodSpec `json:"spec"`
}

func withDefaults(labels map[string]string, spec *corev1.PodSpec) normalized {
	var out normalized
	out.Metadata.Labels = maps.Clone(labels)
	delete(out.Metadata.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	if len(out.Metadata.Labels) == 0 {
		out.Metadata.Labels = nil
	}
	s := scrubbedSpec(spec.DeepCopy())
	snapshot.RequestLimits(&s)
	s.NodeName, s.Priority = "", nil
	s.SchedulerName = cmp.Or(s.SchedulerName, corev1.DefaultSchedulerName)
	s.RestartPolicy = cmp.Or(s.RestartPolicy, corev1.RestartPolicyAlways)
	if s.TerminationGracePeriodSeconds == nil {
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		s.TerminationGracePeriodSeconds = &grace
	}
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			c := &containers[i]
			c.ResizePolicy = nil
			for j := range c.Ports {
				p := &c.Ports[j]
				p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
				if s.HostNetwork {
					p.HostPort = p.ContainerPort
				}
			}
		}
	}
	for _, v := range s.Volumes {
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil && v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode == nil {
			filesystem := corev1.PersistentVolumeFilesystem
			v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode = &filesystem
		}
	}
	out.Spec = s
	return out
}

// dropAdmitted removes from a pod what its template does not have: the API server and webhooks add to pods.
func (m *normalized) dropAdmitted(template *normalized) {
	maps.DeleteFunc(m.Metadata.Labels, func(key, _ string) bool {
		_, has := template.Metadata.Labels[key]
		return !has
	})
	if len(m.Metadata.Labels) == 0 {
		m.Metadata.Labels = nil
	}
	m.Spec.Tolerations = slices.DeleteFunc(m.Spec.Tolerations, func(t corev1.Toleration) bool {
		has := slices.ContainsFunc(template.Spec.Tolerations, func(o corev1.Toleration) bool { return reflect.DeepEqual(o, t) })
		return strings.HasPrefix(t.Key, "node.kubernetes.io/") && !has
	})
	if len(m.Spec.Tolerations) == 0 {
		m.Spec.Tolerations = nil
	}
	m.Spec.Containers = m.ofTemplate(m.Spec.Containers, template.Spec.Containers)
	m.Spec.InitContainers = m.ofTemplate(m.Spec.InitContainers, template.Spec.InitContainers)
	m.Spec.Volumes = slices.DeleteFunc(m.Spec.Volumes, func(v corev1.Volume) bool {
		return !slices.ContainsFunc(template.Spec.Volumes, func(o corev1.Volume) bool { return o.Name == v.Name })
	})
	if len(m.Spec.Volumes) == 0 {
		m.Spec.Volumes = nil
	}
	if template.Spec.PriorityClassName == "" {
		m.Spec.PriorityClassName = "" // the default class
	}
	m.Spec.Overhead = template.Spec.Overhead // a RuntimeClass adds it
}

// ofTemplate returns the containers that the template has, too; webhooks change their images, and add others.
func (m *normalized) ofTemplate(containers, template []corev1.Container) (out []corev1.Container) {
	for _, c := range containers {
		at := slices.IndexFunc(template, func(o corev1.Container) bool { return o.Name == c.Name })
		if at >= 0 {
			c.Image = template[at].Image
			out = append(out, c)
		}
	}
	return out
}

// differences returns the paths of the fields in which two objects differ, as deep as possible.
func differences(path string, a, b any) []string {
	return fieldsThatDiffer(path, tree(a), tree(b))
}

// tree returns an object as decoded JSON.
func tree(o any) (out any) {
	data, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return nil // objects of the API marshal
	}
	return out
}

func fieldsThatDiffer(path string, a, b any) (out []string) {
	before, isMap := a.(map[string]any)
	after, too := b.(map[string]any)
	switch {
	case (isMap || a == nil) && (too || b == nil) && (isMap || too):
		keys := map[string]any{}
		maps.Copy(keys, before)
		maps.Copy(keys, after)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			out = append(out, fieldsThatDiffer(path+"."+key, before[key], after[key])...)
		}
	case !reflect.DeepEqual(a, b):
		if list, isList := b.([]any); isList { // of lists of the same length, the items that differ
			if old, too := a.([]any); too && len(old) == len(list) {
				for i := range list {
					out = append(out, fieldsThatDiffer(path+"["+strconv.Itoa(i)+"]", old[i], list[i])...)
				}
				return out
			}
		}
		out = append(out, path)
	}
	return out
}
