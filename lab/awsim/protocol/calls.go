package protocol

import (
	"net/url"
	"slices"
	"sync"
	"time"
)

// maxCalls bounds the log's memory for an account that runs for days: 65536 calls, some tens of MB.
const maxCalls = 1 << 16

// Call is one API call that was answered.
type Call struct {
	ID        string // request ID
	Time      time.Time
	Service   string
	Action    string
	Principal string // ARN of the caller; empty if unknown
	Status    int
	// ErrorCode is empty when the call succeeded.
	ErrorCode    string
	ErrorMessage string
	// Resources are the IDs that the call created or changed.
	Resources []string
	// Parameters of the query protocols, as sent. They must not be modified.
	Parameters url.Values
}

// Calls returns the calls so far, oldest first; of very many, the latest.
func (s *Server) Calls() []Call { return s.calls.list() }

type callLog struct {
	mu    sync.Mutex
	calls []Call
	next  int // place of the oldest call once the log is full
}

func (l *callLog) add(c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.calls) < maxCalls {
		l.calls = append(l.calls, c)
		return
	}
	l.calls[l.next] = c
	l.next = (l.next + 1) % maxCalls
}

func (l *callLog) list() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.calls[l.next:], l.calls[:l.next])
}
