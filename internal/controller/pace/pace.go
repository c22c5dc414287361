// Package pace shortens the waits of a controller with an AWS account that is simulated on its own computer.
//
// Scenarios of the lab mostly wait for constants of the controller: a command stays valid for 15 s before it starts, new nodes stay ready
// for three minutes before others are replaced. With DOVETAIL_PACE=5 each of these takes a fifth of its time. Clocks stay real, since the
// API server stamps what is created.
package pace

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Variable is the environment variable with the pace.
const Variable = "DOVETAIL_PACE"

// Pace divides waits. 0 and 1 leave them as they are.
type Pace int

// Of returns how long a wait takes that takes d at the real pace.
func (p Pace) Of(d time.Duration) time.Duration {
	if p <= 1 {
		return d
	}
	return d / time.Duration(p)
}

// Read returns the pace that the environment, in the form of os.Environ, requests. A pace other than 1 is refused unless every AWS endpoint
// is on loopback: baseEndpoint, which the SDK has read from its usual places, and those of single services in the environment.
func Read(environ []string, baseEndpoint *string) (Pace, error) {
	text, endpoints := "", []string{}
	if baseEndpoint != nil {
		endpoints = append(endpoints, *baseEndpoint)
	}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case name == Variable:
			text = value
		case strings.HasPrefix(name, "AWS_ENDPOINT_URL_") && value != "":
			endpoints = append(endpoints, value)
		}
	}
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%q is not a whole number of at least 1", Variable, text)
	}
	if n == 1 {
		return 1, nil
	}
	if baseEndpoint == nil {
		return 0, fmt.Errorf("%s=%d is for tests with simulated AWS APIs, and AWS_ENDPOINT_URL is not set: remove %s", Variable, n, Variable)
	}
	for _, endpoint := range endpoints {
		if !onLoopback(endpoint) {
			return 0, fmt.Errorf("%s=%d is for tests with simulated AWS APIs, and the endpoint %s is not on this machine: remove %s",
				Variable, n, endpoint, Variable)
		}
	}
	return Pace(n), nil
}

// onLoopback reports whether the host of a URL is an address of this machine alone. A name is not: it may resolve to any address.
func onLoopback(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}
