package disrupt

import (
	"hash/fnv"
	"io"
	"math"
	"strconv"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// Fingerprint hashes what a search for commands depends on: the candidates and the budgets, which pods run where, and
// what can be launched at which price. It does not cover everything, so callers must still search from time to time
// when it is unchanged.
func (v *View) Fingerprint(room *RemainingBudgets) uint64 {
	h := fnv.New64a()
	text := func(parts ...string) {
		for _, p := range parts {
			_, _ = io.WriteString(h, p) // a hash never fails
			_, _ = h.Write([]byte{0})
		}
	}
	number := func(n int) { text(strconv.Itoa(n)) }
	for _, c := range v.Candidates {
		text(c.Node.Name, strconv.FormatBool(c.Node.Consolidatable))
		number(len(c.Pods))
	}
	for i := range v.Snapshot.Nodes {
		n := &v.Snapshot.Nodes[i]
		text(n.Name, string(n.ClaimUID), strconv.FormatBool(n.Initialized), strconv.FormatBool(n.Deleting), strconv.FormatBool(n.Ready))
		number(n.Virtual)
		for _, p := range n.Pods {
			text(string(p.UID), strconv.FormatInt(p.Generation, 36), strconv.FormatBool(snapshot.Active(p)))
		}
	}
	for _, p := range v.Snapshot.Pods {
		text(string(p.UID))
	}
	for _, b := range v.Snapshot.PDBs {
		text(string(b.UID), strconv.FormatInt(b.Generation, 36))
		number(int(b.Status.DisruptionsAllowed))
	}
	seen := map[*catalog.InstanceType]bool{}
	for i := range v.Snapshot.Pools {
		p := &v.Snapshot.Pools[i]
		text(string(p.NodePool.UID), strconv.FormatInt(p.NodePool.Generation, 36))
		number(room.Remaining(p.NodePool.Name))
		for _, t := range p.InstanceTypes {
			if seen[t] {
				continue
			}
			seen[t] = true
			text(t.Name)
			for k := range t.Offerings {
				o := &t.Offerings[k]
				text(strconv.FormatUint(math.Float64bits(o.Price), 36), strconv.FormatBool(o.Available))
			}
		}
	}
	return h.Sum64()
}
