package awsim

import "github.com/dovetail-k8s/dovetail/lab/awsim/ec2"

// Timing is how long things take in the simulated account.
type Timing = ec2.Timing

// DefaultTiming is that of a quick account: seconds where the real one takes tens of seconds.
func DefaultTiming() Timing { return ec2.DefaultTiming() }
