package rollout

import (
	"fmt"
	"strings"
)

// Message describes the evidence.
func (e Evidence) Message() string {
	switch e.Code {
	case Pressure:
		return e.Detail + " is True"
	case TooSmall:
		return fmt.Sprintf("it has %s of %s for pods, and its instance type should have %s", e.Has, e.Detail, e.Expected)
	}
	what := map[Code]string{
		ImageNotPulled: "cannot pull an image", CrashLoop: "crash again and again", Refused: "were refused by kubelet",
		Restarts: "have restarted", NotReady: "are not ready",
	}[e.Code]
	if e.Bad == 1 {
		what = map[Code]string{
			ImageNotPulled: "cannot pull an image", CrashLoop: "crashes again and again", Refused: "was refused by kubelet",
			Restarts: "has restarted", NotReady: "is not ready",
		}[e.Code]
	}
	if e.Detail != "" {
		what += " (" + e.Detail + ")"
	}
	return fmt.Sprintf("%d of %d pods of %s there %s: %s; elsewhere %d of %d",
		e.Bad, e.Of, e.Owner, what, e.names(), e.BadSiblings, e.Siblings)
}

// names are those of the pods that are not healthy.
func (e Evidence) names() string {
	out := strings.Join(e.Pods, ", ")
	if more := e.Bad - len(e.Pods); more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}
	return out
}

// String names the owner.
func (o Owner) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}
