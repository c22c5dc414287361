package destroy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Store keeps the ledger.
type Store interface {
	// Load returns what was saved last; the zero value if nothing was.
	Load(ctx context.Context) (Ledger, error)
	Save(ctx context.Context, l Ledger) error
}

// Paused is the error of a deletion while deletions are paused.
type Paused struct {
	// Scope is a NodePool, or Cluster.
	Scope string
	Pause Pause
}

func (e *Paused) Error() string {
	if e.Pause.Since.IsZero() {
		return fmt.Sprintf("deletions are paused in %s: %s", scopeName(e.Scope), e.Pause.Message)
	}
	return fmt.Sprintf("deletions are paused in %s since %s: %s; run `%s` once the cause is known",
		scopeName(e.Scope), e.Pause.Since.UTC().Format(time.RFC3339), e.Pause.Message, ResumeCommand(e.Scope))
}

// ResumeCommand is the command after which deletions resume.
func ResumeCommand(scope string) string {
	if scope == Cluster {
		return "dovetail resume --all"
	}
	return "dovetail resume " + scope
}

// IsPaused reports whether deletions are paused.
func IsPaused(err error) bool {
	var paused *Paused
	return errors.As(err, &paused)
}

// Budget is the room for deletions. It is safe for concurrent use.
type Budget struct {
	limits Limits
	store  Store
	fleet  func(ctx context.Context) (Fleet, map[string]*karpv1.NodePool, error)
	now    func() time.Time

	// loading is held while the ledger is loaded, saving while it is saved.
	loading, saving sync.Mutex
	mu              sync.Mutex
	loaded          bool
	ledger          Ledger
	// version counts changes of the ledger, saved is the last that the store has.
	version, saved int
	// changed is called, without a lock, after a pause begins or is over.
	changed func()
}

// BudgetConfig is what a Budget needs.
type BudgetConfig struct {
	Limits Limits
	Store  Store
	// Fleet returns the capacity by NodePool, with that of nodes that are not being deleted, and the NodePools by name.
	Fleet func(ctx context.Context) (Fleet, map[string]*karpv1.NodePool, error)
	// Changed is called after a pause begins or is over.
	Changed func()
	Now     func() time.Time
}

// NewBudget returns a Budget that loads its ledger when it is first needed.
func NewBudget(c BudgetConfig) *Budget {
	if c.Changed == nil {
		c.Changed = func() {}
	}
	return &Budget{limits: c.Limits, store: c.Store, fleet: c.Fleet, now: c.Now, changed: c.Changed}
}

// load loads the ledger once.
func (b *Budget) load(ctx context.Context) error {
	b.loading.Lock()
	defer b.loading.Unlock()
	if b.loaded {
		return nil
	}
	ledger, err := b.store.Load(ctx)
	if err != nil {
		return fmt.Errorf("load the ledger of deletions, nothing is deleted until it is known: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger, b.loaded = ledger, true
	return nil
}

// take takes the room for a deletion, before it happens. The error is a Paused if deletions are paused, or are paused now since this one
// would exceed a limit.
func (b *Budget) take(ctx context.Context, c charge) error {
	if !c.kind.Limited() || c.size == (Size{}) {
		return nil // a claim that never had a node holds no capacity
	}
	if err := b.load(ctx); err != nil {
		return err
	}
	fleet, pools, err := b.fleet(ctx)
	if err != nil {
		return fmt.Errorf("read how much capacity there is: %w", err)
	}
	version, err := b.enter(c, fleet, pools)
	if version == 0 {
		return err
	}
	if save := b.flush(ctx, version); save != nil {
		return errors.Join(err, fmt.Errorf("record a deletion before it happens: %w", save))
	}
	if err != nil {
		b.changed()
	}
	return err
}

// enter enters a deletion, or the pause that it causes, into the ledger in memory. The version is 0 if the ledger has not changed.
func (b *Budget) enter(c charge, fleet Fleet, pools map[string]*karpv1.NodePool) (version int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if scope, p, is := b.ledger.paused(c.pool); is {
		return 0, &Paused{scope, p}
	}
	if err := b.unreadable(pools[c.pool]); err != nil {
		return 0, err
	}
	now := b.now()
	if scope, p, is := b.ledger.exceeded(c, b.limitsOf(c, pools[c.pool]), fleet, now); is {
		annotations := map[string]string{}
		for name, pool := range pools {
			annotations[name] = pool.Annotations[karpv1.AnnotationResumeDeletions]
		}
		b.ledger.pause(scope, p, annotations)
		err = &Paused{scope, p}
	} else {
		b.ledger.add(c, fleet, now)
	}
	b.version++
	return b.version, err
}

// limitsOf are the limits for a deletion, by scope.
func (b *Budget) limitsOf(c charge, pool *karpv1.NodePool) map[string]Limit {
	out := map[string]Limit{}
	if limit, found := b.limits[c.kind]; found {
		out[Cluster] = limit
		if c.pool != Cluster {
			out[c.pool] = limit
		}
	}
	if share, stated, err := ShareOf(pool); err == nil && stated {
		out[c.pool] = shared(b.limits[c.kind], share)
	}
	return out
}

// ShareOf is the share of its capacity that a NodePool allows to delete in an hour; stated is false if it states none. The pool may be nil.
func ShareOf(pool *karpv1.NodePool) (share float64, stated bool, err error) {
	if pool == nil {
		return 0, false, nil
	}
	text, stated := pool.Annotations[karpv1.AnnotationBlastRadius]
	if !stated {
		return 0, false, nil
	}
	if share, err = ParseShare(text); err != nil {
		return 0, true, fmt.Errorf("metadata.annotations[%s] of NodePool %q: %w", karpv1.AnnotationBlastRadius, pool.Name, err)
	}
	return share, true, nil
}

// flush saves the ledger if the store does not have the version. Callers that wait for one save are served by the next.
func (b *Budget) flush(ctx context.Context, version int) error {
	b.saving.Lock()
	defer b.saving.Unlock()
	b.mu.Lock()
	current, ledger, done := b.version, b.ledger.clone(), b.saved >= version
	b.mu.Unlock()
	if done {
		return nil
	}
	if err := b.store.Save(ctx, ledger); err != nil {
		return err
	}
	b.mu.Lock()
	b.saved = current
	b.mu.Unlock()
	return nil
}

// Paused returns why deletions of a NodePool are paused; nil if they are not. It is a Paused, or an error of reading the ledger.
func (b *Budget) Paused(ctx context.Context, pool string) error {
	if err := b.load(ctx); err != nil {
		return err
	}
	_, pools, err := b.fleet(ctx)
	if err != nil {
		return fmt.Errorf("read the limits of NodePools: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if scope, p, is := b.ledger.paused(pool); is {
		return &Paused{scope, p}
	}
	return b.unreadable(pools[pool])
}

// unreadable is a Paused if a NodePool states a limit that cannot be read: nothing is deleted of it until it can.
func (b *Budget) unreadable(pool *karpv1.NodePool) error {
	if _, _, err := ShareOf(pool); err != nil {
		return &Paused{pool.Name, Pause{Message: err.Error()}}
	}
	return nil
}

// Resume removes the pause of a NodePool and of the cluster if a person has changed the pool's annotation for it since the pause began.
func (b *Budget) Resume(ctx context.Context, pool *karpv1.NodePool) (resumed bool, err error) {
	if err := b.load(ctx); err != nil {
		return false, err
	}
	b.mu.Lock()
	version := 0
	if resumed = b.ledger.resume(pool.Name, pool.Annotations[karpv1.AnnotationResumeDeletions]); resumed {
		b.version++
		version = b.version
	}
	b.mu.Unlock()
	if !resumed {
		return false, nil
	}
	if err := b.flush(ctx, version); err != nil {
		return false, fmt.Errorf("record that deletions are resumed: %w", err)
	}
	b.changed()
	return true, nil
}
