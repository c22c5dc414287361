// Package doctor looks a cluster over for what will fail, may fail, or costs money, before somebody is paged for it.
//
// A check has a stable ID and is pure: it judges the Facts that were gathered, and what could not be read makes it say
// so instead of judging. The command line, the controller at its start and on a timer run the same checks. Nothing
// here changes anything.
package doctor

import (
	"cmp"
	"slices"
)

// Severity is how bad a finding is.
type Severity string

// The severities, worst first.
const (
	// Error: something fails, or certainly will.
	Error Severity = "error"
	// Warning: something may fail, or costs money.
	Warning Severity = "warning"
	// Info: worth knowing.
	Info Severity = "info"
)

func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Info}, s) }

// Finding is something that a check has found.
type Finding struct {
	Check    string   `json:"check"`
	Area     string   `json:"area"`
	Severity Severity `json:"severity"`
	// Object is its kind and name, with the namespace if it has one: StorageClass gp2.
	Object string `json:"object"`
	// Seen is what was found, Why what comes of it, Remedy what to do: a command, or lines of a manifest.
	Seen   string `json:"seen"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
	// Command is the line of the remedy to run as it stands in a shell, once the condition that the remedy states is
	// met. Empty where only a person can complete it, and where it would end what may be another's.
	Command string `json:"command,omitempty"`
	// Manifest is the remedy as YAML to apply, where it is one.
	Manifest string `json:"manifest,omitempty"`
}

// NotChecked is a check that could not be made.
type NotChecked struct {
	Check string `json:"check"`
	Why   string `json:"why"`
	// Cause is why, without what could not be read for it: checks that lack the same have the same cause.
	Cause string `json:"cause"`
}

// Report is the outcome of all checks.
type Report struct {
	// Checks is how many were made.
	Checks     int          `json:"checks"`
	Findings   []Finding    `json:"findings"`
	NotChecked []NotChecked `json:"notChecked"`
}

// Check is one thing that is looked at.
type Check struct {
	// ID is stable: alerts and exceptions are written against it.
	ID   string
	Area string
	// Severity is the worst that it finds.
	Severity Severity
	// Title says in a few words what is found, Why what comes of it.
	Title, Why string
	// needs are the facts without which the check says nothing.
	needs []Fact
	run   func(*Facts) []Finding
}

// Checks are all checks, in the order of their areas.
func Checks() []Check {
	return slices.Concat(identityChecks(), joinChecks(), poolChecks(), storageChecks(), workloadChecks(), nodeChecks(), operationChecks())
}

// Run makes all checks. Findings are in the order of their severity, then of the checks and of the objects' names.
func Run(f *Facts) Report {
	report := Report{Findings: []Finding{}, NotChecked: []NotChecked{}}
	for _, c := range Checks() {
		if missed, cause := f.missing(c.needs); missed != "" {
			report.NotChecked = append(report.NotChecked, NotChecked{Check: c.ID, Why: missed, Cause: cause})
			continue
		}
		report.Checks++
		found := c.run(f)
		slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Object, b.Object) })
		for _, finding := range found {
			finding.Check, finding.Area = c.ID, c.Area
			finding.Severity, finding.Why = cmp.Or(finding.Severity, c.Severity), cmp.Or(finding.Why, c.Why)
			if finding.Severity == unchecked {
				report.NotChecked = append(report.NotChecked, NotChecked{
					Check: c.ID, Why: finding.Object + ": " + finding.Seen, Cause: finding.Object + ": " + finding.Seen,
				})
				continue
			}
			report.Findings = append(report.Findings, finding)
		}
	}
	slices.SortStableFunc(report.Findings, func(a, b Finding) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	return report
}

// unchecked marks a finding that is none: a part of a check that could not be made.
const unchecked Severity = "unchecked"

// At returns the report without what is less severe.
func (r Report) At(least Severity) Report {
	r.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity.rank() > least.rank() })
	return r
}
