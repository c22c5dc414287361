package validate_test

import (
	"fmt"

	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

// A plan of the scheduler is valid. The same plan with one of its pods removed is not.
func ExamplePlan() {
	s := World([]snapshot.Pool{Pool("general", Types())}, Pod("web", Requests("cpu", "900m")), Pod("db", Requests("cpu", "900m")))
	plan := schedule.Solve(s, schedule.Budget{})
	fmt.Println(validate.Plan(s, plan))

	plan.Launches[0].Pods = plan.Launches[0].Pods[:1]
	fmt.Println(validate.Plan(s, plan))
	// Output:
	// <nil>
	// pod default/web is in the plan 0 times
}
