package destroy

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

// IsUnreadable reports whether deletions are paused only since the NodePool states a limit that cannot be read.
func IsUnreadable(err error) bool {
	var paused *Paused
	return errors.As(err, &paused) && paused.Pause.Since.IsZero()
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
	// charged is when a deletion was counted: one that fails and is tried again counts once an hour. pruned is the minute in which it was
	// last rid of older entries.
	charged map[chargeKey]time.Time
	pruned  int64
	// failing is since when the store has failed; zero while it works.
	failing time.Time
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
	if b.stored(err); err != nil {
		return fmt.Errorf("load the ledger of deletions, nothing is deleted until it is known: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ledger, b.loaded = ledger, true
	return nil
}

// stored notes whether the store has worked.
func (b *Budget) stored(err error) {
	b.mu.Lock()
	changes := b.failing.IsZero() != (err == nil)
	switch {
	case err == nil:
		b.failing = time.Time{}
	case b.failing.IsZero():
		b.failing = b.now()
	}
	b.mu.Unlock()
	if changes {
		b.changed()
	}
}

// Ready writes what the store does not have yet. The error is why the ledger cannot be read or written: until it can, nothing is deleted
// for reasons with a limit. Since is when this began.
func (b *Budget) Ready(ctx context.Context) (since time.Time, err error) {
	if err = b.load(ctx); err == nil {
		b.mu.Lock()
		version := b.version
		b.mu.Unlock()
		err = b.flush(ctx, version)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failing, err
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
	save := b.flush(ctx, version)
	if err != nil { // a pause holds, whether it is saved or not: Ready saves it
		b.changed()
	}
	if save != nil {
		return errors.Join(err, fmt.Errorf("record a deletion before it happens: %w", save))
	}
	return err
}

// enter enters a deletion, or the pause that it causes, into the ledger in memory. The version is 0 if the ledger has not changed.
func (b *Budget) enter(c charge, fleet Fleet, pools map[string]*karpv1.NodePool) (version int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.pausedFor(c.pool, pools); err != nil {
		return 0, err
	}
	now := b.now()
	if b.counted(c, now) {
		return b.version, nil // flush saves it, if that has failed
	}
	if scope, p, is := b.ledger.exceeded(c, b.limitsOf(c, pools[c.pool]), fleet, now); is {
		if c.patient && p.minute {
			return 0, &Paused{scope, Pause{Message: p.Message + ": the rest follows"}}
		}
		annotations := map[string]string{}
		for name, pool := range pools {
			annotations[name] = pool.Annotations[karpv1.AnnotationResumeDeletions]
		}
		b.ledger.pause(scope, p, annotations)
		err = &Paused{scope, p}
	} else {
		b.ledger.add(c, fleet, now)
		if c.id != "" {
			b.charged[chargeKey{c.id, c.kind}] = now
		}
	}
	b.version++
	return b.version, err
}

// chargeKey identifies what is deleted, and the limit that it counts for.
type chargeKey struct {
	id   string
	kind Kind
}

// counted reports whether the deletion was counted within the last hour.
func (b *Budget) counted(c charge, now time.Time) bool {
	if minute := now.Unix() / 60; b.charged == nil || minute != b.pruned {
		if b.charged == nil {
			b.charged = map[chargeKey]time.Time{}
		}
		maps.DeleteFunc(b.charged, func(_ chargeKey, at time.Time) bool { return now.Sub(at) >= window || at.Sub(now) >= window })
		b.pruned = minute
	}
	_, found := b.charged[chargeKey{c.id, c.kind}]
	return found
}

// pausedFor returns why deletions of a NodePool are paused; nil if they are not. A pause is over with its NodePool: nobody could resume.
func (b *Budget) pausedFor(pool string, pools map[string]*karpv1.NodePool) error {
	if scope, p, is := b.ledger.paused(pool); is && (scope == Cluster || pools[scope] != nil) {
		return &Paused{scope, p}
	}
	return b.unreadable(pools[pool])
}

// limitsOf are the limits for a deletion, by scope.
func (b *Budget) limitsOf(c charge, pool *karpv1.NodePool) map[string]Limit {
	out := map[string]Limit{}
	if limit, found := b.limits[c.kind]; found {
		out[Cluster] = limit
		if pool != nil {
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
	err := b.store.Save(ctx, ledger)
	if b.stored(err); err != nil {
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
	return b.pausedFor(pool, pools)
}

// DeletedThisMinute counts the nodes of a NodePool that were deleted in this minute of the clock for reasons of a kind, also by the process
// before this one.
func (b *Budget) DeletedThisMinute(ctx context.Context, pool string, kind Kind) (int, error) {
	if err := b.load(ctx); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, minute, _ := b.ledger.with(charge{kind: kind}, pool, b.now())
	return minute.Nodes, nil
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
		version, b.charged = b.version, nil
	}
	b.mu.Unlock()
	if !resumed {
		return false, nil
	}
	defer b.changed()
	if err := b.flush(ctx, version); err != nil {
		return true, fmt.Errorf("record that deletions are resumed: %w", err)
	}
	return true, nil
}

// Forget removes the pause of a NodePool that was deleted.
func (b *Budget) Forget(ctx context.Context, pool string) error {
	if err := b.load(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	_, paused := b.ledger.Pauses[pool]
	if paused {
		delete(b.ledger.Pauses, pool)
		b.version++
	}
	version := b.version
	b.mu.Unlock()
	if !paused {
		return nil
	}
	return b.flush(ctx, version)
}
