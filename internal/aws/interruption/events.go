package interruption

import (
	"cmp"
	"maps"
	"slices"
)

// Event is a type of events that concern us, as a rule of EventBridge names it.
type Event struct{ Source, DetailType string }

// Events are all types of events that concern us, sorted: each needs a rule that sends it to the queue.
func Events() []Event {
	out := make([]Event, 0, len(parsers))
	for e := range maps.Keys(parsers) {
		out = append(out, Event{e.source, e.detailType})
	}
	slices.SortFunc(out, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.DetailType, b.DetailType))
	})
	return out
}
