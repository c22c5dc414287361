// Package support knows which parts of the API this version accepts but does not act on, so that the use of
// such a part is reported, not silently ignored. docs/compatibility.md lists the same; a test compares them.
package support

import (
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Field is a field, or some of its values, that nothing happens by.
type Field struct {
	// Path is dotted, with [] for the items of a list; for example spec.disruption.budgets[].reasons.
	Path string
	// Message is one line on what happens instead.
	Message string
}

// String is fit for an event.
func (f Field) String() string { return f.Path + ": " + f.Message }

// gap is a Field with those of its kind that an object uses.
type gap[T any] struct {
	Field
	uses func(T) (paths []string)
}

// UnsupportedNodePool returns the fields that p uses in vain.
func UnsupportedNodePool(p *karpv1.NodePool) []Field { return used(nodePoolGaps(), p) }

// UnsupportedNodeClass returns the fields that c uses in vain.
func UnsupportedNodeClass(c *awsv1.EC2NodeClass) []Field { return used(nodeClassGaps(), c) }

func nodePoolGaps() []gap[*karpv1.NodePool] { return nil }

func nodeClassGaps() []gap[*awsv1.EC2NodeClass] {
	return []gap[*awsv1.EC2NodeClass]{
		{
			Field{"spec.kubelet.*", "the image family has no setting for it, so it is ignored"},
			func(c *awsv1.EC2NodeClass) (paths []string) {
				for _, field := range c.IgnoredKubeletFields() {
					paths = append(paths, "spec.kubelet."+field)
				}
				return paths
			},
		},
		{
			Field{"spec.kubelet.clusterDNS[]", "the image family takes one entry, so the others are ignored"},
			func(c *awsv1.EC2NodeClass) []string {
				if c.IgnoresClusterDNS() {
					return []string{"spec.kubelet.clusterDNS[]"}
				}
				return nil
			},
		},
	}
}

func used[T any](gaps []gap[T], object T) (fields []Field) {
	for _, g := range gaps {
		for _, path := range g.uses(object) {
			fields = append(fields, Field{path, g.Message})
		}
	}
	return fields
}
