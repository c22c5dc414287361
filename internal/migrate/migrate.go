// Package migrate checks whether Dovetail can take over a cluster from Karpenter, and plans how.
//
// A check has a stable ID and is pure: it evaluates the Facts that were gathered of the live cluster and its account. Where it lacks
// a fact, it reports that it was not made. A plan is the commands for this cluster, each with its undo. Nothing here changes
// anything.
package migrate

import (
	"cmp"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
)

// Status is the result of a check.
type Status string

// The statuses, worst first.
const (
	// Obstacle: do not take over before it is removed; nodes would be replaced, or launches or the API would fail.
	Obstacle Status = "obstacle"
	// Warning: something works otherwise, or keeps a part from working.
	Warning Status = "warning"
	// NotChecked: a fact could not be read.
	NotChecked Status = "not checked"
	// OK: nothing found.
	OK Status = "ok"
)

func (s Status) rank() int { return slices.Index([]Status{Obstacle, Warning, NotChecked, OK}, s) }

// Result describes what a check has found about one object, or that it found nothing.
type Result struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Object is its kind and name, with the namespace if it has one: Deployment karpenter/karpenter. It is empty if nothing is
	// wrong.
	Object string `json:"object,omitempty"`
	// Field is the path of the field, if one is the cause.
	Field string `json:"field,omitempty"`
	// Seen holds what was found; of a check that found nothing, what it compared.
	Seen string `json:"seen"`
	// Remedy holds what to do.
	Remedy string `json:"remedy,omitempty"`
}

// Report is the result of all checks.
type Report struct {
	// Karpenter is the installation that was found; nil if none was.
	Karpenter *Installation `json:"karpenter"`
	Results   []Result      `json:"results"`
}

// Check is one rule.
type Check struct {
	// ID is stable.
	ID string
	// Title holds what it finds, in a few words.
	Title string
	// needs are the facts without which it cannot be made.
	needs []doctor.Fact
	// run returns what is wrong, and what to print if nothing is.
	run func(*Facts) (found []Result, summary string)
}

// Checks returns all checks, in the order in which they are printed.
func Checks() []Check {
	return slices.Concat(installationChecks(), apiChecks(), settingsChecks(), accountChecks(), nodeChecks())
}

// Run makes all checks. The results have the order of the checks; those of one check are sorted by status, then by object.
func Run(f *Facts) Report {
	report := Report{Karpenter: f.Karpenter(), Results: []Result{}}
	for _, c := range Checks() {
		if why := f.missing(c.needs); why != "" {
			report.Results = append(report.Results, Result{Check: c.ID, Status: NotChecked, Seen: why})
			continue
		}
		found, summary := c.run(f)
		if len(found) == 0 {
			found = []Result{{Status: OK, Seen: summary}}
		}
		slices.SortStableFunc(found, func(a, b Result) int {
			return cmp.Or(cmp.Compare(a.Status.rank(), b.Status.rank()), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field))
		})
		for _, r := range found {
			r.Check = c.ID
			report.Results = append(report.Results, r)
		}
	}
	return report
}

// Unreadable is the Report about a cluster of which nothing can be read.
func Unreadable(why error) Report {
	return Report{Results: []Result{{Check: "cluster", Status: NotChecked, Seen: why.Error()}}}
}

// Count returns how many results have a status.
func (r Report) Count(s Status) (n int) {
	for _, result := range r.Results {
		if result.Status == s {
			n++
		}
	}
	return n
}
