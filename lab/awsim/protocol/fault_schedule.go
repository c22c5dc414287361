package protocol

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// FaultSource decides for each call which fault to inject, if any. The server calls it for one call at a time.
type FaultSource interface {
	Next(r *Request) (Fault, bool)
}

// FaultSchedule is a FaultSource that fails calls at random, as during an incident of a region. The shares are of all
// calls and add up to one at most. Equal seeds give the nth call of an action the same fate.
type FaultSchedule struct {
	Seed uint64
	// Principal is a part of the ARNs of the callers that get faults; empty = all callers.
	Principal string
	// Throttled are answered with RequestLimitExceeded; Broken with an internal error, before any effect.
	Throttled, Broken float64
	// Lost take effect, but the response is an internal error; Dropped take effect, but the connection closes.
	Lost, Dropped float64
	// Slow are answered after up to a second more than usual.
	Slow float64

	mu    sync.Mutex
	calls map[string]*rand.Rand // by service and action
}

// Next implements Weather.
func (s *FaultSchedule) Next(r *Request) (Fault, bool) {
	if !strings.Contains(r.Principal.ARN, s.Principal) {
		return Fault{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.Service + "." + r.Action
	dice := s.calls[name]
	if dice == nil {
		if s.calls == nil {
			s.calls = map[string]*rand.Rand{}
		}
		dice = rand.New(rand.NewPCG(s.Seed, hash(name)))
		s.calls[name] = dice
	}
	roll, delay := dice.Float64(), time.Duration(dice.Int64N(int64(time.Second)))
	internal := Errorf("InternalError", "An internal error has occurred").WithStatus(http.StatusInternalServerError)
	for _, f := range []struct {
		share float64
		fault Fault
	}{
		{s.Throttled, Fault{Error: Errorf("RequestLimitExceeded", "Request limit exceeded.").WithStatus(http.StatusServiceUnavailable)}},
		{s.Broken, Fault{Error: internal}},
		{s.Lost, Fault{Error: internal, AfterEffect: true}},
		{s.Dropped, Fault{Error: internal, AfterEffect: true, Drop: true}},
		{s.Slow, Fault{Delay: delay}},
	} {
		if roll < f.share {
			return f.fault, true
		}
		roll -= f.share
	}
	return Fault{}, false
}

// hash is FNV-1a.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}
