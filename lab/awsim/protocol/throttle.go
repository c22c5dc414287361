package protocol

import (
	"net/http"
	"sync"
	"time"
)

// Bucket is a token bucket that calls draw on.
type Bucket struct {
	Name  string  // actions with equal names share it
	Rate  float64 // calls per second that flow in
	Burst float64 // calls that it holds
}

// throttle is the state of all buckets.
type throttle struct {
	mu     sync.Mutex
	levels map[string]bucketLevel
}

type bucketLevel struct {
	tokens float64
	at     time.Time
}

// allow takes a token from a bucket, if there is one.
func (t *throttle) allow(service string, b Bucket, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.levels == nil {
		t.levels = map[string]bucketLevel{}
	}
	key := service + " " + b.Name
	l, known := t.levels[key]
	if !known {
		l = bucketLevel{tokens: b.Burst, at: now}
	}
	l.tokens = min(b.Burst, l.tokens+b.Rate*now.Sub(l.at).Seconds())
	l.at = now
	allowed := l.tokens >= 1
	if allowed {
		l.tokens--
	}
	t.levels[key] = l
	return allowed
}

// throttled is the answer to a call that came too soon.
func (s *Service) throttled() error {
	switch s.Protocol {
	case EC2Query:
		return Errorf("RequestLimitExceeded", "Request limit exceeded.").WithStatus(http.StatusServiceUnavailable)
	case AWSQuery:
		return Errorf("Throttling", "Rate exceeded")
	default:
		return Errorf("ThrottlingException", "Rate exceeded")
	}
}
