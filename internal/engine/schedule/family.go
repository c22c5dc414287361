package schedule

import (
	"encoding/binary"
	"slices"
)

// family is classes whose pods new nodes need not tell apart: they ask for the same amounts and are open to the same
// candidates, in the same topology. Pods that each have a disk of their own are mostly of a few families.
type family struct {
	// run is the last run that has pods of the family; members are its classes, in the order of the queue, those before next
	// placed; left counts their pods that have no place.
	run        int
	members    []*class
	next, left int
}

// first is the first class with pods that have no place; nil if all have.
func (f *family) first() *class {
	for ; f.next < len(f.members); f.next++ {
		if c := f.members[f.next]; c.count > 0 {
			return c
		}
	}
	return nil
}

// relate sorts classes into families.
func (sv *solver) relate(classes []*class) {
	numbers := make(map[*group]uint64, len(sv.groups))
	for i, g := range sv.groups {
		numbers[g] = uint64(i)
	}
	families := map[string]*family{}
	described := map[*kind]string{}
	var key []byte
	for _, c := range classes {
		if len(c.refused) > 0 {
			continue
		}
		if key = key[:0]; len(c.ports) > 0 {
			c.family = &family{}
			continue
		}
		for _, r := range c.requests {
			key = binary.AppendVarint(key, r)
		}
		text, known := described[c.kind]
		if !known {
			start := len(key)
			key = c.kind.describe(key, numbers)
			text = string(key[start:])
			described[c.kind] = text
		} else {
			key = append(key, text...)
		}
		f := families[string(key)]
		if f == nil {
			f = &family{}
			families[string(key)] = f
		}
		c.family = f
	}
}

// describe writes what new nodes mind of the kind but its ports.
func (k *kind) describe(key []byte, numbers map[*group]uint64) []byte {
	list := func(groups []*group) {
		key = binary.AppendUvarint(key, uint64(len(groups)))
		for _, g := range groups {
			key = binary.AppendUvarint(key, numbers[g])
		}
	}
	for _, groups := range [...][]*group{k.matches, k.declares, k.blockedBy} {
		list(groups)
	}
	key = binary.AppendUvarint(key, uint64(len(k.volumes)))
	for _, v := range k.volumes {
		key = binary.AppendUvarint(key, uint64(v.id))
	}
	for _, sh := range k.shapes {
		key = binary.AppendUvarint(key, uint64(sh.insists.id))
		key = binary.AppendUvarint(key, uint64(sh.asks.id))
		key = binary.AppendUvarint(key, uint64(len(sh.blocked)))
		for _, word := range sh.blocked {
			key = binary.AppendUvarint(key, word)
		}
		list(sh.groups)
	}
	return key
}

// wait makes all pods of the run's classes wait for a place.
func (sv *solver) wait() {
	sv.waiting, sv.left = sv.waiting[:0], 0
	for _, c := range sv.classes {
		f := c.family
		if f.run != sv.run {
			f.run, f.members, f.next, f.left = sv.run, f.members[:0], 0, 0
			sv.waiting = append(sv.waiting, f)
		}
		f.members = append(f.members, c)
		f.left += c.count
		sv.left += c.bound * float64(c.count)
	}
}

// stillWaiting are the classes with pods that have no place, by family; families that have none are forgotten.
func (sv *solver) stillWaiting() []*class {
	var out []*class
	sv.waiting = slices.DeleteFunc(sv.waiting, func(f *family) bool { return f.left == 0 })
	for _, f := range sv.waiting {
		for _, c := range f.members[f.next:] {
			if c.count > 0 {
				out = append(out, c)
			}
		}
	}
	return out
}
