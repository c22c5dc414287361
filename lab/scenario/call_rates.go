package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/ec2"
)

// callRates is how far calls of EC2 have filled the documented rate limits of an account.
type callRates struct {
	// fullest is the limit of which least was left: its name, and how many of its burst were used.
	fullest string
	used    float64
	burst   float64
	// busiest is the most calls within a second.
	busiest int
}

// ratesOf replays calls of EC2, oldest first, against token buckets that were full before.
func ratesOf(calls []awsim.Call) callRates {
	type level struct {
		tokens float64
		at     time.Time
	}
	var out callRates
	levels := map[string]level{}
	var times []time.Time
	for _, call := range calls {
		if call.Service != "ec2" {
			continue
		}
		limit := ec2.RateLimit(call.Action)
		l, known := levels[limit.Name]
		if !known {
			l = level{limit.Burst, call.Time}
		}
		l.tokens = min(limit.Burst, l.tokens+limit.Rate*call.Time.Sub(l.at).Seconds()) - 1
		l.at = call.Time
		levels[limit.Name] = l
		if used := limit.Burst - l.tokens; out.burst == 0 || used/limit.Burst > out.used/out.burst {
			out.fullest, out.used, out.burst = limit.Name, used, limit.Burst
		}
		times = append(times, call.Time)
		within := slices.IndexFunc(times, func(t time.Time) bool { return call.Time.Sub(t) < time.Second })
		out.busiest = max(out.busiest, len(times)-within)
	}
	return out
}

// err is not nil if a limit was exceeded.
func (r callRates) err() error {
	if r.used > r.burst {
		return fmt.Errorf("the limit %q of EC2 was exceeded: %.0f calls at once, it holds %.0f", r.fullest, r.used, r.burst)
	}
	return nil
}

// String is how a step notes it.
func (r callRates) String() string {
	if r.burst == 0 {
		return "no call of EC2"
	}
	return fmt.Sprintf("at most %d calls of EC2 in a second; %.0f of %.0f of the limit %q", r.busiest, r.used, r.burst, r.fullest)
}

// since are the calls of the cluster's controller from a time on.
func since(w *World, begin time.Time) []awsim.Call {
	return slices.DeleteFunc(w.AWS.Calls(), func(c awsim.Call) bool {
		return c.Time.Before(begin) || !strings.Contains(c.Principal, awsim.ControllerRole(w.Name)+"/")
	})
}
