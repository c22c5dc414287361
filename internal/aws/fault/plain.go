package fault

import "regexp"

// perRequest is what the SDK writes into an error that differs from one call to the next.
var perRequest = regexp.MustCompile(`(, )?(RequestID|HostID): [^,]*`)

// Plain returns err without the IDs of the request in its text. The same failure then reads the same each
// time: a condition is not written anew, and an event is not repeated. What err is stays.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	return plain{err}
}

type plain struct{ error }

func (p plain) Error() string { return perRequest.ReplaceAllString(p.error.Error(), "") }
func (p plain) Unwrap() error { return p.error }
