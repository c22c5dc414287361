package awstest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/event"
	"github.com/dovetail-k8s/dovetail/internal/controller/interruption"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

// countedQueue is a process that dies when the API server has made so many deletions for it, in the midst of whatever
// else it does: nothing it sends arrives any more, neither at AWS nor at the API server.
type countedQueue struct {
	client.Client
	http  awssdk.HTTPClient
	left  atomic.Int64
	ended atomic.Bool
}

func (p *countedQueue) Do(r *http.Request) (*http.Response, error) {
	if p.ended.Load() {
		return nil, errProcessKilled
	}
	return p.http.Do(r)
}

func (p *countedQueue) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if p.ended.Load() {
		return errProcessKilled
	}
	return p.Client.List(ctx, list, opts...)
}

func (p *countedQueue) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if p.ended.Load() {
		return errProcessKilled
	}
	err := p.Client.Delete(ctx, o, opts...)
	if err == nil && p.left.Add(-1) == 0 {
		p.ended.Store(true)
		return errProcessKilled // it took effect, and nobody learns so
	}
	return err
}

// process runs a controller from its start until the queue is empty, or it is killed, and returns how many messages it
// deleted.
func process(t testing.TB, w *world, p *countedQueue) int {
	t.Helper()
	cfg := w.config("uid-1")
	cfg.AWS.HTTPClient = p
	c := w.start(cfg)
	metrics, err := metrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	heard, err := interruption.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	log, events := slog.New(slog.DiscardHandler), event.NewRecorder(&record.FakeRecorder{}, w.Clock.Now)
	queue := &interruption.Queue{
		Source: c.InterruptionQueue(queueName), Metrics: heard, Log: log, Now: w.Clock.Now,
		Actor:     &interruption.Actor{Client: p, Guard: destroytest.Guard(p, w.Clock.Now), Live: p, Cloud: c, Events: events, Metrics: metrics, Log: log, Now: w.Clock.Now},
		Condition: &interruption.QueueCondition{Client: p, Events: events, Log: log, Now: w.Clock.Now},
	}
	var readers sync.WaitGroup
	for range 8 { // as many as the controller has while messages pile up
		readers.Go(func() {
			for more := true; more; {
				var err error
				if more, err = queue.Round(context.Background(), 0); err != nil && !errors.Is(err, errProcessKilled) && !p.ended.Load() {
					t.Error(err)
					return
				}
			}
		})
	}
	readers.Wait()
	return counted(t, heard.Deleted)
}

// killedMidway sends n messages, each about another claim that lives, kills the controller at half of them, starts
// another and returns how long both have worked.
func killedMidway(t testing.TB, n int) time.Duration {
	t.Helper()
	w := newWorld(t)
	if err := w.Sim.SQS().CreateQueue(queueName, map[string]string{"MessageRetentionPeriod": "300"}); err != nil {
		t.Fatal(err)
	}
	claims := make([]*karpv1.NodeClaim, n)
	for i := range n {
		claims[i] = controllertest.Claim(fmt.Sprint("general-", i), controllertest.Initialized)
		if err := w.Sim.SQS().Send(queueName, eventBridge(spotWarning, `{"instance-id":"i-`+claims[i].Name+`","instance-action":"terminate"}`)); err != nil {
			t.Fatal(err)
		}
	}
	api := controllertest.NewBulkAPI(claims)
	began := time.Now()
	first := &countedQueue{Client: api, http: w.Config.HTTPClient}
	first.left.Store(int64(n / 2))
	before := process(t, w, first)
	if !first.ended.Load() || before == 0 || before > n/2 {
		t.Fatalf("killed: %v, after %d messages were deleted", first.ended.Load(), before)
	}
	w.Clock.Advance(20 * time.Second) // what the dead has received is handed out again
	after := process(t, w, &countedQueue{Client: api, http: w.Config.HTTPClient})
	took := time.Since(began)
	if before+after != n {
		t.Errorf("%d and %d messages were deleted, of %d", before, after, n)
	}
	ended := api.Deleted()
	for _, c := range claims {
		if ended[c.Name] != 1 {
			t.Errorf("claim %s was ended %d times", c.Name, ended[c.Name])
		}
	}
	return took
}

// No message about a claim that lives is lost when the controller is killed half-way, and each claim is terminated once.
func TestKilledWhileReadingTheQueue(t *testing.T) { killedMidway(t, 1000) }

// BenchmarkInterruptionQueue acts upon 20,000 spot warnings, from the simulated SQS to the deletion of as many claims,
// with the controller killed half-way.
func BenchmarkInterruptionQueue(b *testing.B) {
	const n = 20_000
	var took time.Duration
	for b.Loop() {
		took += killedMidway(b, n)
	}
	b.ReportMetric(float64(n)*float64(b.N)/took.Seconds(), "messages/s")
}
