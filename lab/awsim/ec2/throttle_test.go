package ec2

import "testing"

// TestRates: the rates at which a new account's calls are let through, with what may come at once.
func TestRates(t *testing.T) {
	type limit struct{ rate, burst float64 }
	shared := map[string]string{}
	for action, want := range map[string]limit{
		"DescribeInstances": {20, 100}, "DescribeInstanceTypes": {20, 100}, "DescribeLaunchTemplates": {20, 100}, "GetConsoleOutput": {20, 100},
		"CreateFleet": {5, 50}, "CreateLaunchTemplate": {5, 50}, "DeleteLaunchTemplate": {5, 50}, "RunInstances": {2, 5},
		"TerminateInstances": {5, 100}, "CreateTags": {10, 100},
	} {
		b := bucketOf(action)
		if (limit{b.Rate, b.Burst}) != want {
			t.Errorf("%s: %g per second, %g at once; want %+v", action, b.Rate, b.Burst, want)
		}
		shared[action] = b.Name
	}
	for _, pair := range []struct {
		a, b string
		same bool
	}{
		{"DescribeInstances", "DescribeInstanceTypes", true},
		{"CreateFleet", "CreateLaunchTemplate", true},
		{"CreateFleet", "DescribeInstances", false},
		{"TerminateInstances", "CreateFleet", false},
		{"CreateTags", "TerminateInstances", false},
		{"RunInstances", "CreateFleet", false},
	} {
		if got := shared[pair.a] == shared[pair.b]; got != pair.same {
			t.Errorf("%s and %s share a bucket: %t", pair.a, pair.b, got)
		}
	}
}
