// Package savings counts what disruption commands have saved, once they have removed their nodes: the price of these nodes less that of
// their replacements.
//
// The comparison is with a fleet in which the removed nodes still ran. Commands that replace each other's nodes add up to the difference
// between the first node and the last. A launch for pods takes back as much of the savings of its NodePool as the new node costs, those of
// the latest command first: without the commands, the pods might have had room. So a fleet that shrinks each night and grows each morning
// does not count the same nodes again each day.
package savings

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Node is a node that a command has removed or launched.
type Node struct {
	NodePool string
	// HourlyCost is its price in $/h.
	HourlyCost float64
	// At is the time from which on a removed node costs nothing, and a launched one costs its price.
	At time.Time
}

// Command is a disruption command that has removed all of its nodes.
type Command struct {
	ID                string
	Removed, Launched []Node
}

// Finished is a command that has removed all of its nodes and launched all replacements. It counts only if all prices are known, which are
// above 0: else what it saves is not known.
func Finished(id string, removed, launched []Node) (c Command, counts bool) {
	for _, nodes := range [][]Node{removed, launched} {
		for _, n := range nodes {
			if n.HourlyCost <= 0 {
				return c, false
			}
		}
	}
	return Command{ID: id, Removed: removed, Launched: launched}, true
}

// Hourly is what the command saves in $/h; negative if its replacements cost more.
func (c *Command) Hourly() (saved float64) {
	for _, n := range c.Removed {
		saved += n.HourlyCost
	}
	for _, n := range c.Launched {
		saved -= n.HourlyCost
	}
	return saved
}

// Amount is what is saved: Hourly in $/h now, Dollars since the beginning, in $. Both are negative if replacements cost more.
type Amount struct{ Hourly, Dollars float64 }

func (a *Amount) add(b Amount) { a.Hourly, a.Dollars = a.Hourly+b.Hourly, a.Dollars+b.Dollars }

// entry is what a command saves in a NodePool. Dollars are those until since.
type entry struct {
	command string
	Amount
	since time.Time
}

// at is the amount at a time.
func (e *entry) at(now time.Time) Amount {
	return Amount{e.Hourly, e.Dollars + e.Hourly*max(0, now.Sub(e.since)).Hours()}
}

// Ledger has the savings by NodePool. The zero value has none. Commands and launches are added in the order of their times.
type Ledger struct{ pools map[string][]entry }

// Finish adds a command. While its replacements ran beside the nodes that they replace, it cost money.
func (l *Ledger) Finish(c Command) {
	var done time.Time
	for _, n := range c.Removed {
		if n.At.After(done) {
			done = n.At
		}
	}
	byPool := map[string]*entry{}
	add := func(nodes []Node, sign float64) {
		for _, n := range nodes {
			e := byPool[n.NodePool]
			if e == nil {
				e = &entry{command: c.ID, since: done}
				byPool[n.NodePool] = e
			}
			e.Hourly += sign * n.HourlyCost
			e.Dollars += sign * n.HourlyCost * max(0, done.Sub(n.At)).Hours()
		}
	}
	add(c.Removed, 1)
	add(c.Launched, -1)
	if l.pools == nil {
		l.pools = map[string][]entry{}
	}
	for pool, e := range byPool {
		l.pools[pool] = append(l.pools[pool], *e)
	}
}

// Launch adds a node that was launched for pods.
func (l *Ledger) Launch(n Node) {
	entries, rest := l.pools[n.NodePool], n.HourlyCost
	for i := len(entries) - 1; i >= 0 && rest > 0; i-- {
		e := &entries[i]
		back := min(e.Hourly, rest)
		if back <= 0 {
			continue
		}
		at := n.At
		if at.Before(e.since) {
			at = e.since
		}
		e.Amount = e.at(at)
		e.since, e.Hourly = at, e.Hourly-back
		rest -= back
	}
}

// most is how many commands of a NodePool Compact keeps apart. One takes 60 bytes.
const most = 1000

// Compact keeps a ledger small that is not read by command: those that save nothing any more become one.
func (l *Ledger) Compact() {
	for pool, entries := range l.pools {
		past := entry{}
		kept := slices.DeleteFunc(entries, func(e entry) bool {
			ended := e.Hourly == 0
			if ended {
				past.Dollars += e.Dollars
			}
			return ended
		})
		for len(kept) >= most { // the oldest, which launches take back last
			kept[1].Amount = kept[1].plus(&kept[0])
			kept = kept[1:]
		}
		l.pools[pool] = slices.Insert(kept, 0, past)
	}
}

// plus is the amount of two commands at the time from which on that of e counts.
func (e *entry) plus(earlier *entry) Amount {
	out := earlier.at(e.since)
	out.add(e.Amount)
	return out
}

// PoolAmount is what commands save in a NodePool.
type PoolAmount struct {
	NodePool string
	Amount
}

// Pools returns what the commands have saved until now by NodePool, sorted by name.
func (l *Ledger) Pools(now time.Time) []PoolAmount {
	out := make([]PoolAmount, 0, len(l.pools))
	for _, pool := range slices.SortedFunc(maps.Keys(l.pools), cmp.Compare[string]) {
		sum := PoolAmount{NodePool: pool}
		for i := range l.pools[pool] {
			sum.add(l.pools[pool][i].at(now))
		}
		out = append(out, sum)
	}
	return out
}

// Commands returns what each command has saved until now, by ID.
func (l *Ledger) Commands(now time.Time) map[string]Amount {
	out := map[string]Amount{}
	for _, entries := range l.pools {
		for i := range entries {
			sum := out[entries[i].command]
			sum.add(entries[i].at(now))
			out[entries[i].command] = sum
		}
	}
	return out
}
