package rejection_test

import (
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

func TestNearestNamesTheZoneIfItIsKnown(t *testing.T) {
	for want, n := range map[string]rejection.Nearest{
		"m5.large in us-west-2a": {InstanceType: "m5.large", Zone: "us-west-2a", CapacityType: "spot"},
		"m5.large":               {InstanceType: "m5.large", CapacityType: "spot"},
	} {
		if got := n.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}
