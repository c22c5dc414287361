package podclass

import (
	"encoding/binary"

	"github.com/dovetail-k8s/dovetail/internal/engine/topology"
)

// AppendPackingKey appends all constraints that matter to a new node, except host ports.
func (k *Constraints) AppendPackingKey(key []byte, numbers map[*topology.Group]uint64) []byte {
	list := func(groups []*topology.Group) {
		key = binary.AppendUvarint(key, uint64(len(groups)))
		for _, g := range groups {
			key = binary.AppendUvarint(key, numbers[g])
		}
	}
	for _, groups := range [...][]*topology.Group{k.matches, k.declares, k.blockedBy} {
		list(groups)
	}
	key = binary.AppendUvarint(key, uint64(len(k.volumes)))
	for _, v := range k.volumes {
		key = binary.AppendUvarint(key, uint64(v.ID))
	}
	for _, level := range k.levels {
		key = binary.AppendUvarint(key, uint64(level.internedStrict.ID))
		key = binary.AppendUvarint(key, uint64(level.internedFull.ID))
		key = binary.AppendUvarint(key, uint64(len(level.blocked)))
		for _, word := range level.blocked {
			key = binary.AppendUvarint(key, word)
		}
		list(level.groups)
	}
	return key
}
