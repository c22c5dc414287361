package termination

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

func evictor(f *controllertest.Fixture) *Evictor {
	return &Evictor{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: f.Now}
}

func gracePeriod(d time.Duration) func(*corev1.Pod) {
	seconds := int64(d / time.Second)
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

func protected(p *corev1.Pod) {
	p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
}

// calls are the API server calls about pods.
type calls struct {
	evictions int
	deletions []int64 // granted seconds
}

// refusing returns a client that counts evictions, and rejects them with err if it is not nil.
func refusing(f *controllertest.Fixture, c *calls, err error) client.Client {
	return interceptor.NewClient(f.API, interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, api client.Client, sub string, o, in client.Object,
			opts ...client.SubResourceCreateOption,
		) error {
			c.evictions++
			if err != nil {
				return err
			}
			return api.SubResource(sub).Create(ctx, o, in, opts...)
		},
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			var options client.DeleteOptions
			options.ApplyOptions(opts)
			c.deletions = append(c.deletions, *options.GracePeriodSeconds)
			return api.Delete(ctx, o, opts...)
		},
	})
}

func status(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
}

func TestEvict(t *testing.T) {
	in := func(d time.Duration) *time.Time { at := controllertest.Start.Add(d); return &at }
	pods := schema.GroupResource{Resource: "pods"}
	terminating := func(ends time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: controllertest.Start.Add(ends)}, []string{"test/keep"}
		}
	}
	granted := func(d time.Duration) func(*corev1.Pod) {
		seconds := int64(d / time.Second)
		return func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = &seconds }
	}
	tests := []struct {
		name     string
		pod      *corev1.Pod
		deadline *time.Time
		refusal  error
		// done: nothing is left to do. Otherwise it is tried again.
		done, gone bool
		evictions  int
		granted    []int64
		event      string
	}{
		{
			name: "evicted", pod: controllertest.Pod("web", "node-a"), done: true, gone: true, evictions: 1,
			event: "Normal Evicted Evicted pod: Empty, decision d-1",
		},
		{
			name:      "gone meanwhile",
			pod:       controllertest.Pod("web", "node-a"),
			refusal:   apierrors.NewNotFound(pods, "web"),
			done:      true,
			evictions: 1,
		},
		{name: "another of its name", pod: controllertest.Pod("web", "node-a", func(p *corev1.Pod) { p.UID = "successor" }), done: true},
		{
			name:      "protected by a budget",
			pod:       controllertest.Pod("web", "node-a"),
			refusal:   status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "pdb"),
			evictions: 1,
			event:     "violates a PDB (Pod=shop/web)",
		},
		{
			name: "under several budgets",
			pod:  controllertest.Pod("web", "node-a"),
			refusal: status(
				http.StatusInternalServerError,
				metav1.StatusReasonInternalError,
				"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
			),
			evictions: 1,
			event:     "does not support multiple PDBs",
		},
		{
			name:      "any other answer",
			pod:       controllertest.Pod("web", "node-a"),
			refusal:   status(http.StatusForbidden, metav1.StatusReasonForbidden, "no"),
			evictions: 1,
		},
		{
			name:  "do-not-disrupt, no deadline",
			pod:   controllertest.Pod("web", "node-a", protected),
			event: "Warning FailedDraining Failed to drain node, a pod may not be disrupted (Pod=shop/web)",
		},
		{name: "terminating already", pod: controllertest.Pod("web", "node-a", terminating(30*time.Second)), done: true},
		{
			name:     "do-not-disrupt, grace as long as the node's",
			pod:      controllertest.Pod("web", "node-a", protected, gracePeriod(300*time.Second)),
			deadline: in(300 * time.Second),
			done:     true,
			gone:     true,
			granted:  []int64{300},
			event:    "Normal Disrupted",
		},
		{
			name:     "do-not-disrupt, 210 s left of which it needs 60",
			pod:      controllertest.Pod("web", "node-a", protected, gracePeriod(60*time.Second)),
			deadline: in(210 * time.Second),
			event:    "may not be disrupted",
		},
		{
			name:     "do-not-disrupt, 60 s left of which it needs 60",
			pod:      controllertest.Pod("web", "node-a", protected, gracePeriod(60*time.Second)),
			deadline: in(60 * time.Second),
			done:     true,
			gone:     true,
			granted:  []int64{60},
			event:    "Normal Disrupted",
		},
		{
			name:     "terminating for too long is shortened",
			pod:      controllertest.Pod("web", "node-a", gracePeriod(6000*time.Second), terminating(5910*time.Second)),
			deadline: in(210 * time.Second),
			done:     true,
			granted:  []int64{210},
			event:    "Normal Disrupted",
		},
		{
			name:     "too late, and deleted with one second already",
			pod:      controllertest.Pod("web", "node-a", gracePeriod(30*time.Second), terminating(time.Second), granted(time.Second)),
			deadline: in(-time.Hour),
			done:     true,
		},
		{
			name:     "too late, and deleted with more than one second",
			pod:      controllertest.Pod("web", "node-a", gracePeriod(30*time.Second), terminating(30*time.Second), granted(30*time.Second)),
			deadline: in(-time.Hour),
			done:     true,
			granted:  []int64{1},
			event:    "Normal Disrupted",
		},
		{
			name:     "an hour too late: one second",
			pod:      controllertest.Pod("web", "node-a", gracePeriod(30*time.Second)),
			deadline: in(-time.Hour),
			done:     true,
			gone:     true,
			granted:  []int64{1},
			event:    "Normal Disrupted",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, tt.pod, controllertest.ReadyNode("a"))
			var c calls
			e := evictor(f)
			e.Client = refusing(f, &c, tt.refusal)
			e.Guard = destroytest.Guard(e.Client, f.Now)
			requested := controllertest.Pod("web", "node-a")
			e.Request(requested, f.Node("node-a"), Cause{Reason: "Empty", Decision: "d-1"}, tt.deadline)
			e.work(t.Context())
			if _, kept := e.requests[podKey{"shop", "web", requested.UID}]; kept == tt.done {
				t.Errorf("kept %v, want %v", kept, !tt.done)
			}
			if gone := !f.Get(requested); gone != tt.gone || c.evictions != tt.evictions {
				t.Errorf("gone %v, %d evictions; want %v, %d", gone, c.evictions, tt.gone, tt.evictions)
			}
			if len(c.deletions) != len(tt.granted) || len(tt.granted) > 0 && c.deletions[0] != tt.granted[0] {
				t.Errorf("deleted with %v s, want %v", c.deletions, tt.granted)
			}
			if events := strings.Join(f.RecordedEvents(), "\n"); (tt.event == "") != (events == "") || !strings.Contains(events, tt.event) {
				t.Errorf("events %q, want %q", events, tt.event)
			}
		})
	}
}

// A pod of a StatefulSet is replaced by one of its name between the read of the cache and the call: the API server has
// the successor, on another node, and reads in the call which pod is meant.
func TestTheSuccessorOfAPodIsNotEvicted(t *testing.T) {
	past := controllertest.Start.Add(-time.Hour)
	for name, deadline := range map[string]*time.Time{"evicted": nil, "deleted past its deadline": &past} {
		t.Run(name, func(t *testing.T) {
			successor := controllertest.Pod("web", "node-b", func(p *corev1.Pod) { p.UID = "successor" })
			f := controllertest.New(t, successor, controllertest.ReadyNode("a"))
			meant := controllertest.Pod("web", "node-a", gracePeriod(30*time.Second))
			conflict := apierrors.NewConflict(
				schema.GroupResource{Resource: "pods"},
				"web",
				errors.New("the UID in the precondition is not the UID in record"),
			)
			e := evictor(f)
			calls := 0
			e.Client = interceptor.NewClient(f.API, interceptor.Funcs{
				Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
					meant.DeepCopyInto(o.(*corev1.Pod))
					return nil
				},
				// The API server of the fixture does not read preconditions of evictions.
				SubResourceCreate: func(ctx context.Context, api client.Client, sub string, o, in client.Object,
					opts ...client.SubResourceCreateOption,
				) error {
					calls++
					if options := in.(*policyv1.Eviction).DeleteOptions; options != nil && differs(options.Preconditions, successor) {
						return conflict
					}
					return api.SubResource(sub).Create(ctx, o, in, opts...)
				},
				Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					calls++
					var options client.DeleteOptions
					options.ApplyOptions(opts)
					if differs(options.Preconditions, successor) {
						return conflict
					}
					return api.Delete(ctx, o)
				},
			})
			e.Guard = destroytest.Guard(e.Client, f.Now)
			e.Request(meant, f.Node("node-a"), Cause{Reason: "Empty"}, deadline)
			e.work(t.Context())
			if !f.Get(successor) || calls != 1 {
				t.Errorf("the successor is gone, after %d calls", calls)
			}
			e.Client = f.API // the cache shows the successor
			if len(e.requests) > 0 {
				e.work(t.Context())
			}
			if len(e.requests) > 0 {
				t.Errorf("still to be evicted: %v", e.requests)
			}
		})
	}
}

// differs reports whether preconditions are for another object.
func differs(p *metav1.Preconditions, o client.Object) bool {
	return p != nil && p.UID != nil && *p.UID != o.GetUID()
}

func TestDeadlinesOnlyTighten(t *testing.T) {
	tight, loose := controllertest.Start.Add(time.Minute), controllertest.Start.Add(time.Hour)
	for _, tt := range []struct {
		name      string
		requested []*time.Time
		want      *time.Time
	}{
		{"none, then one: taken", []*time.Time{nil, &loose}, &loose},
		{"an earlier one: taken", []*time.Time{&loose, &tight}, &tight},
		{"a later one: not taken", []*time.Time{&tight, &loose}, &tight},
		{"then none: not taken", []*time.Time{&tight, nil}, &tight},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, controllertest.ReadyNode("a"))
			e, pod, node := evictor(f), controllertest.Pod("web", "node-a"), f.Node("node-a")
			for _, deadline := range tt.requested {
				e.Request(pod, node, Cause{}, deadline)
			}
			if got := e.requests[podKey{"shop", "web", pod.UID}].deadline; got != tt.want {
				t.Errorf("deadline %v, want %v", got, tt.want)
			}
		})
	}
}

// A deadline that is set while the pod is being evicted, and rejected, must not be lost nor crash the process.
func TestDeadlineDuringAnEviction(t *testing.T) {
	f := controllertest.New(t, controllertest.Pod("web", "node-a"), controllertest.ReadyNode("a"))
	e, pod, node := evictor(f), controllertest.Pod("web", "node-a"), f.Node("node-a")
	past := controllertest.Start.Add(-time.Hour)
	e.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			e.Request(pod, node, Cause{Reason: "Empty"}, &past)
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web")
		},
	})
	e.Guard = destroytest.Guard(e.Client, f.Now)
	e.Request(pod, node, Cause{Reason: "Empty"}, nil)
	e.work(t.Context())
	if got := e.requests[podKey{"shop", "web", pod.UID}]; got.deadline != &past || got.node == nil {
		t.Fatalf("requested %+v, want the new deadline", got)
	}
	e.work(t.Context())
	if len(e.requests) > 0 {
		t.Errorf("requests %v: none must be left", e.requests)
	}
}

// A pod that its budget protects is deleted at its deadline, not when its next attempt is due.
func TestDeadlineDoesNotWaitForTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controllertest.New(t, controllertest.Pod("web", "node-a", gracePeriod(5*time.Second)), controllertest.ReadyNode("a"))
		begin := time.Now()
		e, node := evictor(f), f.Node("node-a")
		e.Now = func() time.Time { return controllertest.Start.Add(time.Since(begin)) }
		var c calls
		e.Client = refusing(f, &c, status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "pdb"))
		e.Guard = destroytest.Guard(e.Client, f.Now)
		deadline := controllertest.Start.Add(3 * time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Start(ctx) }()
		for f.Get(controllertest.Pod("web", "")) && time.Since(begin) < 5*time.Minute {
			e.Request(controllertest.Pod("web", "node-a", gracePeriod(5*time.Second)), node, Cause{Reason: "Empty"}, &deadline)
			time.Sleep(poll)
			synctest.Wait()
		}
		if late := time.Since(begin) - (3*time.Minute - 5*time.Second); late > 2*poll {
			t.Errorf("deleted %v after its time had come, with %v s", late, c.deletions)
		}
		if c.evictions > 40 {
			t.Errorf("%d evictions were tried", c.evictions)
		}
		stop()
		<-done
	})
}

func TestEvictorWorksAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := controllertest.New(
			t,
			controllertest.Pod("a", "node-a"),
			controllertest.Pod("b", "node-a", protected),
			controllertest.ReadyNode("a"),
		)
		e, node := evictor(f), f.Node("node-a")
		e.Workers = 3
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- e.Start(ctx) }()
		held := controllertest.Pod("b", "node-a")
		for _, name := range []string{"a", "b"} {
			e.Request(controllertest.Pod(name, "node-a"), node, Cause{Reason: "Empty"}, nil)
		}
		time.Sleep(time.Minute)
		if f.Get(controllertest.Pod("a", "")) || !f.Get(held) {
			t.Error("a pod that may not be evicted delayed one that may, or was evicted")
		}
		held.Annotations = nil
		f.Do(f.API.Update(ctx, held))
		time.Sleep(time.Minute)
		if f.Get(held) {
			t.Error("pod b is there, though it may go")
		}
		stop()
		if err := <-done; err != nil || len(e.requests) > 0 {
			t.Errorf("error %v, still requested %v", err, e.requests)
		}
	})
}

func TestPodsLeaveForTheReasonAndDecisionOfTheClaim(t *testing.T) {
	disrupted := controllertest.Claim("a", func(c *karpv1.NodeClaim) {
		c.Annotations = map[string]string{karpv1.AnnotationDisruptionCommand: `{"id":"d-1","reason":"Drifted"}`}
		condition.SetTrueWithReason(c, karpv1.ConditionDisruptionReason, condition.Because("Drifted", "Drifted"), controllertest.Start)
	})
	unreadable := controllertest.Claim("a", func(c *karpv1.NodeClaim) {
		c.Annotations = map[string]string{karpv1.AnnotationDisruptionCommand: "no command"}
	})
	for want, claim := range map[string]*karpv1.NodeClaim{
		"Drifted, decision d-1": disrupted, "Forceful Termination": unreadable,
	} {
		if got := causeOf(claim).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := causeOf(nil).String(); got != "Forceful Termination" {
		t.Errorf("without a claim: %q", got)
	}
}

// Deletions are paused, and pods stay; then EC2 announces to take the instance.
func TestPodsOfAnInterruptedNodeLeaveWhileDeletionsArePaused(t *testing.T) {
	f := controllertest.New(t, controllertest.Pod("a", "node-a"), controllertest.ReadyNode("a"))
	var c calls
	e, pod := evictor(f), controllertest.Pod("a", "node-a")
	e.Client = refusing(f, &c, nil)
	e.Guard = destroytest.Paused(e.Client, f.Now, "general")
	key := podKey{pod.Namespace, pod.Name, pod.UID}
	claim := controllertest.Claim("a", controllertest.Registered)
	for _, tt := range []struct {
		why       destroy.Why
		evictions int
	}{{destroy.Why{Kind: destroy.Planned}, 0}, {destroy.Why{Kind: destroy.Interrupted}, 1}} {
		f.Do(claim.SetDeletionCause(karpv1.DeletionCause{Kind: string(tt.why.Kind)}))
		e.Request(pod, f.Node("node-a"), causeOf(claim), nil)
		if done := e.evict(t.Context(), key, e.requests[key]); done != (tt.evictions > 0) || c.evictions != tt.evictions {
			t.Errorf("%s: done %v, %d evictions, want %d", tt.why.Kind, done, c.evictions, tt.evictions)
		}
	}
	f.Do(claim.SetDeletionCause(karpv1.DeletionCause{Kind: string(destroy.Planned), Empty: true}))
	if causeOf(claim).Limited {
		t.Error("what is left on an empty node stays")
	}
}
