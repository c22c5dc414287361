package nodepool

import (
	"encoding/binary"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// LaunchTypes is the types of launches, with what daemons take on whichever of them is launched.
type LaunchTypes struct {
	Types    []*catalog.InstanceType
	Overhead corev1.ResourceList
}

// Launch returns the one list of these types, joined where they are variants of one type. Equal launches share it:
// a list of all types takes more memory than all else of a launch.
func (t *Template) Launch(types []Candidate) LaunchTypes {
	t.key = t.key[:0]
	for _, cand := range types {
		t.key = binary.LittleEndian.AppendUint32(t.key, uint32(cand.Type))
	}
	if known, ok := t.launches[string(t.key)]; ok {
		return known
	}
	var groups []int
	list := make([]*catalog.InstanceType, 0, len(types))
	for _, cand := range types {
		list = t.addVariant(list, t.types[cand.Type].InstanceType)
		if g := t.types[cand.Type].daemonGroup; !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	out := LaunchTypes{slices.Clip(list), t.leastOverhead(slices.Sorted(slices.Values(groups)))}
	if t.launches == nil {
		t.launches = map[string]LaunchTypes{}
	}
	t.launches[string(t.key)] = out
	return out
}

// leastOverhead returns what daemons take on whichever of the types is launched: per resource the least of the groups, and
// only resources that all of them take.
func (t *Template) leastOverhead(groups []int) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, t.daemonGroups[groups[0]].requests)
	for _, g := range groups[1:] {
		for name, least := range out {
			q, ok := t.daemonGroups[g].requests[name]
			switch {
			case !ok:
				delete(out, name)
			case q.Cmp(least) < 0:
				out[name] = q
			}
		}
	}
	return out
}
