package recorder

import (
	"encoding/json"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxReducedAtOnce is up to how many changed objects are reduced while the pass waits, at about 2 µs each. More are reduced later,
// which keeps the lists of the whole pass in memory until then.
const maxReducedAtOnce = 1000

// changes is the difference between what two passes saw, as far as API objects go.
type changes struct {
	keyframe bool
	changed  []changedObject
	gone     []objectKey
}

type changedObject struct {
	key     objectKey
	version string
	object  client.Object
	// reduced is true once object is a reduced copy.
	reduced bool
	kind    *kind
}

// tracker knows the version of every object that was recorded last.
type tracker struct {
	kinds []kind
	known map[objectKey]*knownObject
	round uint32
}

type knownObject struct {
	version string
	round   uint32
}

func newTracker() *tracker { return &tracker{kinds: kinds(), known: map[objectKey]*knownObject{}} }

// forget makes the next difference one from nothing.
func (t *tracker) forget() { t.known = map[objectKey]*knownObject{} }

// diff returns what has changed since the last call, and remembers the objects. It costs one look into a map per object.
func (t *tracker) diff(o *seen) changes {
	out := changes{keyframe: len(t.known) == 0}
	t.round++
	seen := 0
	for i := range t.kinds {
		k := &t.kinds[i]
		k.each(o, func(object client.Object) {
			key, version := keyOf(k.name, object), versionOf(object)
			have := t.known[key]
			if have == nil {
				have = &knownObject{}
				t.known[key] = have
			} else if have.version == version {
				if have.round != t.round {
					seen++
				}
				have.round = t.round
				return
			}
			if have.round != t.round {
				seen++
			}
			have.version, have.round = version, t.round
			out.changed = append(out.changed, changedObject{key: key, version: version, object: object, kind: k})
		})
	}
	if seen < len(t.known) {
		for key, have := range t.known {
			if have.round != t.round {
				delete(t.known, key)
				out.gone = append(out.gone, key)
			}
		}
	}
	if len(out.changed) <= maxReducedAtOnce {
		for i := range out.changed {
			out.changed[i].reduce()
		}
	}
	return out
}

func (c *changedObject) reduce() {
	if !c.reduced {
		c.object, c.reduced = c.kind.reduced(c.object), true
	}
}

func keyOf(kind string, o client.Object) objectKey {
	if uid := o.GetUID(); uid != "" {
		return objectKey{Kind: kind, UID: string(uid)}
	}
	return objectKey{Kind: kind, Name: o.GetNamespace() + "/" + o.GetName()}
}

// versionOf is the resource version; for an object without one, which no API server returns, a hash of the content.
func versionOf(o client.Object) string {
	if v := o.GetResourceVersion(); v != "" {
		return v
	}
	data, err := json.Marshal(o)
	if err != nil {
		return "" // recording it fails, too
	}
	return "sha256:" + hashOf(data)
}
