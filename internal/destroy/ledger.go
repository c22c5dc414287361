package destroy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// window is the time over which shares are limited.
const window = time.Hour

// Size is how much is deleted, or there is.
type Size struct {
	Nodes int `json:"nodes"`
	// MilliCPU is in millicores, Memory in bytes: the capacity of the nodes.
	MilliCPU int64 `json:"milliCPU,omitempty"`
	Memory   int64 `json:"memory,omitempty"`
}

func (s Size) plus(o Size) Size {
	return Size{s.Nodes + o.Nodes, s.MilliCPU + o.MilliCPU, s.Memory + o.Memory}
}

func (s Size) most(o Size) Size {
	return Size{max(s.Nodes, o.Nodes), max(s.MilliCPU, o.MilliCPU), max(s.Memory, o.Memory)}
}

// share is which part of the whole this is: of nodes, CPU or memory, whichever is most.
func (s Size) share(whole Size) float64 {
	part := func(a, of int64) float64 { return float64(a) / float64(max(of, 1)) }
	return max(part(int64(s.Nodes), int64(whole.Nodes)), part(s.MilliCPU, whole.MilliCPU), part(s.Memory, whole.Memory))
}

// Cluster is the scope of the whole cluster among those of NodePools.
const Cluster = ""

// Fleet is the capacity by NodePool; Cluster has that of all nodes.
type Fleet map[string]Size

// Bucket is what was deleted of a NodePool within a minute for the reasons of a kind.
type Bucket struct {
	// Minute counts from the Unix epoch.
	Minute  int64  `json:"minute"`
	Pool    string `json:"nodePool"`
	Kind    Kind   `json:"kind"`
	Deleted Size   `json:"deleted"`
	// OfPool and OfCluster are the most capacity that there was meanwhile.
	OfPool    Size `json:"ofNodePool"`
	OfCluster Size `json:"ofCluster"`
}

// Pause is why nothing is deleted in a scope until a person resumes deletions.
type Pause struct {
	Since time.Time `json:"since"`
	Kind  Kind      `json:"kind"`
	// Message states how much was deleted, and the limit.
	Message string `json:"message"`
	// minute is true if only the limit of a minute is exceeded.
	minute bool
}

// Ledger is what has been deleted within the last hour, and what is paused. It holds a bucket for each minute, NodePool and kind with
// deletions.
type Ledger struct {
	Buckets []Bucket `json:"buckets,omitempty"`
	// Pauses are by NodePool; Cluster pauses all.
	Pauses map[string]Pause `json:"pauses,omitempty"`
	// Resumed is, by NodePool, the value of the annotation with which a person last resumed, or which it had when the pause began.
	Resumed map[string]string `json:"resumed,omitempty"`
	// Before is, by NodePool, the value before that of Resumed: GitOps sets it again minutes after a person has resumed.
	Before map[string]string `json:"before,omitempty"`
}

// paused returns the pause that holds for a pool.
func (l *Ledger) paused(pool string) (scope string, p Pause, is bool) {
	for _, scope := range []string{Cluster, pool} {
		if p, is := l.Pauses[scope]; is {
			return scope, p, true
		}
	}
	return "", Pause{}, false
}

// charge is a deletion that is about to happen.
type charge struct {
	pool string
	kind Kind
	size Size
	// patient deletions wait for the next minute where others pause.
	patient bool
	// id is the UID of the NodeClaim, or the provider ID of an instance without one.
	id string
}

// add records a deletion, before it happens.
func (l *Ledger) add(c charge, fleet Fleet, now time.Time) {
	l.Buckets = slices.DeleteFunc(l.Buckets, func(b Bucket) bool { return !b.within(window, now) })
	minute := now.Unix() / 60
	i := slices.IndexFunc(l.Buckets, func(b Bucket) bool { return b.Minute == minute && b.Pool == c.pool && b.Kind == c.kind })
	if i < 0 {
		i = len(l.Buckets)
		l.Buckets = append(l.Buckets, Bucket{Minute: minute, Pool: c.pool, Kind: c.kind})
	}
	b := &l.Buckets[i]
	b.Deleted = b.Deleted.plus(c.size)
	b.OfPool, b.OfCluster = b.OfPool.most(fleet[c.pool]), b.OfCluster.most(fleet[Cluster])
	for _, minutes := range []int64{10, 60} {
		if len(l.Buckets) > maxBuckets {
			l.merge(minutes, minute)
		}
	}
}

// maxBuckets keeps the ledger below half of the size that a ConfigMap may have: 1 MiB. A bucket takes up to 250 bytes.
const maxBuckets = 2000

// merge merges the buckets of a NodePool and kind within the same so many minutes, except those of the minute now. What was deleted counts
// from the latest of them, so that it counts no shorter than alone.
func (l *Ledger) merge(minutes, now int64) {
	type key struct {
		pool string
		kind Kind
		span int64
	}
	at := map[key]int{}
	var out []Bucket
	for _, b := range l.Buckets {
		k := key{b.Pool, b.Kind, b.Minute / minutes}
		if i, found := at[k]; found && b.Minute != now {
			o := &out[i]
			o.Minute, o.Deleted = max(o.Minute, b.Minute), o.Deleted.plus(b.Deleted)
			o.OfPool, o.OfCluster = o.OfPool.most(b.OfPool), o.OfCluster.most(b.OfCluster)
			continue
		}
		if b.Minute != now {
			at[k] = len(out)
		}
		out = append(out, b)
	}
	l.Buckets = out
}

// within reports whether any moment of the bucket's minute is at most d ago. A clock that was ahead, and was set right, leaves buckets of
// the future: those further ahead than d do not count either, or they would count until then.
func (b Bucket) within(d time.Duration, now time.Time) bool {
	return time.Unix((b.Minute+1)*60, 0).After(now.Add(-d)) && !time.Unix(b.Minute*60, 0).After(now.Add(d))
}

// with is what has been deleted of a scope for reasons of the kind in this hour and minute, with the deletion, and the most capacity that
// there was when something was.
func (l *Ledger) with(c charge, scope string, now time.Time) (hour, minute, whole Size) {
	hour, minute = c.size, c.size
	for _, b := range l.Buckets {
		if b.Kind != c.kind || scope != Cluster && b.Pool != scope || !b.within(window, now) {
			continue
		}
		hour = hour.plus(b.Deleted)
		if b.Minute == now.Unix()/60 {
			minute = minute.plus(b.Deleted)
		}
		if scope == Cluster {
			whole = whole.most(b.OfCluster)
		} else {
			whole = whole.most(b.OfPool)
		}
	}
	return hour, minute, whole
}

// exceeded returns the scope in which a deletion would exceed a limit, and why; is is false if there is room. The limit of the pool counts
// for the pool, that of the cluster for all pools together. The pool comes first: others go on where it alone has too many deletions.
func (l *Ledger) exceeded(c charge, limits map[string]Limit, fleet Fleet, now time.Time) (scope string, p Pause, is bool) {
	for _, scope := range slices.Compact([]string{c.pool, Cluster}) {
		limit, found := limits[scope]
		if !found {
			continue
		}
		hour, minute, whole := l.with(c, scope, now)
		whole = whole.most(fleet[scope])
		message, onlyMinute := "", false
		switch {
		case limit.PerHour >= 0 && hour.Nodes > limit.NodesPerHour && hour.share(whole) > limit.PerHour:
			message = fmt.Sprintf("%d nodes, %.0f%% of the capacity of %s, would be deleted within an hour for reasons of the kind %s; "+
				"the limit is %.0f%%", hour.Nodes, 100*hour.share(whole), scopeName(scope), c.kind, 100*limit.PerHour)
		case limit.PerMinute >= 0 && minute.Nodes > limit.NodesPerMinute && float64(minute.Nodes) > limit.PerMinute*float64(whole.Nodes):
			onlyMinute = true
			message = fmt.Sprintf("%d of %d nodes of %s would be deleted within a minute for reasons of the kind %s; the limit is %.0f%%",
				minute.Nodes, whole.Nodes, scopeName(scope), c.kind, 100*limit.PerMinute)
		default:
			continue
		}
		return scope, Pause{Since: now, Kind: c.kind, Message: message, minute: onlyMinute}, true
	}
	return "", Pause{}, false
}

// scopeName is how messages name a scope.
func scopeName(scope string) string {
	if scope == Cluster {
		return "the cluster"
	}
	return fmt.Sprintf("NodePool %q", scope)
}

// pause pauses a scope. The values of the annotation that NodePools have now resume nothing.
func (l *Ledger) pause(scope string, p Pause, annotations map[string]string) {
	if l.Pauses == nil {
		l.Pauses = map[string]Pause{}
	}
	l.Pauses[scope] = p
	if l.Resumed == nil {
		l.Resumed = map[string]string{}
	}
	maps.Copy(l.Resumed, annotations)
	gone := func(pool, _ string) bool { _, exists := annotations[pool]; return !exists }
	maps.DeleteFunc(l.Resumed, gone)
	maps.DeleteFunc(l.Before, gone)
}

// resume removes the pause of a NodePool and that of the cluster, if the annotation of the pool has changed. What was deleted before counts
// no longer. It reports whether anything was paused.
func (l *Ledger) resume(pool, annotation string) (resumed bool) {
	if len(l.Pauses) == 0 || annotation == "" || annotation == l.Resumed[pool] || annotation == l.Before[pool] {
		return false
	}
	for _, scope := range []string{pool, Cluster} {
		if _, is := l.Pauses[scope]; !is {
			continue
		}
		delete(l.Pauses, scope)
		l.Buckets = slices.DeleteFunc(l.Buckets, func(b Bucket) bool { return scope == Cluster || b.Pool == scope })
		resumed = true
	}
	if resumed {
		if l.Before == nil {
			l.Before = map[string]string{}
		}
		l.Before[pool], l.Resumed[pool] = l.Resumed[pool], annotation
	}
	return resumed
}

// clone is a copy that shares nothing.
func (l *Ledger) clone() Ledger {
	out := Ledger{Buckets: slices.Clone(l.Buckets), Pauses: maps.Clone(l.Pauses), Resumed: maps.Clone(l.Resumed), Before: maps.Clone(l.Before)}
	slices.SortFunc(out.Buckets, func(a, b Bucket) int {
		return cmp.Or(cmp.Compare(a.Minute, b.Minute), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}
