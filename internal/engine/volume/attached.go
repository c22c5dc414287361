package volume

import "maps"

// Attached are the volumes that a node has attached. The zero value has none, and no limit. A copy shares the volumes:
// see Clone.
type Attached struct {
	volumes map[Attachment]bool
	// inUse counts distinct volumes by driver.
	inUse  map[string]int32
	limits map[string]int32 // by driver
}

// NewAttached is a node without volumes that can attach so many, by driver.
func NewAttached(limits map[string]int32) Attached { return Attached{limits: limits} }

// Clone is a copy that can be changed alone.
func (n Attached) Clone() Attached {
	n.volumes, n.inUse = maps.Clone(n.volumes), maps.Clone(n.inUse)
	return n
}

// Attach adds volumes.
func (n *Attached) Attach(list []Attachment) {
	if len(list) > 0 && n.volumes == nil {
		n.volumes, n.inUse = map[Attachment]bool{}, map[string]int32{}
	}
	for _, a := range list {
		if !n.volumes[a] {
			n.volumes[a] = true
			n.inUse[a.Driver]++
		}
	}
}

// CanAttach reports whether the volumes keep the limits.
func (n *Attached) CanAttach(list []Attachment) bool {
	if len(n.limits) == 0 || len(list) == 0 {
		return true
	}
	extra := map[Attachment]bool{}
	more := map[string]int32{}
	for _, a := range list {
		if !n.volumes[a] && !extra[a] {
			extra[a] = true
			more[a.Driver]++
		}
	}
	for driver, k := range more {
		if limit, ok := n.limits[driver]; ok && n.inUse[driver]+k > limit {
			return false
		}
	}
	return true
}

// left returns how many more volumes of the driver can be attached.
func (n *Attached) left(driver string) int64 {
	limit, known := n.limits[driver]
	if !known {
		return unlimited
	}
	return int64(max(0, limit-n.inUse[driver]))
}
