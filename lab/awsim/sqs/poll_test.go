package sqs_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
	sim "github.com/dovetail-k8s/dovetail/lab/awsim/sqs"
)

// pollable is a queue with polls that can be seen to wait.
type pollable struct {
	*sqs.Client
	sim   *sim.SQS
	clock *watchedClock
	queue *string
}

// watchedClock reports when somebody begins to wait on it.
type watchedClock struct {
	*clock.Fake
	waiting chan struct{}
}

func (c *watchedClock) AfterFunc(d time.Duration, f func()) func() bool {
	cancel := c.Fake.AfterFunc(d, f)
	c.waiting <- struct{}{}
	return cancel
}

func startPollable(t *testing.T) *pollable {
	t.Helper()
	c := &watchedClock{Fake: clock.NewFake(time.Date(2026, 8, 21, 10, 0, 0, 0, time.UTC)), waiting: make(chan struct{})}
	keys := credential.NewRing("111122223333", 1, c.Now)
	queues := sim.New(sim.Config{Region: "us-east-1", AccountID: "111122223333", Clock: c})
	if err := queues.CreateQueue("c1", nil); err != nil {
		t.Fatal(err)
	}
	server := protocol.NewServer(protocol.Config{Region: "us-east-1", Clock: c, Keys: keys, Log: slog.New(slog.DiscardHandler)})
	server.Register(queues.Service())
	client := sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://sqs"), Retryer: aws.NopRetryer{}, HTTPClient: inProcess{server},
		Credentials: credentials.NewStaticCredentialsProvider(credential.AdminAccessKeyID, "x", ""),
	})
	return &pollable{Client: client, sim: queues, clock: c, queue: aws.String("http://sqs/111122223333/c1")}
}

// inProcess calls a handler without a network between, so that the handler has returned when the call does.
type inProcess struct{ handler http.Handler }

func (c inProcess) Do(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	c.handler.ServeHTTP(recorder, r)
	return recorder.Result(), r.Context().Err()
}

type polled struct {
	body string
	err  error
}

// poll starts a long poll and returns when it waits.
func (p *pollable) poll(ctx context.Context) <-chan polled {
	done := make(chan polled, 1)
	go func() {
		out, err := p.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: p.queue, WaitTimeSeconds: 20, VisibilityTimeout: 25})
		if err != nil {
			done <- polled{err: err}
			return
		}
		done <- polled{body: bodies(out.Messages)}
	}()
	<-p.clock.waiting
	return done
}

func TestLongPoll(t *testing.T) {
	for _, row := range []struct {
		what string
		then func(t *testing.T, p *pollable)
		body string
		code string
	}{
		{"a message comes", func(t *testing.T, p *pollable) {
			if err := p.sim.Send("c1", "hello"); err != nil {
				t.Fatal(err)
			}
		}, "hello", ""},
		{"nothing comes", func(_ *testing.T, p *pollable) { p.clock.Advance(20 * time.Second) }, "", ""},
		{"the queue is deleted", func(t *testing.T, p *pollable) {
			awsimtest.OK(p.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: p.queue}))(t)
		}, "", "AWS.SimpleQueueService.NonExistentQueue"},
	} {
		p := startPollable(t)
		done := p.poll(t.Context())
		row.then(t, p)
		if got := <-done; got.body != row.body || awsimtest.Code(got.err) != row.code {
			t.Errorf("%s: %+v; want %q, error %q", row.what, got, row.body, row.code)
		}
	}
}

// A message with a visibility timeout that expires during a poll is received by it.
func TestLongPollSeesMessageComeBack(t *testing.T) {
	p := startPollable(t)
	if err := p.sim.Send("c1", "hello"); err != nil {
		t.Fatal(err)
	}
	awsimtest.OK(p.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: p.queue, VisibilityTimeout: 10}))(t)
	done := p.poll(t.Context())
	p.clock.Advance(10 * time.Second)
	if got := <-done; got.body != "hello" || got.err != nil {
		t.Errorf("%+v, want hello", got)
	}
}

func TestLongPollStopsWithRequest(t *testing.T) {
	p := startPollable(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := p.poll(ctx)
	cancel()
	if got := <-done; !errors.Is(got.err, context.Canceled) {
		t.Errorf("%+v, want a cancelled call", got)
	}
	// The message goes to the next who queries, not to the one who left.
	if err := p.sim.Send("c1", "hello"); err != nil {
		t.Fatal(err)
	}
	out := awsimtest.OK(p.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: p.queue}))(t)
	if got := bodies(out.Messages); got != "hello" {
		t.Errorf("received %q, want hello", got)
	}
}
