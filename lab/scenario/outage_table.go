package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// circumstance is how an API of AWS fails, or when: a column of the table of outages.
type circumstance int

const (
	whileRunning circumstance = iota
	atRestart
	slowly
	throttled
)

// circumstances are the columns, in their order: what a reader calls them, and the scenario that runs their cells.
var circumstances = []struct{ name, scenario string }{
	whileRunning: {"while running", "aws-down"},
	atRestart:    {"restart during the outage", "aws-down-restart"},
	slowly:       {"30 s slow", "aws-down-slow"},
	throttled:    {"80 % throttled", "aws-down-throttled"},
}

// outage is a row of the table: what fails in AWS, and where launches wait for it.
type outage struct {
	name string
	// calls are what fails, in the form of a fault of `dovetail-lab aws`; with is how, where it is neither slow nor throttled.
	calls, with string
	// waits are where no instance is launched before the outage is over.
	waits []circumstance
	// lacks are where the row has no cell.
	lacks []circumstance
	// drift has a node drift during the outage: it stays until its replacement is up.
	drift bool
	// remove has a node deleted during the outage: it is drained, and its instance goes when the outage is over.
	remove bool
}

// outages are the rows.
var outages = []outage{
	{name: "EC2 CreateFleet", calls: "ec2.CreateFleet", with: "Unavailable", waits: []circumstance{whileRunning, atRestart}, drift: true},
	{name: "EC2 Describe*", calls: "ec2.Describe*", with: "hang"},
	{name: "EC2 CreateLaunchTemplate", calls: "ec2.CreateLaunchTemplate", with: "Unavailable"},
	{name: "EC2 TerminateInstances", calls: "ec2.TerminateInstances", with: "Unavailable", remove: true},
	{name: "SSM", calls: "ssm.*", with: "hang"},
	{name: "STS", calls: "sts.*", with: "hang"},
	{name: "Pricing", calls: "pricing.*", with: "hang"},
	{name: "IAM", calls: "iam.*", with: "hang"},
	{name: "EKS", calls: "eks.*", with: "hang"},
	{name: "SQS", calls: "sqs.*", with: "hang"},
	{
		name: "credentials expired", calls: "*", with: "ExpiredToken,status=403", waits: []circumstance{whileRunning, atRestart},
		lacks: []circumstance{slowly, throttled},
	},
	{
		name: "no connection", calls: "*", with: "refuse", waits: []circumstance{whileRunning, atRestart},
		lacks: []circumstance{slowly, throttled},
	},
	{name: "all at once", calls: "*", with: "hang", waits: []circumstance{whileRunning, atRestart}},
}

// fault is the fault of a cell.
func (o outage) fault(c circumstance) string {
	switch c {
	case slowly:
		return o.calls + "=slow,delay=30s"
	case throttled:
		return o.calls + "=RequestLimitExceeded,share=0.8"
	default:
		return o.calls + "=" + o.with
	}
}

// outcome is what a cell states, and what its step checks.
func (o outage) outcome(c circumstance) string {
	switch {
	case slices.Contains(o.lacks, c):
		return "–"
	case slices.Contains(o.waits, c):
		return "launches wait"
	default:
		return "launches go on"
	}
}

// awsTable is the table of outages of AWS as a page shows it, in Markdown.
func awsTable() string {
	var out strings.Builder
	head, line, tests := "| What fails |", "|---|", "| *scenario* |"
	for _, c := range circumstances {
		head, line, tests = head+" "+c.name+" |", line+"---|", tests+" `"+c.scenario+"` |"
	}
	fmt.Fprintln(&out, head)
	fmt.Fprintln(&out, line)
	for _, o := range outages {
		fmt.Fprintf(&out, "| %s |", o.name)
		for c := range circumstances {
			fmt.Fprintf(&out, " %s |", o.outcome(circumstance(c)))
		}
		fmt.Fprintln(&out)
	}
	fmt.Fprintln(&out, tests)
	return out.String()
}

const (
	// launchWithin is how long a launch may take that goes on; slowLaunchWithin is where each call takes 30 s.
	launchWithin, slowLaunchWithin = 45 * time.Second, 100 * time.Second
	// observed is how long it is watched that nothing is launched.
	observed = 6 * time.Second
	// recoveryWithin is how soon everything runs after an outage.
	recoveryWithin = 2 * time.Minute
)
