package termination

import (
	"os"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// Each test must make the writes that testdata/writes.txt has.
func TestMain(m *testing.M) {
	os.Exit(controllertest.CompareMostWrites(m, controllertest.Exceptions{
		// The tests have several clusters or workers, in any order.
		Parallel: []string{
			"TestPodsLeaveForTheReasonAndDecisionOfTheClaim", "TestTheSuccessorOfAPodIsNotEvicted",
			"TestEvictorWorksAndStops",
		},
	}))
}
