package ec2

import (
	"cmp"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func invalidFleet(format string, args ...any) error {
	return protocol.Errorf("InvalidFleetConfig", format, args...)
}

// checkPools rejects the overrides of one launch template if two of them stand for the same instance pool: a type in a
// zone, whatever the subnet. The lock must be held.
func (n *network) checkPools(overrides []*candidate) error {
	type pool struct{ typ, place string }
	seen := map[pool]bool{}
	for _, c := range overrides {
		p := pool{c.request.typ, cmp.Or(c.request.zone, c.request.subnetID)}
		if s := n.subnet(c.request.subnetID); s != nil {
			p.place = s.Zone
		}
		if seen[p] {
			return invalidFleet("The fleet configuration contains duplicate instance pools.")
		}
		seen[p] = true
	}
	return nil
}

// checkInstant rejects what an instant fleet, which is gone once it has launched, has no use for.
func (in *createFleetInput) checkInstant() error {
	switch {
	case in.Replace != nil && *in.Replace:
		return protocol.Errorf("UnsupportedOperation", "The simulator does not support ReplaceUnhealthyInstances")
	case in.Spot != nil && in.Spot.Interruption != "" && in.Spot.Interruption != "terminate":
		return protocol.Errorf("UnsupportedOperation", "The simulator does not support the interruption behavior %s", in.Spot.Interruption)
	}
	return nil
}
