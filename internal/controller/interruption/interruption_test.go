package interruption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

// queue is one in memory that behaves as SQS does: what was received is hidden for a time, and comes again unless it is
// deleted.
type queue struct {
	now func() time.Time
	// hidden is for how long; 20 s if it is not set.
	hidden time.Duration

	mu       sync.Mutex
	messages []queued
	// next is the first that may be visible: messages are received in the order in which they were sent.
	next int
	left int
}

type queued struct {
	cloudprovider.Message
	visible time.Time
	gone    bool
}

func (q *queue) send(messages ...cloudprovider.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range messages {
		m.ID = fmt.Sprint(len(q.messages))
		m.Receipt = m.ID
		q.messages = append(q.messages, queued{Message: m})
	}
	q.left += len(messages)
}

func (q *queue) Name() string { return "interruptions" }

func (q *queue) Receive(ctx context.Context, wait time.Duration) ([]cloudprovider.Message, error) {
	if out := q.take(); len(out) > 0 {
		return out, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(wait):
	}
	return q.take(), nil
}

func (q *queue) take() []cloudprovider.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for q.next < len(q.messages) && q.messages[q.next].gone {
		q.next++
	}
	var out []cloudprovider.Message
	for i := q.next; i < len(q.messages) && len(out) < maxBatch; i++ {
		if m := &q.messages[i]; !m.gone && !m.visible.After(now) {
			m.visible = now.Add(cmp.Or(q.hidden, 20*time.Second))
			out = append(out, m.Message)
		}
	}
	return out
}

func (q *queue) Delete(_ context.Context, messages []cloudprovider.Message) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range messages {
		var i int
		if _, err := fmt.Sscan(m.Receipt, &i); err != nil {
			return 0, err
		}
		if !q.messages[i].gone {
			q.messages[i].gone = true
			q.left--
		}
	}
	return len(messages), nil
}

func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.left
}

func message(kind cloudprovider.InterruptionKind, ids ...string) cloudprovider.Message {
	return cloudprovider.Message{Kind: kind, InstanceIDs: ids, At: controllertest.Start, Sent: controllertest.Start}
}

// fakeOfferings remembers what it is given.
type fakeOfferings struct {
	mu   sync.Mutex
	told []string
}

func (m *fakeOfferings) SpotInterrupted(typ, zone string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, typ+" in "+zone)
}

func (m *fakeOfferings) ReservationInterrupted(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, id)
}

// controllers are a controller's, made anew.
type controllers struct {
	queue   *Queue
	metrics *metrics.Metrics
	market  *fakeOfferings
}

func controller(t testing.TB, c client.Client, source source, now func() time.Time) controllers {
	t.Helper()
	metrics, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	heard, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	log, events := slog.New(slog.DiscardHandler), event.NewRecorder(&record.FakeRecorder{}, now)
	m := &fakeOfferings{}
	return controllers{
		queue: &Queue{
			Source:    source,
			Actor:     &Actor{Client: c, Guard: destroytest.Guard(c, now), Live: c, Cloud: m, Events: events, Metrics: metrics, Log: log, Now: now},
			Condition: &QueueCondition{Client: c, Events: events, Log: log, Now: now}, Metrics: heard, Log: log, Now: now,
		},
		metrics: metrics, market: m,
	}
}

// killableQueue is a queue as a process reaches it, which finishes with the process.
type killableQueue struct {
	*queue
	alive func(ctx context.Context) error
}

func (m killableQueue) Receive(ctx context.Context, _ time.Duration) ([]cloudprovider.Message, error) {
	if err := m.alive(ctx); err != nil {
		return nil, err
	}
	return m.take(), nil
}

func (m killableQueue) Delete(ctx context.Context, messages []cloudprovider.Message) (int, error) {
	if err := m.alive(ctx); err != nil {
		return 0, err
	}
	return m.queue.Delete(ctx, messages)
}

// The controller is killed, or loses its connection, at each of its writes: every message about a claim that lives is
// acted upon, and every claim is terminated once.
func TestKilledAtEveryWrite(t *testing.T) {
	var q *queue
	var mu sync.Mutex
	var deletions map[string]int
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object {
			q, deletions = nil, map[string]int{}
			objects := []client.Object{controllertest.Pool("general")}
			for _, name := range []string{"a", "b", "c", "d"} {
				objects = append(objects, controllertest.Claim(name, controllertest.Initialized), controllertest.ReadyNode(name))
			}
			return objects
		},
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			if q == nil {
				q = &queue{now: w.Now, hidden: 10 * time.Second} // a scenario finishes when nothing is written for 15 s
				q.send(
					message(cloudprovider.SpotInterrupted, "i-a"),
					message(cloudprovider.InstanceStopped, "i-a"),
					message(cloudprovider.ScheduledChange, "i-b", "i-c"),
					message(
						cloudprovider.RebalanceRecommended,
						"i-d",
					),
					message(cloudprovider.SpotInterrupted, "i-nobodys"),
					message(cloudprovider.NoInterruption),
					cloudprovider.Message{Kind: cloudprovider.NoInterruption, Unreadable: errors.New("no JSON")},
				)
			}
			counting := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					err := c.Delete(ctx, o, opts...)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						deletions[o.GetName()]++
					}
					return err
				},
			})
			source := killableQueue{q, func(ctx context.Context) error { return c.List(ctx, &karpv1.NodePoolList{}) }}
			p := controller(t, counting, source, w.Now)
			round := func(ctx context.Context) error {
				_, err := p.queue.Round(ctx, 0)
				return err
			}
			return []kill.Actor{{Reconciler: reconcile.Reconciler(kill.Pass(round)), Kind: &karpv1.NodePoolList{}}}
		},
		Check: func(t *testing.T, w *kill.World) {
			if n := q.waiting(); n != 0 {
				t.Errorf("%d messages are left", n)
			}
			for name, ends := range map[string]bool{"a": true, "b": true, "c": true, "d": false} {
				claim := &karpv1.NodeClaim{}
				if err := w.API.Get(t.Context(), client.ObjectKey{Name: name}, claim); err != nil {
					t.Fatal(err)
				}
				if ended := claim.DeletionTimestamp != nil; ended != ends || deletions[name] > 1 {
					t.Errorf("claim %s: ended %v, %d deletions were answered", name, ended, deletions[name])
				}
				// Of two messages about one claim the first to be handled gives the reason.
				if condition.Clear(claim, karpv1.ConditionDisruptionReason, kill.Start) {
					if err := w.API.Status().Update(t.Context(), claim); err != nil {
						t.Fatal(err)
					}
				}
			}
		},
	})
}

func TestOfferingsAreMarkedUnavailable(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Initialized, func(c *karpv1.NodeClaim) {
		c.Labels["node.kubernetes.io/instance-type"], c.Labels["topology.kubernetes.io/zone"] = "m5.large", "us-east-1a"
		c.Labels[awsv1.LabelReservationID] = "cr-1"
	}), controllertest.Claim("b", controllertest.Initialized))
	q := &queue{now: f.Now}
	p := controller(t, f.API, q, f.Now)
	for _, tt := range []struct {
		kind cloudprovider.InterruptionKind
		want string
	}{{cloudprovider.RebalanceRecommended, "[]"}, {cloudprovider.InstanceTerminated, "[]"}, {
		cloudprovider.SpotInterrupted,
		"[m5.large in us-east-1a]",
	}, {cloudprovider.ReservationInterrupted, "[cr-1]"}} {
		p.market.told = nil
		q.send(message(tt.kind, "i-a", "i-b"))
		if _, err := p.queue.Round(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(p.market.told); got != tt.want {
			t.Errorf("%s: told %s, want %s", tt.kind, got, tt.want)
		}
	}
}

// Somebody else writes to the claim all the while: the deletion is for what is there in the end.
func TestContention(t *testing.T) {
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Initialized))
	others := 0
	c := interceptor.NewClient(f.API, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if others++; others < maxAttempts {
				claim := f.Claim("a")
				metav1.SetMetaDataAnnotation(&claim.ObjectMeta, "note", fmt.Sprint(others))
				f.Do(f.API.Update(ctx, claim))
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	q := &queue{now: f.Now}
	q.send(message(cloudprovider.SpotInterrupted, "i-a"))
	p := controller(t, c, q, f.Now)
	if _, err := p.queue.Round(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if f.Claim("a").DeletionTimestamp == nil || q.waiting() != 0 {
		t.Errorf("ended %v, %d messages left", f.Claim("a").DeletionTimestamp != nil, q.waiting())
	}
	if n := testutil.ToFloat64(p.metrics.ClaimsDisrupted.WithLabelValues("spot_interrupted", "general", "", "", "graceful")); n != 1 {
		t.Errorf("%v deletions are counted", n)
	}
}

// brokenQueue is a queue that fails for some time.
type brokenQueue struct {
	*queue
	err   error
	until time.Time
	calls atomic.Int32
}

func (b *brokenQueue) Receive(ctx context.Context, wait time.Duration) ([]cloudprovider.Message, error) {
	if time.Now().Before(b.until) {
		b.calls.Add(1)
		return nil, b.err
	}
	return b.queue.Receive(ctx, wait)
}

// The drain of a node waits since deletions are paused; then EC2 announces to take its instance. Other news hurries nothing.
func TestAnInterruptionFreesADrainThatWaits(t *testing.T) {
	held := func(c *karpv1.NodeClaim) {
		if err := c.SetDeletionCause(karpv1.DeletionCause{Kind: string(destroy.Planned), Reason: "Drifted"}); err != nil {
			t.Fatal(err)
		}
	}
	f := controllertest.New(t, controllertest.Claim("a", controllertest.Initialized, controllertest.Deleting, held))
	a := controller(t, f.API, &queue{now: f.Now}, f.Now).queue.Actor
	a.Guard = destroytest.Paused(f.API, f.Now, "general")
	for _, tt := range []struct {
		reason string
		waits  bool
	}{{"SpotRebalanceRecommendation", true}, {karpv1.ReasonSpotInterrupted, false}} {
		if deleted, err := a.deleteClaim(t.Context(), f.Claim("a"), tt.reason, false); deleted || err != nil {
			t.Errorf("%s: deleted %v, %v", tt.reason, deleted, err)
		}
		if err := a.Guard.MayDrain(t.Context(), f.Claim("a")); (err != nil) != tt.waits {
			t.Errorf("%s: %v, want that the drain waits: %v", tt.reason, err, tt.waits)
		}
	}
}

// A queue that cannot be read is tried again ever more seldom, people are informed, and what was sent meanwhile is acted
// upon.
func TestQueueThatIsBrokenForAnHour(t *testing.T) {
	for _, tt := range []struct {
		err    error
		reason string
	}{
		{&cloudprovider.UnavailableError{Reason: "QueueDoesNotExist", Message: "it is not there"}, "QueueDoesNotExist"},
		{errors.New("connection refused"), "QueueUnreadable"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Pool("general"), controllertest.Claim("a", controllertest.Initialized))
			b := &brokenQueue{queue: &queue{now: time.Now}, err: tt.err, until: time.Now().Add(time.Hour)}
			p := controller(t, f.API, b, time.Now)
			b.send(message(cloudprovider.InstanceStopped, "i-a"))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- p.queue.Start(ctx) }()
			said := func() string {
				pool := controllertest.Pool("general")
				f.Get(pool)
				c, _ := condition.Get(pool, karpv1.ConditionInterruptionQueueUnavailable)
				return c.Reason
			}
			time.Sleep(30 * time.Minute)
			synctest.Wait()
			if got := said(); got != tt.reason {
				t.Errorf("the pool says %q, want %q", got, tt.reason)
			}
			if n := b.calls.Load(); n > 45 {
				t.Errorf("%d calls in half an hour", n)
			}
			time.Sleep(32 * time.Minute)
			synctest.Wait()
			if got := said(); got != "" || f.Claim("a").DeletionTimestamp == nil || b.waiting() != 0 {
				t.Errorf("after it is mended: the pool says %q, %d messages are left", got, b.waiting())
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("ends with %v", err)
			}
		})
	}
}

// deniedStatus is an EC2 that lets nobody request some time.
type deniedStatus struct{ until time.Time }

func (b deniedStatus) Ailments(context.Context) ([]cloudprovider.Impairment, error) {
	if time.Now().Before(b.until) {
		return nil, &cloudprovider.UnavailableError{Reason: "AccessDenied", Message: "the role needs ec2:DescribeInstanceStatus"}
	}
	return []cloudprovider.Impairment{{InstanceID: "i-a", Kinds: []cloudprovider.InterruptionKind{cloudprovider.SystemStatusFailed}}}, nil
}

// A permission that is missing is named, and found again within ten minutes of being granted.
func TestStatusThatMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controllertest.New(t, controllertest.Pool("general"), controllertest.Claim("a", controllertest.Initialized))
		p := controller(t, f.API, nil, time.Now)
		standing := &QueueCondition{Client: f.API, Events: f.Events, Log: f.Log, Now: time.Now}
		s := &Status{
			Instances: deniedStatus{time.Now().Add(time.Hour)},
			Actor:     p.queue.Actor,
			Condition: standing,
			Metrics:   p.queue.Metrics,
			Log:       f.Log,
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Start(ctx) }()
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if said := f.RecordedEvents(); len(said) == 0 ||
			said[0] != "Warning InstanceStatusUnreadable the role needs ec2:DescribeInstanceStatus" {
			t.Errorf("events %q", said)
		}
		time.Sleep(12 * time.Minute)
		synctest.Wait()
		if f.Claim("a").DeletionTimestamp == nil {
			t.Error("the claim of an instance that has failed lives on")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Without a queue nothing is read, and what was stated of one before is taken back.
func TestNoQueue(t *testing.T) {
	f := controllertest.New(t, controllertest.Pool("general", func(p *karpv1.NodePool) {
		condition.SetTrueWithReason(
			p,
			karpv1.ConditionInterruptionQueueUnavailable,
			condition.Because("AccessDenied", ""),
			controllertest.Start,
		)
	}))
	p := controller(t, f.API, nil, f.Now)
	p.queue.Source = nil
	if err := p.queue.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool := controllertest.Pool("general")
	f.Get(pool)
	if _, there := condition.Get(pool, karpv1.ConditionInterruptionQueueUnavailable); there {
		t.Error("the condition stays")
	}
}

// manyClaims are claims with their instances, and a message about each.
func manyClaims(n int) ([]*karpv1.NodeClaim, []cloudprovider.Message) {
	claims, messages := make([]*karpv1.NodeClaim, n), make([]cloudprovider.Message, n)
	for i := range n {
		claims[i] = controllertest.Claim(fmt.Sprint("general-", i), controllertest.Initialized)
		messages[i] = message(cloudprovider.SpotInterrupted, "i-"+claims[i].Name)
	}
	return claims, messages
}

// BenchmarkInterruptionMessages acts upon 20,000 messages, each about another claim that lives.
func BenchmarkInterruptionMessages(b *testing.B) {
	const n = 20_000
	for b.Loop() {
		b.StopTimer()
		claims, messages := manyClaims(n)
		api, q := controllertest.NewBulkAPI(claims), &queue{now: time.Now}
		q.send(messages...)
		p := controller(b, api, q, time.Now)
		b.StartTimer()
		for {
			more, err := p.queue.Round(b.Context(), 0)
			if err == nil && more {
				err = p.queue.burst(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
			if q.waiting() == 0 {
				break
			}
		}
		if ended := api.Deleted(); len(ended) != n {
			b.Fatalf("%d of %d claims were ended", len(ended), n)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
