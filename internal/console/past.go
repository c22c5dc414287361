package console

import (
	"errors"
	"net/http"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/recorder"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// errEnough ends a walk through a recording.
var errEnough = errors.New("enough")

// Past is the cluster as a controller saw it.
type Past struct {
	// Asked is the time that was asked for, Seen that of the last pass before it. Pass is its ID.
	Asked time.Time `json:"asked"`
	Seen  time.Time `json:"seen"`
	Pass  string    `json:"pass"`
	// Fleet has no forecast: what the engine decided is among the decisions.
	Fleet Fleet `json:"fleet"`
	// Pending has kube-scheduler's reasons.
	Pending Pending `json:"pending"`
}

func (c *Console) past(r *http.Request) (any, error) {
	asked := r.URL.Query().Get("at")
	at, err := time.Parse(time.RFC3339, asked)
	if err != nil {
		return nil, invalid("at", `"`+asked+`" is not a time such as 2026-11-02T03:12:00Z`)
	}
	end, err := c.reading.begin(r.Context())
	if err != nil {
		return nil, err
	}
	defer end()
	return c.recording(func(recording *recorder.Recording) (any, error) {
		pass, err := recording.Pass(at.Format(time.RFC3339Nano))
		if err != nil {
			return nil, &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Message: err.Error()}
		}
		c.recorded.mu.Lock()
		prices := c.recorded.pricesOf(pass)
		c.recorded.mu.Unlock()
		return pastOf(pass, prices, at), nil
	})
}

func pastOf(p *recorder.PassRecord, prices *top.PriceList, asked time.Time) Past {
	fleet := top.Observe(top.Objects{
		Now: p.Facts.Now, Nodes: p.Objects.Nodes, Claims: p.Objects.NodeClaims, Pods: top.PodsOf(p.Objects.Pods),
		Prices: prices,
	})
	s := newState(0, top.Observed{Fleet: fleet, Prices: prices.From, Link: top.Link{File: true}}, nil)
	return Past{Asked: asked, Seen: p.Facts.Now, Pass: p.ID, Fleet: s.Fleet, Pending: s.pending()}
}
