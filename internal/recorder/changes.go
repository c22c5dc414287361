package recorder

import (
	"encoding/json"
	"hash/maphash"
	"strings"

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

// changedObject is small: the first pass of a process has one for each of 100,000 pods, until it is written.
type changedObject struct {
	object client.Object
	kind   *kind
	// done is what is recorded, once it is reduced before it is written.
	done *recordedObject
}

// recordedObject is what is recorded of an object.
type recordedObject struct {
	key     objectKey
	version string
	// object is a reduced copy.
	object client.Object
}

// tracker knows the version of every object that was recorded last.
type tracker struct {
	kinds []kind
	// known are the objects by kind and idOf. Values instead of pointers, and keys without the kind: of 100,000 pods, each takes 50 bytes.
	known []map[string]knownObject
	seed  maphash.Seed
	round uint32
}

type knownObject struct {
	// version is a hash of the version.
	version uint64
	round   uint32
}

func newTracker() *tracker {
	t := &tracker{kinds: kinds(), seed: maphash.MakeSeed()}
	t.forget()
	return t
}

// forget makes the next difference one from nothing.
func (t *tracker) forget() {
	t.known = make([]map[string]knownObject, len(t.kinds))
	for i := range t.known {
		t.known[i] = map[string]knownObject{}
	}
}

// diff returns what has changed since the last call, and remembers the objects. It costs one inspect a map per object.
func (t *tracker) diff(o *seen) changes {
	out := changes{keyframe: true}
	for _, known := range t.known {
		out.keyframe = out.keyframe && len(known) == 0
	}
	t.round++
	for i := range t.kinds {
		t.diffKind(i, o, &out)
	}
	if len(out.changed) <= maxReducedAtOnce {
		for i := range out.changed {
			done := out.changed[i].reduced()
			out.changed[i] = changedObject{done: &done}
		}
	}
	return out
}

func (c *changedObject) reduced() recordedObject {
	if c.done != nil {
		return *c.done
	}
	return recordedObject{key: keyOf(c.kind.name, idOf(c.object)), version: versionOf(c.object), object: c.kind.reduced(c.object)}
}

// diffKind adds what has changed among the objects of a kind.
func (t *tracker) diffKind(i int, o *seen, out *changes) {
	k, known, seen := &t.kinds[i], t.known[i], 0
	k.each(o, func(object client.Object) {
		id, version := idOf(object), versionOf(object)
		hash := maphash.String(t.seed, version)
		have, found := known[id]
		if !found || have.round != t.round {
			seen++
		}
		if !found || have.version != hash {
			out.changed = append(out.changed, changedObject{object: object, kind: k})
		}
		known[id] = knownObject{hash, t.round}
	})
	if seen == len(known) {
		return
	}
	for id, have := range known {
		if have.round != t.round {
			delete(known, id)
			out.gone = append(out.gone, keyOf(k.name, id))
		}
	}
}

// idOf identifies an object among those of its kind: by its UID, or by a slash, its namespace and its name.
func idOf(o client.Object) string {
	if uid := o.GetUID(); uid != "" {
		return string(uid)
	}
	return "/" + o.GetNamespace() + "/" + o.GetName()
}

func keyOf(kind, id string) objectKey {
	if name, without := strings.CutPrefix(id, "/"); without {
		return objectKey{Kind: kind, Name: name}
	}
	return objectKey{Kind: kind, UID: id}
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
