package ccm

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// versions are the nodes as they were written, by name. A watch shows a write late, and what was done need not be done again. It is
// safe for concurrent use.
type versions struct {
	mu     sync.Mutex
	byName map[string]string
}

// remember takes note of a node as the API server returned it.
func (v *versions) remember(node *corev1.Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byName == nil {
		v.byName = map[string]string{}
	}
	v.byName[node.Name] = node.ResourceVersion
}

// newerThan reports whether a later version of the node was written than this one.
func (v *versions) newerThan(node *corev1.Node) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	written, ok := v.byName[node.Name]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, written)
	return err == nil && order < 0
}

// forget handles the deletion of a node.
func (v *versions) forget(last any) {
	if missed, ok := last.(cache.DeletedFinalStateUnknown); ok {
		last = missed.Obj
	}
	node, ok := last.(*corev1.Node)
	if !ok {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byName, node.Name)
}
