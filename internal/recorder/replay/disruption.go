package replay

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

// decide decides a pass over the nodes again.
func (x *replayed) decide(in *recorder.PassInput, _ *recorder.PassResult) (*recorder.PassResult, string) {
	if why := unreadable(&in.Memory); why != "" {
		return nil, why
	}
	calls := 0
	decided, _ := pass.Decide(pass.Input{
		Snapshot: x.snap, Work: in.Work, Memory: in.Memory, Facts: in.Facts, Settings: in.Settings, Resting: in.Resting,
		Interrupt: func() bool {
			calls++
			return calls == in.InterruptedAt
		},
	})
	out := recorder.RecordDecisions(&decided)
	return &out, ""
}

// unreadable is why a Memory that was recorded is not the one that it was; empty if it is.
func unreadable(m *pass.Memory) string {
	devices := func(p pass.Proposal) bool {
		return slices.ContainsFunc(p.Launches, func(l pass.ProposedLaunch) bool { return l.Devices }) ||
			slices.ContainsFunc(p.Placements, func(l pass.ProposedPlacement) bool { return l.Devices })
	}
	if slices.ContainsFunc(m.Proposals, devices) {
		return "a proposal allocates devices, which are not recorded"
	}
	return ""
}
