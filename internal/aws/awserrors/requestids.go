package awserrors

import "regexp"

// requestIDs matches the parts of an error's text that differ between calls: the IDs that the SDK adds, and the encoded
// authorization message that EC2 appends.
var requestIDs = regexp.MustCompile(`(, )?(RequestID|HostID): [^,]*| ?Encoded authorization failure message: [A-Za-z0-9_-]+`)

// WithoutRequestIDs returns err without request IDs and encoded authorization messages in its text. The same failure
// then has the same text each time: conditions are not rewritten, and events are deduplicated. errors.Is and errors.As
// see the original error.
func WithoutRequestIDs(err error) error {
	if err == nil {
		return nil
	}
	return withoutRequestIDs{err}
}

type withoutRequestIDs struct{ error }

func (p withoutRequestIDs) Error() string { return requestIDs.ReplaceAllString(p.error.Error(), "") }
func (p withoutRequestIDs) Unwrap() error { return p.error }
