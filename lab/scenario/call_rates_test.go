package scenario

import (
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// Calls fill the bucket of their action, which drains at its rate; a herd exceeds it.
func TestCallRates(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	calls := func(action string, n int, every time.Duration) (out []awsim.Call) {
		for i := range n {
			out = append(out, awsim.Call{Service: "ec2", Action: action, Time: start.Add(time.Duration(i) * every)})
		}
		return out
	}
	for _, tc := range []struct {
		name     string
		calls    []awsim.Call
		want     string
		exceeded bool
	}{
		{"none", []awsim.Call{{Service: "ssm", Action: "GetParameter"}}, "no call of EC2", false},
		{
			"as fast as a bucket fills", calls("DescribeInstances", 200, time.Second/20),
			`at most 20 calls of EC2 in a second; 1 of 100 of the limit "read"`, false,
		},
		{"a burst", calls("CreateFleet", 50, 0), `at most 50 calls of EC2 in a second; 50 of 50 of the limit "write"`, false},
		{"a herd", calls("DescribeInstances", 101, 0), `at most 101 calls of EC2 in a second; 101 of 100 of the limit "read"`, true},
	} {
		got := ratesOf(tc.calls)
		if got.String() != tc.want || (got.err() != nil) != tc.exceeded {
			t.Errorf("%s: got %q, %v; want %q", tc.name, got, got.err(), tc.want)
		}
	}
}
