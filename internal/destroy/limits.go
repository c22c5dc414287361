package destroy

import (
	"fmt"
	"strconv"
	"strings"
)

// Limit is how much may be deleted of a NodePool, and of the cluster, for the reasons of a kind.
type Limit struct {
	// PerHour is the share of the capacity that may be deleted in an hour, 1 for all of it; below 0 for no limit. The capacity is the most
	// that there was within the hour.
	PerHour float64
	// PerMinute is the share of the nodes that may be deleted in a minute; below 0 for no limit.
	PerMinute float64
	// NodesPerHour and NodesPerMinute may be deleted, whatever their share is: small clusters change often.
	NodesPerHour, NodesPerMinute int
}

// Limits are the limits by kind of reason.
type Limits map[Kind]Limit

// The defaults do not limit normal work: a fleet may be replaced twice in an hour, a small one many times, and all that expires may go at
// once. Faults have a narrower limit, since their cause is rarely the nodes.
const (
	plannedPerHour, plannedPerMinute       = 2.0, 1.0
	faultPerHour, faultPerMinute           = 0.5, 0.25
	expiredPerHour                         = 4.0
	leastNodesPerHour, leastNodesPerMinute = 30, 50
	leastFaultsPerHour                     = 10
	unlimited                              = -1
)

// DefaultLimits are the limits without a setting.
func DefaultLimits() Limits {
	return Limits{
		Planned: {plannedPerHour, plannedPerMinute, leastNodesPerHour, leastNodesPerMinute},
		Fault:   {faultPerHour, faultPerMinute, leastFaultsPerHour, leastFaultsPerHour},
		Expired: {expiredPerHour, unlimited, leastNodesPerHour, 0},
	}
}

// ParseLimits reads the setting blast-radius: empty for the defaults, "off", or shares per hour by kind, such as
// "planned=50%,fault=20%". Kinds that it does not name keep their default.
func ParseLimits(text string) (Limits, error) {
	out := DefaultLimits()
	switch strings.TrimSpace(text) {
	case "":
		return out, nil
	case "off":
		return Limits{}, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, share, found := strings.Cut(strings.TrimSpace(part), "=")
		kind := Kind(name)
		if !found || !kind.Limited() {
			return nil, fmt.Errorf("%q is not KIND=SHARE%% with the kind %s, %s or %s", strings.TrimSpace(part), Planned, Fault, Expired)
		}
		perHour, err := ParseShare(share)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		out[kind] = shared(out[kind], perHour)
	}
	return out, nil
}

// shared is a limit with a share that a person has chosen: no number of nodes may exceed it, except one.
func shared(l Limit, perHour float64) Limit {
	l.PerHour, l.NodesPerHour = perHour, 1
	l.PerMinute, l.NodesPerMinute = unlimited, 0
	return l
}

// maxShare bounds what counts as a share, so that a number without a meaning is an error.
const maxShare = 100

// ParseShare reads a share such as 20%, above 0% and up to 10000%.
func ParseShare(text string) (float64, error) {
	number, found := strings.CutSuffix(strings.TrimSpace(text), "%")
	percent, err := strconv.ParseFloat(number, 64)
	share := percent / 100
	switch {
	case !found || err != nil:
		return 0, fmt.Errorf("%q is not a share such as 20%%", text)
	case !(share > 0) || share > maxShare: // NaN is not above 0
		return 0, fmt.Errorf("%q is not above 0%% and at most %d%%: to stop disruption set a disruption budget with 0 nodes", text, maxShare*100)
	}
	return share, nil
}
