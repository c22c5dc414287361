package awserrors

import "regexp"

// requestIDs is what of an error's text differs from one call to the next: what the SDK writes into it, and the cipher that
// EC2 ends a refusal with.
var requestIDs = regexp.MustCompile(`(, )?(RequestID|HostID): [^,]*| ?Encoded authorization failure message: [A-Za-z0-9_-]+`)

// Plain returns err without the IDs of the request, and what of the answer is enciphered, in its text. The same failure then reads the same each
// time: a condition is not written anew, and an event is not repeated. What err is stays.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	return withoutRequestIDs{err}
}

type withoutRequestIDs struct{ error }

func (p withoutRequestIDs) Error() string { return requestIDs.ReplaceAllString(p.error.Error(), "") }
func (p withoutRequestIDs) Unwrap() error { return p.error }
