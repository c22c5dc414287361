package console

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/inspect/nodereport"
)

const (
	// viewAge sets how old the View of an explanation may be in a cluster that changes all the time: a person clicks through several nodes in
	// that time. In a large cluster it is viewShare times as long as reading and planning took: a page that is left open then takes at
	// most a twentieth of a core.
	viewAge   = 5 * time.Second
	viewShare = 20
	// unwatchedAge sets how old it may be if nothing that is watched has changed: budgets and volumes are not watched.
	unwatchedAge = 30 * time.Second
	// maxExplained bounds how many explanations are kept of a View, each some 10 kB: a person does not look at more meanwhile, and a program
	// that requests all nodes gets each computed.
	maxExplained = 200
	// diagnosisAge sets how old the findings of the doctor may be. Its checks read the whole cluster and the account.
	diagnosisAge = time.Minute
)

// planned is a View with what the engine decides about all of its nodes, which is computed once it is needed.
type planned struct {
	*inspect.View
	decisions *nodereport.Decisions
}

func (p *planned) decide() *nodereport.Decisions {
	if p.decisions == nil {
		p.decisions = nodereport.Decide(p.View)
	}
	return p.decisions
}

// viewCache has the last View and what was explained of it. One request reads at a time, and one explains; the others wait and share.
type viewCache struct {
	read     func(context.Context) (*inspect.View, error)
	revision func() int
	now      func() time.Time

	// explaining is held before mu.
	explaining sync.Mutex
	// busy is true while something is explained of view.
	busy bool

	mu sync.Mutex
	// view is nil before the first, and was read at the time at; took is what it and its explanations have cost.
	view *planned
	at   time.Time
	took time.Duration
	// retry is the time when a View is read again after one that could not be.
	retry    time.Time
	seen     int
	explains map[string]any
}

// explain is an explanation of the cluster under a key: that of the last View if it is fresh, else a new one. Explanations are
// made one at a time, since each may take all of a core for a second.
func (c *viewCache) explain(ctx context.Context, key string, explain func(*planned) (any, error)) (any, error) {
	c.explaining.Lock()
	defer c.explaining.Unlock()
	view, found, err := c.begin(ctx, key)
	if err != nil || found != nil {
		return found, err
	}
	defer c.end()
	began := c.now()
	found, err = explain(view)
	if notFound(err) {
		newer, failed := c.newer(ctx, c.now().Sub(began))
		if failed != nil {
			return nil, failed
		}
		if newer != nil {
			view = newer
			found, err = explain(view)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view != view {
		return found, err // it has been forgotten meanwhile
	}
	c.took += c.now().Sub(began)
	if err == nil {
		if len(c.explains) >= maxExplained {
			clear(c.explains)
		}
		c.explains[key] = found
	}
	return found, err
}

// begin is a fresh View to explain something of, or what has been explained of it under the key.
func (c *viewCache) begin(ctx context.Context, key string) (view *planned, found any, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if err := c.refresh(ctx); err != nil {
		return nil, nil, err
	}
	if found, known := c.explains[key]; known {
		return nil, found, nil
	}
	c.busy = true
	return c.view, nil, nil
}

func (c *viewCache) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
}

// newer is another View if the cluster has changed: what was not found may be newer than the last one. It is nil if the cluster has not,
// or if the last View is younger than what it has cost.
func (c *viewCache) newer(ctx context.Context, took time.Duration) (*planned, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revision() == c.seen || c.now().Sub(c.at) < c.took+took {
		return nil, nil
	}
	c.view = nil
	if err := c.refresh(ctx); err != nil {
		return nil, err
	}
	return c.view, nil
}

// current is a fresh View. It waits for no explanation: while one is made, its View is fresh enough.
func (c *viewCache) current(ctx context.Context) (*inspect.View, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.busy && c.view != nil {
		return c.view.View, nil
	}
	if err := c.refresh(ctx); err != nil {
		return nil, err
	}
	return c.view.View, nil
}

// forget drops the View, and what was explained of it.
func (c *viewCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view, c.explains = nil, nil
}

// refresh needs the lock. While the API server does not answer, the last View stays, as the last state of the fleet does.
func (c *viewCache) refresh(ctx context.Context) error {
	revision, age := c.revision(), c.now().Sub(c.at)
	fresh := max(viewAge, viewShare*c.took)
	if c.view != nil && (age < fresh || revision == c.seen && age < max(unwatchedAge, fresh) || c.now().Before(c.retry)) {
		return nil
	}
	if c.view != nil {
		c.view = &planned{View: c.view.View} // its decisions are larger than a View: not those of two at a time
	}
	began := c.now()
	view, err := c.read(ctx)
	if err != nil && c.view != nil && ctx.Err() == nil && problemOf(err).Code == CodeAway {
		c.retry = c.now().Add(viewAge)
		return nil
	}
	if err != nil {
		return err
	}
	c.view, c.at, c.seen, c.explains = &planned{View: view}, c.now(), revision, map[string]any{}
	c.took = c.at.Sub(began)
	return nil
}

// Diagnosis describes what the doctor finds.
type Diagnosis struct {
	At time.Time `json:"at"`
	doctor.Report
}

// doctorCache has the last findings.
type doctorCache struct {
	run func(context.Context) (doctor.Report, error)
	now func() time.Time

	mu   sync.Mutex
	last *Diagnosis
	// latest is last, for readers that do not wait for the next one.
	latest atomic.Pointer[Diagnosis]
}

func (c *doctorCache) get(ctx context.Context, fresh bool) (*Diagnosis, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.last != nil && !fresh && c.now().Sub(c.last.At) < diagnosisAge {
		return c.last, nil
	}
	found, err := c.run(ctx)
	if err != nil {
		return nil, err
	}
	c.last = &Diagnosis{At: c.now(), Report: found}
	c.latest.Store(c.last)
	return c.last, nil
}
