package ec2_test

import (
	"slices"
	"strings"
	"testing"
)

// What changes something requests the right to each resource; an action that is added without fails here.
func TestMutationsCheckPermissions(t *testing.T) {
	service := open(t).Sim.EC2().Service()
	for action := range service.Handlers {
		if !strings.HasPrefix(action, "Describe") && !slices.Contains(service.Authorizes, action) {
			t.Errorf("%s does not ask", action)
		}
	}
	for _, action := range service.Authorizes {
		if service.Handlers[action] == nil {
			t.Errorf("%s asks, and is not there", action)
		}
	}
}
