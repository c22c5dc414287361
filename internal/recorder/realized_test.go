package recorder

import (
	"math"
	"testing"
	"time"
)

// What a command saves is by what EC2 gave, not by what was planned.
func TestWhatADecisionHasSavedIsByWhatEC2Gave(t *testing.T) {
	began := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	step := func(decision string, minutes int, what StepKind, claim string, price number) Step {
		s := Step{Decision: decision, At: began.Add(time.Duration(minutes) * time.Minute), What: what, Object: claim}
		if what == StepLaunched {
			s.Instance = Instance{NodePool: "p", InstanceType: "m7i.xlarge", Zone: "us-east-1b", CapacityType: "spot", HourlyCost: price}
		}
		return s
	}
	decisions := []Decision{
		{
			ID: "replace", Kind: "underutilized", At: began, HourlyCost: 0.1, HourlySavings: 0.9, Launches: []LaunchRecord{{NodePool: "p"}},
			Removes: []NodeRecord{{NodeClaim: "old", NodePool: "p", HourlyCost: 1}},
		},
		{ID: "launch", Kind: KindLaunch, At: began, NodePool: "p", HourlyCost: 0.3, Launches: []LaunchRecord{{NodePool: "p"}}},
		{ID: "rolled", Kind: "drifted", At: began, Removes: []NodeRecord{{NodeClaim: "x", NodePool: "p", HourlyCost: 1}}},
		{ID: "unpriced", Kind: "drifted", At: began, Removes: []NodeRecord{{NodeClaim: "y", NodePool: "p"}}},
		{
			ID: "older", Kind: "underutilized", At: began, Launches: []LaunchRecord{{NodePool: "p"}},
			Removes: []NodeRecord{{NodeClaim: "z", NodePool: "p", HourlyCost: 1}},
		},
	}
	for i, steps := range [][]Step{
		{
			step("replace", 0, StepLaunched, "new", 0.4), step("replace", 0, StepLaunched, "new", 0.5), // a process began anew
			step("replace", 60, StepTerminated, "old", 0),
		},
		{step("launch", 120, StepLaunched, "more", 0.2)},
		{step("rolled", 60, StepRolledBack, "", 0)},
		{step("unpriced", 60, StepTerminated, "y", 0)},
		{{Decision: "older", At: began, What: StepLaunched, Object: "w"}, step("older", 60, StepTerminated, "z", 0)}, // of an older version
	} {
		decisions[i].setSteps(steps)
	}
	saved := Account(decisions, began.Add(180*time.Minute))
	equal := func(what string, got *number, want float64) {
		t.Helper()
		if got == nil || math.Abs(float64(*got)-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	of := decisions[0].Realized
	equal("cost of the replacement", of.HourlyCost, 0.4)
	equal("above the plan", of.HourlyCostAbovePlan, 0.3)
	equal("saving", of.HourlySavings, 0.6)
	equal("saved: less an hour of both nodes, and less the node that was launched for pods an hour later", of.Saved, 0.6+0.4-0.4)
	if len(of.Launched) != 1 || of.Launched[0].Zone != "us-east-1b" || of.Launched[0].CapacityType != "spot" {
		t.Errorf("EC2 gave %+v", of.Launched)
	}
	equal("a launch, above the plan", decisions[1].Realized.HourlyCostAbovePlan, -0.1)
	if decisions[1].Realized.HourlySavings != nil || decisions[2].Realized != nil || decisions[3].Realized != nil || decisions[4].Realized != nil {
		t.Error("a launch, a command that was rolled back, and nodes without a price have saved something")
	}
	equal("all savings in $/h", &saved.HourlySavings, 0.4)
	equal("all savings in $", &saved.Dollars, float64(*of.Saved))
	if len(saved.NodePools) != 1 || saved.NodePools[0].NodePool != "p" {
		t.Errorf("%+v", saved.NodePools)
	}
}
