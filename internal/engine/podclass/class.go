package podclass

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/volume"
)

// Class is pods that a scheduler cannot distinguish : equal constraints and equal requests.
//
// Invariant: once measured it does not change. Anyone who reads it must not modify what it returns.
type Class struct {
	*Constraints
	number   int
	list     corev1.ResourceList
	requests resources.Vec
	listed   uint64              // see Listed
	shared   []volume.Attachment // see Shared
}

// Measure converts the requests into amounts per axis, in memory of the caller, and adds what the volumes take.
func (c *Class) Measure(axes resources.Axes, volumes *volume.Limits, memory resources.Vec) {
	c.requests = memory
	axes.Read(c.list, memory)
	c.shared = volumes.AddTo(memory, axes, c.Pod())
	c.listed = listedAxes(axes, c.list, memory)
	c.noteRequests(memory)
}

// With is the class of the same requests with other constraints, and another number.
func (c *Class) With(k *Constraints, number int) *Class {
	out := *c
	out.Constraints, out.number = k, number
	return &out
}

// Number identifies the class among those that are planned together.
func (c *Class) Number() int { return c.number }

// ResourceList is the requests as the pods have them.
func (c *Class) ResourceList() corev1.ResourceList { return c.list }

// Requests are the requests of one pod, per axis, with what its volumes take.
func (c *Class) Requests() resources.Vec { return c.requests }

// Shared are volumes with attach limits that other pods use, too.
func (c *Class) Shared() []volume.Attachment { return c.shared }

// MaxListedAxes is the number of axes up to which a class knows those that its list names.
const MaxListedAxes = 64

// Listed are the axes that the resource list names, one bit each, if the amounts there are the very quantities of the
// list; else none.
func (c *Class) Listed() uint64 { return c.listed }

// listedAxes is Listed. A quantity may be finer than the unit, zero, or beyond the largest number, and volumes may add to
// an axis.
func listedAxes(axes resources.Axes, list corev1.ResourceList, amounts resources.Vec) (out uint64) {
	if axes.Len() > MaxListedAxes {
		return 0
	}
	for name, q := range list {
		axis, ok := axes.Lookup(name)
		if !ok || amounts[axis] <= 0 || !quantity.Exact(name, q, amounts[axis]) {
			return 0
		}
		out |= 1 << axis
	}
	return out
}

// Classifier sorts pods into constraint classes and classes, by their keys.
type Classifier struct {
	constraints map[string]*Constraints
	classes     map[string]*Class
	keys        *Keys
	settings    *snapshot.Settings
	// Recreated holds what pods request that request less on the node where they run; nil if there are none.
	Recreated map[types.UID]corev1.ResourceList
}

// NewClassifier has no classes yet. If devices are planned, pods with devices are classes of their own.
func NewClassifier(devices bool, settings *snapshot.Settings) *Classifier {
	return &Classifier{
		constraints: map[string]*Constraints{}, classes: map[string]*Class{}, keys: NewKeys(devices, settings), settings: settings,
	}
}

// ServeExtended has pods that request one of these extended resources be classes of their own: devices serve them.
func (f *Classifier) ServeExtended(names []corev1.ResourceName) { f.keys.extended = names }

// ClassOf returns the class of the pod. Classes are numbered in the order of their first pods.
func (f *Classifier) ClassOf(pod *corev1.Pod) (*Class, error) {
	key, err := f.keys.Of(pod)
	if err != nil {
		return nil, err
	}
	if larger := f.Recreated[pod.UID]; larger != nil {
		return f.classOfRecreated(pod, key, larger), nil
	}
	c := f.classes[string(key.All)]
	if c == nil {
		all := string(key.All)
		k := f.constraintsOf(pod, key)
		if key.Requests == nil {
			key.Requests = snapshot.Requests(pod)
		}
		c = &Class{Constraints: k, number: len(f.classes), list: f.settings.Compared(&pod.Spec, key.Requests)}
		f.classes[all] = c
	}
	return c, nil
}

// constraintsOf returns the constraint class of the pod.
func (f *Classifier) constraintsOf(pod *corev1.Pod, key Key) *Constraints {
	k := f.constraints[string(key.Constraints)]
	if k == nil {
		k = New(pod)
		f.constraints[string(key.Constraints)] = k
	}
	return k
}

// classOfRecreated is ClassOf for a pod with other requests than it has now. Such pods share classes with each other only.
func (f *Classifier) classOfRecreated(pod *corev1.Pod, key Key, requests corev1.ResourceList) *Class {
	var name strings.Builder
	for _, resource := range slices.Sorted(maps.Keys(requests)) {
		q := requests[resource]
		fmt.Fprintf(&name, "%s=%s,", resource, q.String())
	}
	name.WriteByte('|') // which begins no other key
	name.Write(key.All)
	c := f.classes[name.String()]
	if c == nil {
		c = &Class{Constraints: f.constraintsOf(pod, key), number: len(f.classes), list: f.settings.Compared(&pod.Spec, requests)}
		f.classes[name.String()] = c
	}
	return c
}
