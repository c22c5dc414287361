package console

import (
	"context"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/bound"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// SpendPoint describes what the nodes cost at one time, in $/h.
type SpendPoint struct {
	At         time.Time `json:"at"`
	Reserved   float64   `json:"reservedHourlyCost"`
	OnDemand   float64   `json:"onDemandHourlyCost"`
	Spot       float64   `json:"spotHourlyCost"`
	LowerBound *float64  `json:"lowerBound"`
	Nodes      int       `json:"nodes"`
	// Pending pods have no node; null if pods may not be read.
	Pending *int `json:"pending"`
	// Unpriced counts how many nodes have no known price. They count as 0.
	Unpriced int `json:"unpriced"`
}

// Spend describes what the nodes cost over time.
type Spend struct {
	// Recorded is true if the points are of a recording, false if this console has observed them.
	Recorded bool `json:"recorded"`
	// Since is the time when the points begin to be known; null before the first.
	Since *time.Time `json:"since"`
	// Points are one for each minute that is known, at most a day of them, the oldest first. Minutes may be missing.
	Points []SpendPoint `json:"points"`
	// Read is the share of the recording that has been read, from 0 to 1: query again for the rest.
	Read float64 `json:"read"`
}

const (
	// spendMinutes sets how many points are kept: a day, in 150 kB.
	spendMinutes = 24 * 60
	// spendBounds sets how many lower bounds are computed of a recording: each is a plan for all pods, 0.2 s with 1,000 nodes.
	spendBounds = 24
	// spendTime bounds what one request reads of a recording.
	spendTime = 2 * time.Second
)

func (p *SpendPoint) add(nodes []*top.Node) {
	p.Nodes = len(nodes)
	for _, n := range nodes {
		switch {
		case n.Unpriced():
			p.Unpriced++
		case n.HourlyCost == nil: // it is not launched yet
		case n.CapacityType == karpv1.CapacityTypeReserved:
			p.Reserved += *n.HourlyCost
		case n.CapacityType == karpv1.CapacityTypeSpot:
			p.Spot += *n.HourlyCost
		default:
			p.OnDemand += *n.HourlyCost
		}
	}
}

// history is the last points, one for each minute.
type history struct{ points []SpendPoint }

// add adds a point, in place of one of the same minute.
func (h *history) add(p SpendPoint) {
	minute := func(t time.Time) time.Time { return t.Truncate(time.Minute) }
	if n := len(h.points); n > 0 && minute(h.points[n-1].At).Equal(minute(p.At)) {
		h.points = h.points[:n-1]
	}
	if len(h.points) == spendMinutes {
		h.points = append(h.points[:0:0], h.points[1:]...)
	}
	h.points = append(h.points, p)
}

// sample records what the nodes cost now. While the API server is away, that is not known.
func (h *hub) sample(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.record(now)
}

// record needs the lock.
func (h *hub) record(now time.Time) {
	s := h.last
	if s.Nodes == nil || s.Link.Lost != nil {
		return
	}
	if s.Link.File {
		now = s.At
	}
	p := SpendPoint{At: now, LowerBound: s.Summary.Spend.LowerBound}
	p.add(s.report.Nodes)
	if !s.observed.Fleet.PodsUnknown {
		p.Pending = &s.Summary.Pending
	}
	h.history.add(p)
}

// sampleUntil records a point each minute, also if nothing changes.
func (h *hub) sampleUntil(ctx context.Context, now func() time.Time) {
	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			h.sample(now())
		}
	}
}

func (c *Console) spend(r *http.Request) (any, error) {
	if c.Sources.Decisions != nil {
		return c.recording(func(recording *recorder.Recording) (any, error) { return c.recorded.spend(r.Context(), recording) })
	}
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	return newSpend(c.hub.history.points, false, 1), nil
}

func newSpend(points []SpendPoint, recorded bool, read float64) Spend {
	out := Spend{Recorded: recorded, Points: append([]SpendPoint{}, points...), Read: read}
	if len(points) > 0 {
		out.Since = &points[0].At
	}
	return out
}

// recordedSpend has the points of the part of the recording that has been read.
type recordedSpend struct {
	now func() time.Time

	mu sync.Mutex
	history
	// through is the time of the last pass that is among the points, bounded that of the last lower bound.
	through, bounded time.Time
	// prices are the prices of the last pass that had any.
	prices *fleet.Prices
}

// pricesOf returns those of a pass: a pass in which no NodePool may launch has none, and those of the last pass that had some stand for
// them.
func (s *recordedSpend) pricesOf(p *recorder.PassRecord) *fleet.Prices {
	if canLaunch(p.Objects.Pools) || s.prices == nil {
		return recordedPricesOf(p.Objects.Pools)
	}
	return s.prices
}

// spend reads on where the last request has stopped, for a limited time.
func (s *recordedSpend) spend(ctx context.Context, recording *recorder.Recording) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	first, last, ok := recording.Span()
	if !ok {
		return newSpend(nil, true, 1), nil
	}
	if s.through.After(last) || s.through.Before(first) { // another recording, or all of it has been overwritten
		s.points, s.through, s.bounded = nil, time.Time{}, time.Time{}
	}
	begin := last.Add(-spendMinutes * time.Minute)
	if begin.Before(first) {
		begin = first
	}
	from := begin
	if s.through.After(begin) {
		from = s.through.Add(time.Nanosecond)
	}
	deadline, stopped := s.now().Add(spendTime), false
	err := recording.Passes(recorder.Range{From: from}, func(p *recorder.PassRecord) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.now().After(deadline) {
			stopped = true
			return errEnough
		}
		s.pass(p, max(time.Minute, last.Sub(begin)/spendBounds))
		return nil
	})
	if err != nil && !stopped {
		return nil, err
	}
	if !stopped {
		s.through = last
	}
	read := 1.0
	if total := last.Sub(begin); stopped && total > 0 {
		read = min(0.99, max(0, s.through.Sub(begin).Seconds()/total.Seconds()))
	}
	return newSpend(s.points, true, read), nil
}

// pass adds what a pass saw. Bounds are computed so far apart at least.
func (s *recordedSpend) pass(p *recorder.PassRecord, apart time.Duration) {
	s.through, s.prices = p.Facts.Now, s.pricesOf(p)
	out := SpendPoint{At: p.Facts.Now}
	fleet := top.Observe(top.Objects{Now: p.Facts.Now, Nodes: p.Objects.Nodes, Claims: p.Objects.NodeClaims, Prices: s.prices})
	out.add(fleet.Nodes)
	pending := 0
	for _, pod := range p.Objects.Pods {
		if pod.Spec.NodeName == "" && pod.Status.Phase == corev1.PodPending {
			pending++
		}
	}
	out.Pending = &pending
	if n := len(s.points); n > 0 && s.points[n-1].At.Truncate(time.Minute).Equal(out.At.Truncate(time.Minute)) {
		out.LowerBound = s.points[n-1].LowerBound
	}
	if p.Facts.Now.Sub(s.bounded) >= apart {
		s.bounded = p.Facts.Now
		if least := bound.Of(snapshotOf(p)) + fleet.Unmanaged(); least > 0 {
			out.LowerBound = &least
		}
	}
	s.add(out)
}

func snapshotOf(p *recorder.PassRecord) *snapshot.Snapshot {
	return p.Excluded.Apply(cluster.BuildSnapshot(p.Objects, p.Facts))
}
