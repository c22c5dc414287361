package bin

import "github.com/dovetail-k8s/dovetail/internal/engine/rejection"

// Refusal states why a bin does not take a pod. It is valid until the next Grow.
type Refusal struct {
	code rejection.Code
	// final is true when nothing later in this run can change it.
	final bool
	// view and domain are the index of the view and the only domain of the bin that it does not allow; empty if the
	// refusal has another reason. No other reason can pass before this one.
	view   int
	domain string
}

// Code is the rule by which the bin refuses.
func (r *Refusal) Code() rejection.Code { return r.code }

// Final is true when nothing later in this run can change it.
func (r *Refusal) Final() bool { return r.final }

// refusals are the refusals by frequent rules, allocated once.
type refusals struct {
	full, taint, topology, limits refusalPair
	requirement                   Refusal
	domain                        Refusal // buffer of refusals by a view that does not allow the domain
}

// refusalPair are the refusals by one rule, not final and final.
type refusalPair [2]Refusal

func newRefusalPair(code rejection.Code) refusalPair {
	return refusalPair{{code: code}, {code: code, final: true}}
}

func newRefusals() refusals {
	return refusals{
		full: newRefusalPair(rejection.Resources), taint: newRefusalPair(rejection.Taint), topology: newRefusalPair(rejection.Topology),
		limits: newRefusalPair(rejection.Limits), requirement: Refusal{code: rejection.Requirement, final: true},
	}
}

// of returns the refusal by one of the frequent rules.
func (r *refusals) of(code rejection.Code, never bool) *Refusal {
	switch code {
	case rejection.Taint:
		return &r.taint[btoi(never)]
	case rejection.Topology:
		return &r.topology[btoi(never)]
	case rejection.Limits:
		return &r.limits[btoi(never)]
	}
	return &r.full[btoi(never)]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
