package cloudprovider

import (
	"fmt"
	"strconv"
	"strings"
)

// Unlaunched is what the annotation karpv1.AnnotationLaunch says of a claim that nobody has tried to launch. A claim
// without the annotation may have been launched, alone.
const Unlaunched = "unlaunched"

// Ticket is the place of a claim in a launch of several. Written on the claim before the call is made, it tells whoever
// comes later which instance is the claim's: see Deal in internal/aws/launch.
type Ticket struct {
	// Launch is the ID of the launch, which its instances bear as a tag.
	Launch string
	// Place is the claim's, from 0, of Of.
	Place, Of int
}

// String is the form in which a ticket is written on a claim.
func (t Ticket) String() string { return fmt.Sprintf("%s/%d/%d", t.Launch, t.Place, t.Of) }

// ParseTicket reads what String has written; false if that is no ticket.
func ParseTicket(s string) (Ticket, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" {
		return Ticket{}, false
	}
	place, err := strconv.Atoi(parts[1])
	of, err2 := strconv.Atoi(parts[2])
	if err != nil || err2 != nil || place < 0 || place >= of {
		return Ticket{}, false
	}
	return Ticket{Launch: parts[0], Place: place, Of: of}, true
}
