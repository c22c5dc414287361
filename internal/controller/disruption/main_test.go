package disruption

import (
	"os"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// Each test must make the writes that testdata/writes.txt has.
func TestMain(m *testing.M) {
	os.Exit(controllertest.CompareMostWrites(m, controllertest.Exceptions{
		// Several empty nodes are deleted in parallel, or the test has several clusters, in any order.
		Parallel: []string{
			"TestBreaker", "TestCapacityForArrivingPods", "TestEmpty", "TestGaugesOfAPoolThatIsGone", "TestInvalidDisruptionCosts",
			"TestLimitReachedSinceTheDecision", "TestNodesThatAreRemovedForAnotherReason", "TestOneOfSeveralEmptyNodes",
			"TestRepairOfAStaticPool", "TestStaticPool", "TestWhichNodesAreDisrupted",
		},
		Varying: []string{"TestPassesThatAreLeftOutWouldDecideNothing", "TestLoopKilled"},
	}))
}
