package console

import (
	"errors"
	"net/http"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/fleet"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// errEnough stops a walk through a recording.
var errEnough = errors.New("enough")

// Past is the cluster as a controller saw it.
type Past struct {
	// Asked is the time that was requested, Seen that of the last pass before it. Pass is its ID.
	Asked time.Time `json:"asked"`
	Seen  time.Time `json:"seen"`
	Pass  string    `json:"pass"`
	// Fleet has no forecast: what the engine decided is among the decisions.
	Fleet Fleet `json:"fleet"`
	// Pending has kube-scheduler's reasons.
	Pending Pending `json:"pending"`
}

func (c *Console) past(r *http.Request) (any, error) {
	at, err := timeOf(r)
	if err != nil {
		return nil, err
	}
	return c.passAt(r.Context(), at, func(p *recorder.PassRecord) (any, error) {
		c.recorded.mu.Lock()
		prices := c.recorded.pricesOf(p)
		c.recorded.mu.Unlock()
		return pastOf(p, prices, at), nil
	})
}

func pastOf(p *recorder.PassRecord, prices *fleet.Prices, asked time.Time) Past {
	s := newState(0, top.Observed{Fleet: observe(p, prices), Prices: prices.From, Link: top.Link{File: true}}, nil)
	return Past{Asked: asked, Seen: p.Facts.Now, Pass: p.ID, Fleet: s.Fleet, Pending: s.pending(0, "")}
}
