package cloudprovider

import (
	"fmt"
	"strconv"
	"strings"
)

// Unlaunched is the value of the annotation karpv1.AnnotationLaunch of a claim before its first launch. A claim without the
// annotation may have been launched, alone.
const Unlaunched = "unlaunched"

// Alone is the value of the annotation karpv1.AnnotationLaunch of a claim that is launched alone, before the call with a client token after
// its first one: number is 1 for the second token. A later process begins with that token.
func Alone(number int) string { return aloneMark + strconv.Itoa(number) }

// ParseAlone parses the result of Alone; 0 if s is something else.
func ParseAlone(s string) (number int) {
	rest, ok := strings.CutPrefix(s, aloneMark)
	if n, err := strconv.Atoi(rest); ok && err == nil && n > 0 {
		return n
	}
	return 0
}

const aloneMark = "alone/"

// BatchSlot is the slot of a claim in a batch launch. It is written on the claim before the call is made, so that a later process can
// find out which instance is the claim's: see internal/aws/launch.
type BatchSlot struct {
	// Launch is the ID of the launch, which its instances have as a tag.
	Launch string
	// Index is the claim's slot, from 0 to Of-1.
	Index, Of int
}

// String is the form of a BatchSlot in an annotation.
func (t BatchSlot) String() string { return fmt.Sprintf("%s/%d/%d", t.Launch, t.Index, t.Of) }

// ParseBatchSlot parses the result of String; false if s is something else.
func ParseBatchSlot(s string) (BatchSlot, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" {
		return BatchSlot{}, false
	}
	place, err := strconv.Atoi(parts[1])
	of, err2 := strconv.Atoi(parts[2])
	if err != nil || err2 != nil || place < 0 || place >= of {
		return BatchSlot{}, false
	}
	return BatchSlot{Launch: parts[0], Index: place, Of: of}, true
}
