package topology

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

// Node is an existing or in-flight node.
type Node struct {
	Name   string
	Labels requirement.Set
	Taints []corev1.Taint
	// Pods are the pods on the node in the snapshot.
	Pods []*corev1.Pod
	// Coming are the DaemonSets' pods that are still to come.
	Coming []ComingDaemon
	// Unlaunched is true for a claim without an instance: its node may still get any well-known label.
	Unlaunched bool
	// Deleting nodes keep their pods counted, and provide no domain to others.
	Deleting bool
	// Removed nodes do not exist in the current simulation.
	Removed bool
}

// Domain is the only value of a label that the node has or can have.
func (n *Node) Domain(key string) (string, bool) { return n.Labels.Get(key).Single() }

// NewNode is a planned node.
type NewNode struct {
	// Index is its number among the planned nodes.
	Index int
	// Labels are its requirements, which may leave several values.
	Labels requirement.Set
	Pool   Pool
	// Outcomes are the instances that it may be launched as. Nil means that only Labels are known.
	Outcomes Outcomes
}

// Outcomes are the instances that planned nodes with equal labels may be launched as. Equal values are the same outcomes.
type Outcomes interface {
	// AllSatisfy reports whether each of them has the labels that the pod selects.
	AllSatisfy(pod requirement.Pod) bool
	// MaySatisfy reports whether one of them may have the labels that the pod selects.
	MaySatisfy(pod requirement.Pod) bool
}

// Pool is the model for nodes that can be launched.
type Pool struct {
	Taints []corev1.Taint
	Labels PoolLabels
}

// PoolLabels are the labels that nodes of a pool can get.
type PoolLabels interface {
	// Values are the domains of the key that the nodes may be in, sorted.
	Values(key string) []string
	// Gives reports whether the nodes get this value of a label that no type defines, if their pods require it.
	Gives(key, value string) bool
	// Lacks reports whether the nodes of some instance type do not have the label.
	Lacks(key string) bool
	// Arriving returns how many of the DaemonSets, by number, surely run on each new node that the pod selects; certain are those that
	// nothing but another DaemonSet keeps off. Some is false if there can be no such node.
	Arriving(of, certain resources.Bitset, pod requirement.Pod) (n int, some bool)
}

// HostName is a placeholder for the host name that a planned node will get, by its number.
func HostName(index int) string { return fmt.Sprintf("new-node-%06d.invalid", index) }
