package podclass

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Key describes a pod. Both keys are valid until the next one is made.
type Key struct {
	// All is equal for pods with equal requests and equal constraints.
	All []byte
	// Constraints is the end of All. It is equal for pods with equal constraints, whatever they request.
	Constraints []byte
	// Requests are the pod's requests where they had to be computed; else nil. They must not be changed.
	Requests corev1.ResourceList
}

// Keys makes the keys of pods. Only pods with unusual requests cost an allocation.
type Keys struct {
	// names is reused from map to map.
	names   []string
	devices bool
	// extended are the extended resources that devices serve.
	extended []corev1.ResourceName
	settings *snapshot.Settings
	key      []byte
	amounts  []amountOf
	requests *snapshot.RequestCache[corev1.ResourceList]
}

type amountOf struct {
	name  corev1.ResourceName
	units int64
}

// NewKeys makes keys. If devices are planned, they are allocated pod by pod: then no two pods with devices have equal
// keys.
func NewKeys(devices bool, settings *snapshot.Settings) *Keys {
	return &Keys{devices: devices, settings: settings, requests: snapshot.NewRequestCache(snapshot.Requests)}
}

// Of is the key of the pod.
func (f *Keys) Of(pod *corev1.Pod) (Key, error) {
	f.key = f.key[:0]
	list := f.request(pod)
	for _, a := range f.amounts {
		f.addString(string(a.name))
		f.key = binary.AppendVarint(f.key, a.units)
	}
	start := len(f.key)
	if err := f.addConstraints(pod); err != nil {
		return Key{}, fmt.Errorf("describe pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return Key{f.key, f.key[start:], list}, nil
}

// request lists the requests of the pod, sorted by name. It returns the list only where it had to compute it.
func (f *Keys) request(pod *corev1.Pod) corev1.ResourceList {
	f.amounts = f.amounts[:0]
	spec := &pod.Spec
	plain := len(spec.Containers) == 1 && len(spec.InitContainers) == 0 && spec.Resources == nil && len(spec.Overhead) == 0 &&
		len(pod.Status.ContainerStatuses) == 0
	var made corev1.ResourceList
	list := corev1.ResourceList(nil)
	if plain {
		list = spec.Containers[0].Resources.Requests
		f.amounts = append(f.amounts, amountOf{corev1.ResourcePods, 1})
	} else {
		made = f.requests.Of(pod)
		list = made
	}
	for name, q := range list {
		f.amounts = append(f.amounts, amountOf{name, quantity.Of(name, q)})
	}
	slices.SortFunc(f.amounts, func(a, b amountOf) int { return cmp.Compare(a.name, b.name) })
	return made
}

// requestsExtended reports whether the pod requests an extended resource that devices serve.
func (f *Keys) requestsExtended() bool {
	return len(f.extended) > 0 && slices.ContainsFunc(f.amounts, func(a amountOf) bool {
		return a.units > 0 && slices.Contains(f.extended, a.name)
	})
}

func (f *Keys) addString(s string) {
	f.key = binary.AppendUvarint(f.key, uint64(len(s)))
	f.key = append(f.key, s...)
}

func (f *Keys) addBool(b bool) {
	if b {
		f.key = append(f.key, 1)
		return
	}
	f.key = append(f.key, 0)
}

func (f *Keys) addMap(m map[string]string) {
	f.key = binary.AppendUvarint(f.key, uint64(len(m)))
	if len(m) == 1 {
		for k, v := range m {
			f.addString(k)
			f.addString(v)
		}
		return
	}
	f.names = slices.AppendSeq(f.names[:0], maps.Keys(m))
	slices.Sort(f.names)
	for _, k := range f.names {
		f.addString(k)
		f.addString(m[k])
	}
}

// protoMessage is an API object with a deterministic binary form.
type protoMessage interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

func (f *Keys) addMessage(m protoMessage) error {
	n := m.Size()
	f.key = binary.AppendUvarint(f.key, uint64(n))
	start := len(f.key)
	f.key = append(f.key, make([]byte, n)...)
	_, err := m.MarshalToSizedBuffer(f.key[start:])
	return err
}

// addConstraints appends everything that the scheduler considers, except requests.
func (f *Keys) addConstraints(pod *corev1.Pod) error {
	spec := &pod.Spec
	f.addString(pod.Namespace)
	if profile := f.settings.ProfileName(spec); profile != "" {
		f.addString("profile")
		f.addString(profile)
	}
	f.addMap(pod.Labels)
	f.addMap(spec.NodeSelector)
	devices := snapshot.WantsDevices(spec) || f.requestsExtended()
	f.addBool(devices)
	if devices && f.devices {
		f.addString(string(pod.UID)) // devices are allocated pod by pod
	}
	f.addBool(spec.Affinity != nil)
	if spec.Affinity != nil {
		if err := f.addMessage(spec.Affinity); err != nil {
			return err
		}
	}
	f.key = binary.AppendUvarint(f.key, uint64(len(spec.Tolerations)))
	for i := range spec.Tolerations {
		if err := f.addMessage(&spec.Tolerations[i]); err != nil {
			return err
		}
	}
	f.key = binary.AppendUvarint(f.key, uint64(len(spec.TopologySpreadConstraints)))
	for i := range spec.TopologySpreadConstraints {
		if err := f.addMessage(&spec.TopologySpreadConstraints[i]); err != nil {
			return err
		}
	}
	for _, p := range resources.HostPorts(pod) {
		f.addString("port")
		f.addString(p.IP)
		f.addString(string(p.Protocol))
		f.key = binary.AppendVarint(f.key, int64(p.Port))
		f.addString(p.Disk)
		f.addBool(p.ReadOnly)
	}
	for _, name := range snapshot.RequiredFeatures(spec) {
		f.addString("feature")
		f.addString(name)
	}
	for i := range spec.Volumes {
		if name, ok := snapshot.ClaimName(pod, &spec.Volumes[i]); ok {
			f.addString("claim")
			f.addString(name)
			f.addBool(spec.NodeName != "") // a volume on the disks of a node does not bind pods that move
			if spec.Volumes[i].Ephemeral != nil {
				f.addString(string(pod.UID)) // which its claim must name
			}
		}
	}
	return nil
}
