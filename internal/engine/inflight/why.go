package inflight

import "fmt"

// Why is the reason of a rollback.
type Why struct {
	Code Code
	// Replacement is the name of the one that is missing.
	Replacement string
	// Of so many replacements so many were Ready in time.
	Ready, Of int
	// Deployment is the one that was restarted in vain, as namespace/name.
	Deployment string
	// Pause is the message of the breaker.
	Pause string
}

// Code is the kind of a Why.
type Code string

// The codes. After the first three, nothing is known against the replacements.
const (
	// NotCompleted: a command without replacements was not carried out at once.
	NotCompleted Code = "NotCompleted"
	// NotCreated: a replacement does not exist, and maybe never did.
	NotCreated Code = "NotCreated"
	// NotDrifted: its candidates drifted, and are not drifted any more.
	NotDrifted Code = "NotDrifted"
	// Lost: a replacement existed, and is gone.
	Lost Code = "Lost"
	// Paused: the breaker has paused such commands.
	Paused Code = "Paused"
	// Late: replacements were not ready in time.
	Late Code = "Late"
	// RestartFailed: the next pod of a Deployment did not become Ready.
	RestartFailed Code = "RestartFailed"
)

// String is the reason in words, for logs and recordings.
func (w Why) String() string {
	switch w.Code {
	case NotCompleted:
		return "the process that started it did not complete it"
	case NotCreated:
		return fmt.Sprintf("the process that started it did not create replacement %q", w.Replacement)
	case NotDrifted:
		return "its nodes are not drifted any more"
	case Lost:
		return fmt.Sprintf("replacement %q was deleted", w.Replacement)
	case Late:
		return fmt.Sprintf("only %d of %d replacements were ready in time", w.Ready, w.Of)
	case RestartFailed:
		return fmt.Sprintf("the restart of Deployment %s, which was to move its pod, has failed", w.Deployment)
	}
	return w.Pause
}
