package replay

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// maxNames is how many pods or nodes a line names.
const maxNames = 4

// names joins names for a line.
func names(list []string) string {
	if len(list) <= maxNames {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNames], ", "), len(list)-maxNames)
}

func launchLine(l *recorder.LaunchRecord) string {
	first := "no instance type"
	if len(l.InstanceTypes) > 0 {
		first = l.InstanceTypes[0]
	}
	if n := len(l.InstanceTypes) - 1; n > 0 {
		first = fmt.Sprintf("%s or %d others", first, n)
	}
	return fmt.Sprintf("launch for NodePool %s: %s, %s in %s at $%.4f/h, for %s", l.NodePool, first, l.CapacityType, l.Zone,
		float64(l.HourlyCost), names(l.Pods))
}

func bufferLine(pods int, node string) string {
	return fmt.Sprintf("%d buffer pods on node %s", pods, node)
}

// canonical is the JSON of a value: equal values have equal texts, whatever amounts look like in memory.
func canonical(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// different compares two lists as multisets: elements with equal texts are the same. It returns those of one list only, as lines.
func different[T any](was, is []T, line func(*T) string) []Change {
	left := map[string][]int{}
	for i := range was {
		key := canonical(&was[i])
		left[key] = append(left[key], i)
	}
	var added []string
	for i := range is {
		key := canonical(&is[i])
		if at := left[key]; len(at) > 0 {
			left[key] = at[1:]
			continue
		}
		added = append(added, line(&is[i]))
	}
	var removed []string
	for i := range was {
		if key := canonical(&was[i]); len(left[key]) > 0 && slices.Contains(left[key], i) {
			removed = append(removed, line(&was[i]))
		}
	}
	var out []Change
	for i := range max(len(added), len(removed)) {
		var c Change
		if i < len(removed) {
			c.Was = removed[i]
		}
		if i < len(added) {
			c.Is = added[i]
		}
		if c.Was == c.Is { // they differ in what the line does not show
			c.Was += " (with other requirements, requests or pods)"
		}
		out = append(out, c)
	}
	return out
}

func differentLaunches(was, is []recorder.LaunchRecord) []Change {
	return different(was, is, launchLine)
}

// differentPlans compares what plans do. Why a pod is rejected is in words that may change.
func differentPlans(was, is *recorder.PlanRecord) []Change {
	changes := differentLaunches(was.Launches, is.Launches)
	changes = append(changes, different(was.Placements, is.Placements, func(p *recorder.PlacementRecord) string {
		return fmt.Sprintf("node %s takes %s", p.Node, names(p.Pods))
	})...)
	pods := func(list []recorder.RejectionRecord) []string {
		out := make([]string, len(list))
		for i := range list {
			out[i] = list[i].Pod
		}
		return out
	}
	pending := func(pod *string) string { return "pod " + *pod + " stays pending" }
	return append(changes, different(pods(was.Rejected), pods(is.Rejected), pending)...)
}

func commandLine(c *recorder.CommandRecord) string {
	verb := "remove"
	switch {
	case c.Reboot:
		verb = "reboot"
	case c.TerminateFirst != "":
		verb = "first terminate"
	}
	text := fmt.Sprintf("%s (%s) %s", verb, strings.ToLower(string(c.Reason)), names(c.Claims))
	for i := range c.Plan.Launches {
		text += ", " + launchLine(&c.Plan.Launches[i])
	}
	return fmt.Sprintf("%s, saves $%.4f/h", text, float64(c.Savings))
}

// withoutID is a command as far as it is decided.
func withoutID(c recorder.CommandRecord) recorder.CommandRecord {
	c.ID = ""
	c.Plan.Rejected = nil
	return c
}

func differentCommands(was, is []recorder.CommandRecord) []Change {
	bare := func(list []recorder.CommandRecord) []recorder.CommandRecord {
		out := make([]recorder.CommandRecord, len(list))
		for i := range list {
			out[i] = withoutID(list[i])
		}
		return out
	}
	return different(bare(was), bare(is), commandLine)
}

// differentPasses compares what starts, what is proposed, and which proposals are dropped. Why nodes stay is in words that may change.
func differentPasses(was, is *recorder.PassResult) []Change {
	changes := differentCommands(was.Start, is.Start)
	for _, change := range differentCommands(was.Propose, is.Propose) {
		changes = append(changes, Change{Was: prefixed("propose to ", change.Was), Is: prefixed("propose to ", change.Is)})
	}
	dropped := func(list []recorder.DroppedRecord) []string {
		out := make([]string, len(list))
		for i := range list {
			out[i] = names(list[i].Claims)
		}
		return out
	}
	line := func(prefix string) func(*string) string { return func(of *string) string { return prefix + *of } }
	changes = append(changes, different(dropped(was.Dropped), dropped(is.Dropped), line("drop the proposal for "))...)
	return append(changes, different(dropped(was.Withheld), dropped(is.Withheld), line("hold back the command for "))...)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
