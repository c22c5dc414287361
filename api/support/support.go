// Package support knows which parts of the API this version accepts but does not act on, so that a user of
// such a part is told instead of left waiting. docs/compatibility.md lists the same; a test compares them.
package support

import (
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Field is a field, or some of its values, that nothing happens by.
type Field struct {
	// Path is dotted, with [] for the items of a list; for example spec.disruption.budgets[].reasons.
	Path string
	// Message says, in one line, what happens instead.
	Message string
}

// String is fit for an event.
func (f Field) String() string { return f.Path + ": " + f.Message }

// gap is a Field with the test for whether an object uses it.
type gap[T any] struct {
	Field
	uses func(T) bool
}

// UnsupportedNodePool returns the fields that p uses in vain.
func UnsupportedNodePool(p *karpv1.NodePool) []Field { return used(nodePoolGaps(), p) }

// UnsupportedNodeClass returns the fields that c uses in vain.
func UnsupportedNodeClass(c *awsv1.EC2NodeClass) []Field { return used(nodeClassGaps(), c) }

func nodePoolGaps() []gap[*karpv1.NodePool] { return nil }

func nodeClassGaps() []gap[*awsv1.EC2NodeClass] { return nil }

func used[T any](gaps []gap[T], object T) (fields []Field) {
	for _, g := range gaps {
		if g.uses(object) {
			fields = append(fields, g.Field)
		}
	}
	return fields
}
