package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// sharedParts holds decoded parts of the pods of one file by their text. Most pods of a file are replicas: their specs,
// labels and often their status are equal. Each is decoded and validated once, and the pods share what it refers to. So
// whatever completes a pod later either sets fields of its own, makes copies, or has the same effect on all pods with
// the part.
type sharedParts struct {
	specs      sharedValues[corev1.PodSpec]
	frames     sharedValues[corev1.PodSpec]
	resources  sharedValues[corev1.ResourceRequirements]
	statuses   sharedValues[corev1.PodStatus]
	labels     sharedValues[map[string]string]
	namespaces sharedValues[string]
}

func newSharedParts() *sharedParts { return &sharedParts{} }

// sharedValues are decoded values by their text.
type sharedValues[T any] struct {
	values map[string]*T
	bytes  int
}

// maxSharedText bounds the text that is kept of each part, in bytes. Beyond it, the parts are forgotten: workloads come
// one after the other in files, so that later pods rarely equal the first. 20,000 specs of 400 bytes fit.
const maxSharedText = 8 << 20

// of returns the value of a text. decode makes it, unless it is known.
func (t *sharedValues[T]) of(text []byte, decode func() (*T, bool)) (*T, bool) {
	if value := t.values[string(text)]; value != nil {
		return value, true
	}
	value, ok := decode()
	if !ok {
		return nil, false
	}
	if t.bytes += len(text); t.values == nil || t.bytes > maxSharedText {
		t.values, t.bytes = map[string]*T{}, len(text)
	}
	t.values[string(text)] = value
	return value, true
}

// strictly decodes a text in which every field is known and set once.
func strictly[T any](text []byte) (*T, bool) {
	value := new(T)
	unknown, err := kjson.UnmarshalStrict(text, value)
	return value, err == nil && len(unknown) == 0
}

// sharedPod adds a pod from shared parts. It reports false for a document that is not a pod, and for pods with an
// error, a note or an unusual form: those are decoded as a whole.
func (f *fileReader) sharedPod(d *document, t *objectText) bool {
	pod := &corev1.Pod{}
	if !f.decodePod(pod, d, t) {
		return false
	}
	f.addPod(pod, *d)
	return true
}

// decodePod is sharedPod without adding the pod, and without effect on what is read from then on.
func (f *fileReader) decodePod(pod *corev1.Pod, d *document, t *objectText) bool {
	if t.odd || t.others || t.items != nil || !f.namesPod(d, t) {
		return false
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return f.shareMetadata(&pod.ObjectMeta, t) && f.shareSpec(&pod.Spec, t.spec) && f.shareStatus(&pod.Status, t.status)
}

// addPod adds a decoded pod.
func (f *fileReader) addPod(pod *corev1.Pod, d document) {
	d.kind, d.taken, d.displayName = kind{"v1", "Pod"}, f.taken, pod.Name
	if pod.Namespace != "" {
		d.displayName = pod.Namespace + "/" + pod.Name
	}
	f.objects++
	f.register(pod, d)
}

// namesPod reports whether the document is a pod, by its own kind or that of the list around it.
func (f *fileReader) namesPod(d *document, t *objectText) bool {
	if t.kind == nil && t.apiVersion == nil {
		return d.kind == kind{"v1", "Pod"}
	}
	return string(t.kind) == `"Pod"` && string(t.apiVersion) == `"v1"`
}

// shareMetadata decodes and validates the metadata. Labels and the namespace are shared.
func (f *fileReader) shareMetadata(m *metav1.ObjectMeta, t *objectText) bool {
	if t.otherMetadata {
		all, ok := strictly[metav1.ObjectMeta](t.metadata)
		if !ok {
			return false
		}
		*m = *all
		scrubMeta(m)
	} else {
		name, plain := plainString(t.name)
		uid, too := plainString(t.uid)
		if !plain || !too {
			return false
		}
		m.Name, m.UID = name, types.UID(uid)
	}
	if len(m.Name) == 0 || !plainSubdomain(m.Name) {
		return false
	}
	if t.namespace != nil {
		namespace, ok := f.shared.namespaces.of(t.namespace, func() (*string, bool) {
			text, plain := plainString(t.namespace)
			return &text, plain && (text == "" || len(validation.IsDNS1123Label(text)) == 0)
		})
		if !ok {
			return false
		}
		m.Namespace = *namespace
	}
	if t.labels != nil {
		labels, ok := f.shared.labels.of(t.labels, func() (*map[string]string, bool) {
			labels, ok := strictly[map[string]string](t.labels)
			return labels, ok && len(labelErrors(*labels, field.NewPath("metadata", "labels"))) == 0
		})
		if !ok {
			return false
		}
		m.Labels = *labels
	}
	return true
}

// shareSpec decodes and validates a spec, and keeps what plans depend on.
func (f *fileReader) shareSpec(spec *corev1.PodSpec, text []byte) bool {
	if text == nil {
		return true
	}
	shared, ok := f.shared.specs.of(text, func() (*corev1.PodSpec, bool) { return f.shared.spec(text) })
	if ok {
		*spec = *shared
	}
	return ok
}

// spec makes a spec of two parts: the resources of its containers, and the rest, which is the same for jobs that differ
// in their size only. Resources take a third of the time to decode that a whole spec takes.
func (p *sharedParts) spec(text []byte) (*corev1.PodSpec, bool) {
	frame, cuts := cutResources(text)
	whole, ok := p.frames.of(frame, func() (*corev1.PodSpec, bool) {
		all, ok := strictly[corev1.PodSpec](frame)
		if !ok || len(podErrors(all, field.NewPath("spec"))) > 0 {
			return nil, false
		}
		kept := scrubbedSpec(all)
		return &kept, true
	})
	if !ok {
		return nil, false
	}
	spec := *whole
	spec.Containers = slices.Clone(whole.Containers)
	for _, cut := range cuts {
		resources, ok := p.resources.of(cut.text, func() (*corev1.ResourceRequirements, bool) {
			if r, plain := plainResources(cut.text); plain {
				return r, true
			}
			r, ok := strictly[corev1.ResourceRequirements](cut.text)
			return r, ok && len(requirementErrors(*r, field.NewPath("resources"))) == 0
		})
		if !ok {
			return nil, false
		}
		spec.Containers[cut.container].Resources = *resources
	}
	return &spec, true
}

// resourcesText is the text of the resources of a container, by its index.
type resourcesText struct {
	container int
	text      []byte
}

// cutResources replaces the resources of the containers in a spec by empty ones. Keys stay, so that repeated ones are
// found.
func cutResources(spec []byte) (frame []byte, cuts []resourcesText) {
	c, begin := cursor{text: spec}, 0
	frame = make([]byte, 0, len(spec))
	container := func(i int) error {
		return c.object(func(key []byte) error {
			if b, err := c.next(); err != nil || b != '{' || string(key) != "resources" {
				return c.value()
			}
			frame = append(append(frame, spec[begin:c.at]...), "{}"...)
			at := c.at
			err := c.value()
			cuts, begin = append(cuts, resourcesText{i, spec[at:c.at]}), c.at
			return err
		})
	}
	_ = c.object(func(key []byte) error { // it was valid before
		if b, err := c.next(); err != nil || b != '[' || string(key) != "containers" {
			return c.value()
		}
		i := -1
		return c.array(func() error {
			i++
			if b, err := c.next(); err != nil || b != '{' {
				return c.value()
			}
			return container(i)
		})
	})
	return append(frame, spec[begin:]...), cuts
}

// shareStatus decodes a status, and keeps what plans depend on.
func (f *fileReader) shareStatus(status *corev1.PodStatus, text []byte) bool {
	if text == nil {
		return true
	}
	shared, ok := f.shared.statuses.of(text, func() (*corev1.PodStatus, bool) {
		all, ok := strictly[corev1.PodStatus](text)
		kept := scrubbedStatus(all)
		return &kept, ok
	})
	if ok {
		*status = *shared
	}
	return ok
}
