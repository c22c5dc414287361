// Package doctor checks a cluster for what fails, may fail, or costs money, before it causes an incident.
//
// A check has a stable ID and is pure: it evaluates the Facts that were gathered. If it lacks a fact, it reports that
// it could not run. The command line and the controller, at its start and on a timer, run the same checks. Nothing here
// changes anything.
package doctor

import (
	"cmp"
	"slices"
)

// Severity describes how bad a finding is.
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
	// Seen holds what was found, Why its consequence, Remedy what to do: a command, or lines of a manifest.
	Seen   string `json:"seen"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
	// Command is the line of the remedy to run unchanged in a shell, once the condition that the remedy states is met.
	// It is empty where a person must complete it, and where it could delete what belongs to others.
	Command string `json:"command,omitempty"`
	// Manifest is the remedy as YAML to apply, if it is a manifest.
	Manifest string `json:"manifest,omitempty"`

	// deletes is the end of the remedy that deletes or terminates something. It is left out, with the Command, while it is not proven that
	// the account and the name are those of this cluster.
	deletes string
}

// NotChecked is a check that could not run.
type NotChecked struct {
	Check string `json:"check"`
	Why   string `json:"why"`
	// Cause is the reason without the name of the missing fact: checks that fail for the same reason have the same cause.
	Cause string `json:"cause"`
}

// Report is the result of all checks.
type Report struct {
	// Checks counts how many checks ran.
	Checks     int          `json:"checks"`
	Findings   []Finding    `json:"findings"`
	NotChecked []NotChecked `json:"notChecked"`
}

// Check is one rule that the doctor evaluates.
type Check struct {
	// ID is stable: alerts and exceptions refer to it.
	ID   string
	Area string
	// Severity is the highest severity of its findings.
	Severity Severity
	// Title holds what it finds, in a few words, Why the consequence.
	Title, Why string
	// needs are the facts without which the check cannot run.
	needs []Fact
	run   func(*Facts) []Finding
}

// Checks returns all checks, in the order of their areas.
func Checks() []Check {
	return slices.Concat(identityChecks(), joinChecks(), poolChecks(), storageChecks(), workloadChecks(), nodeChecks(), operationChecks())
}

// Run runs all checks. It sorts findings by severity, then by check, then by object.
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
			finding.withhold(f.proven())
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

// withhold completes the remedy by what deletes something, if it is proven who owns it.
func (f *Finding) withhold(proven bool) {
	switch {
	case f.deletes == "":
	case proven:
		f.Remedy += f.deletes
	default:
		f.Command = ""
		f.Remedy += " (the command is shown once --cluster-name, region and credentials are known to be those of this cluster)"
	}
}

// unchecked marks a finding that reports a part of a check that could not run.
const unchecked Severity = "unchecked"

// At returns the report without less severe findings.
func (r Report) At(least Severity) Report {
	r.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity.rank() > least.rank() })
	return r
}
