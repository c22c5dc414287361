package v1

import (
	"strconv"

	"github.com/mitchellh/hashstructure/v2"
)

// NodePoolHashVersion names the way Hash is computed. Hashes of different versions are never compared:
// objects with another version, including Karpenter's, get a new hash and do not drift because of it.
const NodePoolHashVersion = "dovetail-v1"

// Hash sums up what of the template makes nodes drift when it changes: everything but the requirements,
// which are compared with each node. Order of taints and spelling of durations do not matter.
func (p *NodePool) Hash() (string, error) {
	sum, err := hashstructure.Hash(p.Spec.Template, hashstructure.FormatV2, &hashstructure.HashOptions{
		SlicesAsSets:    true,
		IgnoreZeroValue: true,
		ZeroNil:         true,
	})
	return strconv.FormatUint(sum, 10), err
}
