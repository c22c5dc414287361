package disrupt

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// DefaultForced is Forced without a setting: the last nodes of a pool are gone within some ten minutes of their deadline.
const DefaultForced = "10%"

// Forced is how many expired nodes of a pool that replaces nodes before they expire are deleted in a minute, whatever budgets allow. The
// zero value does not limit it.
type Forced struct {
	// Percent is of the pool's nodes, at least one node. Nodes is used where it is 0.
	Percent, Nodes int
}

// ParseForced reads the setting max-forced-expirations: a number of nodes, or a share of the pool such as 10%; 0 for no limit.
func ParseForced(text string) (Forced, error) {
	number, isShare := strings.CutSuffix(cmp.Or(text, DefaultForced), "%")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || isShare && n > 100 {
		return Forced{}, fmt.Errorf("%q is neither a number of nodes nor a share such as %s", text, DefaultForced)
	}
	if isShare {
		return Forced{Percent: n}, nil
	}
	return Forced{Nodes: n}, nil
}

// PerMinute is how many of a pool's nodes may be deleted in a minute of the clock; Unlimited for any number.
func (f Forced) PerMinute(nodes int) int {
	switch {
	case f.Percent > 0:
		return max(1, nodes*f.Percent/100)
	case f.Nodes > 0:
		return f.Nodes
	}
	return Unlimited
}
