package provisioning

import (
	"os"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// Each test must make the writes that testdata/writes.txt has. The NodeClaims of a plan are created in parallel. Which node is the
// emptiest in TestPodsWhosePlaces depends on their random names.
func TestMain(m *testing.M) {
	os.Exit(controllertest.CompareMostWrites(m, controllertest.Exceptions{
		Parallel: []string{"Test"}, Varying: []string{"TestProvisionerKilled", "TestPodsWhosePlaces"},
	}))
}
