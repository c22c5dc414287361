package ec2

import (
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

// instances are the region's EC2 instances.
type instances struct {
	byID     map[string]*slot
	order    []*slot // by launch; an instance that was forgotten leaves an empty slot for a while
	due      transitions
	cancel   func() bool // of the timer for the first transition
	timerAt  time.Time
	closed   bool // no timer any more
	watchers map[*watcher]struct{}
	consoles map[string]string
	publish  func(Event) // nil = nobody listens
}

func newInstances() instances {
	return instances{
		byID: map[string]*slot{}, watchers: map[*watcher]struct{}{}, consoles: map[string]string{},
	}
}

// instanceRecord is one version of an instance; it is never modified once others can see it.
type instanceRecord struct {
	Instance
	order       *launchPlan
	place       string // grows with each launch, so that lists are in that order
	reservation string
	visible     time.Time // when calls begin to know it
	token       string    // client token of the launch
	index       int       // in the reservation
	nics        []nic
	volumes     []string  // of the launch, in the order of its disks
	joined      []*volume // attached since
	publicIP    string
	partition   int // of the placement group; 0 = none
	spotRequest string
	endedBy     string    // why it was stopped or terminated
	endedAt     time.Time // when that was requested
	// failing is since when its checks fail; zero for those that pass. planned are its events.
	failing [checks]time.Time
	planned []scheduledEvent

	document *document
}

// slot is the place of an instance in the list: it holds the present record.
type slot struct{ record *instanceRecord }

// get returns the present record of an instance, nil when there is none.
func (f *instances) get(id string) *instanceRecord {
	if s := f.byID[id]; s != nil {
		return s.record
	}
	return nil
}

// known returns the present record of an instance of which word has gone round by now, nil when there is none.
func (f *instances) known(id string, now time.Time) *instanceRecord {
	if r := f.get(id); r != nil && !now.Before(r.visible) {
		return r
	}
	return nil
}

// add puts a new instance at the end of the list.
func (f *instances) add(r *instanceRecord) {
	s := &slot{r}
	f.byID[r.ID] = s
	f.order = append(f.order, s)
}

// transition is a change that will happen by itself.
type transition struct {
	at     time.Time
	serial uint64 // order among equals
	id     string
	from   string // the change is void when the instance is in another state by then
	to     string // empty = the instance is forgotten
}

type transitions []transition

func (t transitions) Len() int { return len(t) }
func (t transitions) Less(i, j int) bool {
	if !t[i].at.Equal(t[j].at) {
		return t[i].at.Before(t[j].at)
	}
	return t[i].serial < t[j].serial
}
func (t transitions) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *transitions) Push(x any)   { *t = append(*t, x.(transition)) }
func (t *transitions) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// watcher is one reader of events: a queue without bound and the goroutine that empties it.
type watcher struct {
	mu     sync.Mutex
	queue  []InstanceEvent
	signal chan struct{} // holds a token while the queue may be non-empty
}

func (w *watcher) add(events ...InstanceEvent) {
	w.mu.Lock()
	w.queue = append(w.queue, events...)
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *watcher) take() []InstanceEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.queue
	w.queue = nil
	return taken
}

// run delivers until ctx is done, then closes out.
func (w *watcher) run(ctx context.Context, out chan<- InstanceEvent) {
	defer close(out)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		}
		for _, event := range w.take() {
			select {
			case out <- event:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Watch reports every change of an instance's state, beginning with all instances as they are. The channel is closed
// when ctx is done; a slow reader loses nothing.
func (e *EC2) Watch(ctx context.Context) <-chan InstanceEvent {
	w := &watcher{signal: make(chan struct{}, 1)}
	e.applyDueTransitions()
	e.mu.Lock()
	for _, i := range e.fleet.list() {
		w.add(InstanceEvent{Instance: i.clone()})
	}
	e.fleet.watchers[w] = struct{}{}
	e.mu.Unlock()
	out := make(chan InstanceEvent)
	go func() {
		w.run(ctx, out)
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.fleet.watchers, w)
	}()
	return out
}

// Instances returns all instances, terminated ones included, in the order of their launch.
func (e *EC2) Instances() []Instance {
	e.applyDueTransitions()
	e.mu.RLock()
	records := e.fleet.list()
	e.mu.RUnlock()
	out := make([]Instance, len(records))
	for i, r := range records {
		out[i] = r.clone()
	}
	return out
}

// Instance returns the instance of that ID, and false when there is none, or when it was terminated too long ago.
func (e *EC2) Instance(id string) (Instance, bool) {
	e.applyDueTransitions()
	e.mu.RLock()
	r := e.fleet.get(id)
	e.mu.RUnlock()
	if r == nil {
		return Instance{}, false
	}
	return r.clone(), true
}

// list returns the present records in the order of their launch.
func (f *instances) list() []*instanceRecord {
	out := make([]*instanceRecord, 0, len(f.byID))
	for _, s := range f.order {
		if s.record != nil {
			out = append(out, s.record)
		}
	}
	return out
}

// forget removes an instance.
func (f *instances) forget(id string) {
	f.byID[id].record = nil
	delete(f.byID, id)
	delete(f.consoles, id)
	if len(f.order) > 2*len(f.byID)+64 {
		f.order = slices.DeleteFunc(f.order, func(s *slot) bool { return s.record == nil })
	}
}

// put replaces the record of an instance by an edited copy and returns it.
func (f *instances) put(old *instanceRecord, edit func(*instanceRecord)) *instanceRecord {
	changed := *old
	changed.document = &document{}
	edit(&changed)
	f.byID[old.ID].record = &changed
	return &changed
}

// applyDueTransitions makes everything happen that is due, in order and at its own time, and returns the present.
func (e *EC2) applyDueTransitions() time.Time {
	now := e.cfg.Clock.Now()
	e.mu.RLock()
	idle := (len(e.fleet.due) == 0 || e.fleet.due[0].at.After(now)) && len(e.dueReservations(now)) == 0
	e.mu.RUnlock()
	if idle {
		return now
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settleReservations(now)
	for len(e.fleet.due) > 0 && !e.fleet.due[0].at.After(now) {
		e.applyTransition(heap.Pop(&e.fleet.due).(transition))
	}
	e.setTimer()
	return now
}

// applyTransition performs one transition. The lock must be held.
func (e *EC2) applyTransition(t transition) {
	r := e.fleet.get(t.id)
	if r == nil || r.State != t.from {
		return
	}
	if t.to == "" {
		e.fleet.forget(t.id)
		return
	}
	if t.to == ShuttingDown && r.Lifecycle == spotLifecycle { // reclaimed by EC2, not requested by the user
		r = e.fleet.put(r, func(r *instanceRecord) { r.endedBy, r.endedAt = spotTermination, t.at })
	}
	e.enterState(r, t.to, t.at)
}

// enterState puts an instance into a state at a time, plans what follows from it and reports the watchers. The lock must
// be held; the caller arms the timer.
func (e *EC2) enterState(r *instanceRecord, state string, at time.Time) *instanceRecord {
	r = e.fleet.put(r, func(r *instanceRecord) { r.State, r.StateChangedAt = state, at })
	switch state {
	case Pending:
		e.scheduleTransition(transition{at: at.Add(e.cfg.Timing.Boot), id: r.ID, from: Pending, to: Running})
	case ShuttingDown:
		e.scheduleTransition(transition{at: at.Add(e.cfg.Timing.Shutdown), id: r.ID, from: ShuttingDown, to: Terminated})
	case Stopping:
		e.scheduleTransition(transition{at: at.Add(e.cfg.Timing.Shutdown), id: r.ID, from: Stopping, to: Stopped})
	case Stopped:
		r = e.leave(r)
	case Terminated:
		r = e.leave(r)
		e.network.detach(r)
		e.detachDisks(r)
		e.scheduleTransition(transition{at: at.Add(e.cfg.Timing.TerminatedKept), id: r.ID, from: Terminated})
	}
	e.fleet.notify(r)
	e.publish(stateChanged(r, at))
	return r
}

// notify reports an instance to all that watch. The lock must be held.
func (in *instances) notify(r *instanceRecord) {
	event := InstanceEvent{Instance: r.clone()}
	for w := range in.watchers {
		w.add(event)
	}
}

func (e *EC2) scheduleTransition(t transition) {
	e.counter++
	t.serial = e.counter
	heap.Push(&e.fleet.due, t)
}

// setTimer sets the timer to the first transition. The lock must be held.
func (e *EC2) setTimer() {
	if len(e.fleet.due) == 0 || e.fleet.closed {
		return
	}
	first := e.fleet.due[0].at
	if e.fleet.cancel != nil {
		if e.fleet.timerAt.Equal(first) {
			return
		}
		e.fleet.cancel()
	}
	e.fleet.timerAt = first
	e.fleet.cancel = e.cfg.Clock.AfterFunc(first.Sub(e.cfg.Clock.Now()), e.onTimer)
}

// onTimer is the timer's call. A timer that was replaced while it went off finds nothing to do.
func (e *EC2) onTimer() {
	e.mu.Lock()
	e.fleet.cancel = nil
	e.mu.Unlock()
	e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setTimer()
}

// Close stops the timer: from now on things happen only when someone looks.
func (e *EC2) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fleet.closed = true
	if e.fleet.cancel != nil {
		e.fleet.cancel()
	}
}

// AppendConsole adds to the console output of an instance.
func (e *EC2) AppendConsole(id, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fleet.append(id, text)
}
