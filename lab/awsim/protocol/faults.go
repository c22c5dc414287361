package protocol

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fault is an error that is injected into the next calls of an action.
type Fault struct {
	Service string // "ec2"; empty = any
	Action  string // "CreateFleet", or "Describe*" for all that begin so; empty = any
	// Error is the answer; nil for a fault that only delays.
	Error *Error
	// Times is how many calls fail; 0 = one.
	Times int
	// Share is the random share of the calls that get it: from 0 to 1; 0 = all. Equal seeds give the nth call the same
	// result.
	Share float64
	// AfterEffect performs the action first and then answers with Error: the lost answer. A call that fails by itself
	// answers with its own error.
	AfterEffect bool
	// Drop closes the connection in place of the answer, as a network does; Error is then what the log of calls has.
	Drop bool
	// Delay is added to the time that the answer takes, on the wall clock.
	Delay time.Duration
	// For is how long the fault lasts from its injection, on the wall clock; 0 = without end.
	For time.Duration
	// Principal is a part of the ARNs of the callers that get it; empty = all callers.
	Principal string
}

// Hang is the Delay of a call that is not answered: no client waits so long.
const Hang = 24 * time.Hour

// concerns reports whether the fault is one of this call.
func (f Fault) concerns(r *Request) bool {
	return (f.Service == "" || f.Service == r.Service) && MatchesAction(f.Action, r.Action) && strings.Contains(r.Principal.ARN, f.Principal)
}

// MatchesAction reports whether a pattern, an action or the beginning of its name with a star, selects an action; empty selects all.
func MatchesAction(pattern, action string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	return pattern == "" || pattern == action || open && strings.HasPrefix(action, prefix)
}

// Always is the value of Times for a permanent fault.
const Always = math.MaxInt

// Inject arms a fault. Faults for one action are used up in the order in which they were injected.
func (s *Server) Inject(f Fault) { s.faults.add(f) }

// SetFaultSource sets the source of faults for calls without an armed fault; nil removes it.
func (s *Server) SetFaultSource(w FaultSource) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.source = w
}

// ClearFaults removes all faults and the fault source.
func (s *Server) ClearFaults() { s.faults.clear() }

type faults struct {
	mu     sync.Mutex
	seed   uint64
	armed  []armed
	source FaultSource
}

// armed is a fault with the random generator that selects its calls; nil for a fault of all calls.
type armed struct {
	Fault
	dice *rand.Rand
	// end is when it finishes by itself; zero for never.
	end time.Time
}

func (f *faults) add(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault.Times = max(1, fault.Times)
	a := armed{Fault: fault}
	if fault.For > 0 {
		a.end = time.Now().Add(fault.For)
	}
	if fault.Share > 0 && fault.Share < 1 {
		a.dice = rand.New(rand.NewPCG(f.seed, hash(fault.Service+"."+fault.Action)))
	}
	f.armed = append(f.armed, a)
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.source = nil, nil
}

// take returns the fault that is armed for this call and uses it up.
func (f *faults) take(r *Request) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = slices.DeleteFunc(f.armed, func(a armed) bool { return !a.end.IsZero() && time.Now().After(a.end) })
	for i, fault := range f.armed {
		if !fault.concerns(r) {
			continue
		}
		if fault.dice != nil && fault.dice.Float64() >= fault.Share {
			continue
		}
		if f.armed[i].Times != Always {
			f.armed[i].Times--
		}
		if f.armed[i].Times == 0 {
			f.armed = append(f.armed[:i:i], f.armed[i+1:]...)
		}
		return fault.Fault, true
	}
	if f.source == nil {
		return Fault{}, false
	}
	return f.source.Next(r)
}
