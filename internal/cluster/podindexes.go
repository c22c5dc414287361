package cluster

import (
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// anyNamespace begins the keys under which a cache of controller-runtime finds objects of all namespaces by a field. Beside each it
// keeps one for the namespace of the object.
const anyNamespace = "__all_namespaces/"

// NewInformer makes the informers of a controller's cache. Those of pods find pods by a field in all namespaces at once, as all queries
// of this package do, and not within one: of 100,000 pods, the second key of each index takes 15 MB, and the index of namespaces 4 MB. A
// list by a field within a namespace finds nothing, and one of a namespace is an error.
func NewInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	if _, pods := example.(*corev1.Pod); !pods {
		return cache.NewSharedIndexInformer(lw, example, resync, indexers)
	}
	lean := maps.Clone(indexers)
	delete(lean, cache.NamespaceIndex)
	return leanInformer{cache.NewSharedIndexInformer(lw, example, resync, lean)}
}

// leanInformer has indexes without the keys within a namespace.
type leanInformer struct{ cache.SharedIndexInformer }

// AddIndexers adds the indexes that are added for fields.
func (i leanInformer) AddIndexers(indexers cache.Indexers) error {
	lean := make(cache.Indexers, len(indexers))
	for name, keys := range indexers {
		lean[name] = func(o any) ([]string, error) {
			all, err := keys(o)
			if len(all) != 2 {
				return all, err
			}
			for _, key := range all {
				if strings.HasPrefix(key, anyNamespace) {
					return []string{key}, err
				}
			}
			return all, err
		}
	}
	return i.SharedIndexInformer.AddIndexers(lean)
}
