package patch

import (
	"reflect"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Locked is the merge patch from before to what is written, with before's resource version. It encodes only what differs: of a NodeClaim,
// the 120 names of instance types in its spec are most, and its status is written four times while a node joins.
func Locked(before client.Object) client.Patch { return locked{before} }

type locked struct{ before client.Object }

// Type implements client.Patch.
func (locked) Type() types.PatchType { return types.MergePatchType }

// Data implements client.Patch.
func (l locked) Data(o client.Object) ([]byte, error) {
	before, after := differing(l.before, o)
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(after)
}

// differing returns two objects of one type without the fields that they have in common, but for the metadata. It copies neither.
func differing(a, b client.Object) (client.Object, client.Object) {
	if reflect.TypeOf(a) != reflect.TypeOf(b) {
		return a, b // the patch will report it
	}
	x, y := shallow(a), shallow(b)
	for i := range x.Elem().NumField() {
		switch x.Elem().Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta":
			continue
		}
		if f, g := x.Elem().Field(i), y.Elem().Field(i); reflect.DeepEqual(f.Interface(), g.Interface()) {
			f.SetZero()
			g.SetZero()
		}
	}
	return x.Interface().(client.Object), y.Interface().(client.Object)
}

func shallow(o client.Object) reflect.Value {
	out := reflect.New(reflect.TypeOf(o).Elem())
	out.Elem().Set(reflect.ValueOf(o).Elem())
	return out
}
