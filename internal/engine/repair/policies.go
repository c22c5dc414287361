// Package repair decides which unhealthy nodes to repair, how and in which order. It reads conditions of Nodes and calls
// no API.
//
// A set of policies states which conditions need a repair (Policies). Matching a Node needs no clock, so callers may keep
// its Faults until the Node's conditions change. From faults and a time comes a Decision: the action, the bound of the
// drain and a score. A Breaker holds repairs back where so many nodes are unhealthy that the cause is likely a common
// one.
package repair

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Policies is a compiled set of repair policies.
type Policies struct {
	byState  map[state][]*policy
	fallback *policy
}

// state is a condition with its status: a set covers some of them.
type state struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
}

type policy struct {
	karpv1.RepairPolicy
	reason *regexp.Regexp
	// rank is the policy's priority as its position among the distinct priorities of the set, from 0.
	rank int
}

// Compile checks the policies and prepares them for matching. Exactly one of them, the fallback, has no reason; its
// action is RepairReplace. The error names every invalid policy.
func Compile(list []karpv1.RepairPolicy) (*Policies, error) {
	s := &Policies{byState: map[state][]*policy{}}
	var errs []error
	for i := range list {
		p := &policy{RepairPolicy: list[i]}
		if err := p.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("repair policy %d: %w", i, err))
			continue
		}
		if p.Reason == "" {
			if s.fallback != nil {
				errs = append(errs, fmt.Errorf("repair policy %d: there is a second policy without a reason", i))
			}
			if p.Action != karpv1.RepairReplace {
				errs = append(errs, fmt.Errorf("repair policy %d: the action of the policy without a reason must be %s", i, karpv1.RepairReplace))
			}
			s.fallback = p
		}
		p.reason = regexp.MustCompile(p.Reason)
		at := state{p.Condition, p.Status}
		s.byState[at] = append(s.byState[at], p)
	}
	if s.fallback == nil && len(errs) == 0 {
		errs = append(errs, errors.New("repair policies: none is without a reason, as the fallback must be"))
	}
	s.rank()
	return s, errors.Join(errs...)
}

// With returns the set with more policies, which replace those of the same condition and status: except for the
// fallback, which stays.
func (s *Policies) With(more []karpv1.RepairPolicy) (*Policies, error) {
	replaced := map[state]bool{}
	for i := range more {
		replaced[state{more[i].Condition, more[i].Status}] = true
	}
	var list []karpv1.RepairPolicy
	for _, at := range s.states() {
		for _, p := range s.byState[at] {
			if !replaced[at] || p == s.fallback {
				list = append(list, p.RepairPolicy)
			}
		}
	}
	return Compile(append(list, more...))
}

// List returns the policies of the set: Compile makes an equal set of them.
func (s *Policies) List() []karpv1.RepairPolicy {
	var list []karpv1.RepairPolicy
	for _, at := range s.states() {
		for _, p := range s.byState[at] {
			list = append(list, p.RepairPolicy)
		}
	}
	return list
}

// states are the states that the set covers, in order.
func (s *Policies) states() []state {
	out := make([]state, 0, len(s.byState))
	for at := range s.byState {
		out = append(out, at)
	}
	slices.SortFunc(out, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.condition, b.condition), cmp.Compare(a.status, b.status))
	})
	return out
}

// rank numbers the distinct priorities.
func (s *Policies) rank() {
	var priorities []int
	for _, list := range s.byState {
		for _, p := range list {
			priorities = append(priorities, p.Priority)
		}
	}
	slices.Sort(priorities)
	priorities = slices.Compact(priorities)
	for _, list := range s.byState {
		for _, p := range list {
			p.rank, _ = slices.BinarySearch(priorities, p.Priority)
		}
	}
}

// Fault is a condition of a node that a policy covers.
type Fault struct {
	Condition corev1.NodeCondition
	// since is the time when the toleration begins: the transition of the condition, but not before the Node existed.
	since  time.Time
	policy *policy
}

// Policy is the policy that covers the condition.
func (f *Fault) Policy() *karpv1.RepairPolicy { return &f.policy.RepairPolicy }

// Fallback reports whether the policy is the fallback, which covers reasons that no other policy names.
func (f *Fault) Fallback() bool { return f.policy.Reason == "" }

// eligibleAt returns when the toleration finishes. A reboot starts it anew: the zero time means none.
func (f *Fault) eligibleAt(rebooted time.Time) time.Time {
	since := f.since
	if rebooted.After(since) {
		since = rebooted
	}
	return since.Add(f.policy.Toleration.Duration)
}

// Faults are the conditions of a node that policies cover, tolerated or not, in the order of the conditions. A condition
// has a fault for each policy with a reason that it matches; if it matches none, the fallback covers it. A condition with a
// status that no policy names has none.
func (s *Policies) Faults(node *corev1.Node) []Fault {
	var out []Fault
	for _, c := range node.Status.Conditions {
		list := s.byState[state{c.Type, c.Status}]
		if len(list) == 0 {
			continue
		}
		since := c.LastTransitionTime.Time
		if created := node.CreationTimestamp.Time; created.After(since) {
			since = created
		}
		matched := false
		for _, p := range list {
			if p.Reason != "" && p.reason.MatchString(c.Reason) {
				out, matched = append(out, Fault{c, since, p}), true
			}
		}
		if !matched {
			out = append(out, Fault{c, since, s.fallback})
		}
	}
	return slices.DeleteFunc(out, func(f Fault) bool { return f.policy.Action == karpv1.RepairIgnore })
}
