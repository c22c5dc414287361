package join

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

func uid(s string) types.UID { return types.UID(s) }
func uid2(n int) types.UID   { return types.UID(fmt.Sprint(n)) }
func class() *awsv1.EC2NodeClass {
	return &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class", Generation: 1}}
}

// fakeCloud is a cloud with given findings.
type fakeCloud struct {
	found     []cloudprovider.Finding
	calls     int
	rechecked int
	launched  int
	err       error // of launches
}

func (o *fakeCloud) ExplainJoin(context.Context, *karpv1.NodeClaim, *awsv1.EC2NodeClass) ([]cloudprovider.Finding, error) {
	o.calls++
	return o.found, nil
}
func (o *fakeCloud) JoinScopes(*awsv1.EC2NodeClass) []string { return scopes }
func (o *fakeCloud) RecheckJoins()                           { o.rechecked++ }

func (o *fakeCloud) ResolveNodeClass(context.Context, *awsv1.EC2NodeClass) cloudprovider.Resolution {
	return cloudprovider.Resolution{Next: time.Hour, Conditions: []cloudprovider.Condition{
		{Type: awsv1.ConditionSubnetsReady, Status: metav1.ConditionTrue}, {Type: awsv1.ConditionNodesCanJoin, Status: metav1.ConditionTrue},
	}}
}

func (o *fakeCloud) NodeClassHash(*awsv1.EC2NodeClass) (string, string, error) { return "", "", nil }

func (o *fakeCloud) DeleteNodeClassResources(context.Context, *awsv1.EC2NodeClass) error {
	return nil
}

func (o *fakeCloud) LaunchInBatch(
	context.Context,
	*karpv1.NodeClaim,
	*awsv1.EC2NodeClass,
	func(context.Context, string) error,
) (cloudprovider.Launched, error) {
	o.launched++
	return cloudprovider.Launched{}, o.err
}
func (o *fakeCloud) Terminate(context.Context, destroy.Permit) error { return nil }

// launched is a claim with an instance that runs since the fixture's start.
func launched(name string, pods ...string) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(controllertest.Start),
			Finalizers:  []string{karpv1.FinalizerTermination},
			Annotations: map[string]string{karpv1.AnnotationNominatedPods: strings.Join(pods, ",")},
		},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
		},
	}
	c.Status.ProviderID = "aws:///us-east-1a/i-0123456789abcdef0"
	condition.SetTrue(c, karpv1.ConditionLaunched, controllertest.Start)
	return c
}

func reconciler(f *controllertest.Fixture, o *fakeCloud) *Reconciler {
	return &Reconciler{
		Client: f.API, Cloud: o, Breakers: NewBreakers(f.Now, func() {}), Times: NewTimes(time.Minute), Changed: func() {},
		Timeout: 15 * time.Minute,
		Events:  f.Events, Metrics: f.Metrics, Log: f.Log, Now: f.Now,
	}
}

func TestLateClaim(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "pod-1"}}
	f := controllertest.New(t, class(), launched("a", "pod-1"), pod)
	o := &fakeCloud{found: []cloudprovider.Finding{{
		Cause: "NodeRoleNotMapped", Certainty: cloudprovider.Certain, FromConfiguration: true, Scope: "role/node",
		Message: "role node is not mapped", Remedy: "aws eks create-access-entry",
	}}}
	r := reconciler(f, o)
	f.Clock = controllertest.Start.Add(59 * time.Second)
	if result := f.Reconcile(r, "a"); result.RequeueAfter != time.Second || o.calls > 0 {
		t.Fatalf("in time: is requeued after %v, called %d times", result.RequeueAfter, o.calls)
	}
	f.Clock = controllertest.Start.Add(time.Minute)
	for range 2 {
		f.Reconcile(r, "a")
	}
	registered, _ := condition.Get(f.Claim("a"), karpv1.ConditionRegistered)
	want := "role node is not mapped; to fix it: aws eks create-access-entry"
	if registered.Status != metav1.ConditionUnknown || registered.Reason != "NodeRoleNotMapped" || registered.Message != want {
		t.Errorf("condition Registered: %+v", registered)
	}
	events := strings.Join(f.RecordedEvents(), "\n")
	for _, who := range []string{"Node of NodeClaim a does not join: " + want, "Nodes of EC2NodeClass default do not join: " + want, "The node of nodeclaim/a does not join, NodeRoleNotMapped: " + want} {
		if strings.Count(events, who) != 1 {
			t.Errorf("events %d times, want once: %s\nin %s", strings.Count(events, who), who, events)
		}
	}
	if n := testutil.ToFloat64(f.Metrics.JoinFailures.WithLabelValues("NodeRoleNotMapped")); n != 1 {
		t.Errorf("dovetail_join_failures_total is %v, want 1", n)
	}
	if o.rechecked == 0 {
		t.Error("the node class is not reconciled again")
	}
	if len(r.Breakers.Open()) > 0 {
		t.Error("a fault that stands needs no breaker")
	}
}

func TestClaimThatNothingExplains(t *testing.T) {
	f := controllertest.New(t, class(), launched("a"))
	r := reconciler(
		f,
		&fakeCloud{
			found: []cloudprovider.Finding{
				{Cause: "ConsoleUnchecked", Certainty: cloudprovider.Unchecked, Message: "the console could not be read: denied"},
			},
		},
	)
	f.Clock = controllertest.Start.Add(2 * time.Minute)
	f.Reconcile(r, "a")
	registered, _ := condition.Get(f.Claim("a"), karpv1.ConditionRegistered)
	if registered.Reason != cloudprovider.CauseUnknown || !strings.Contains(registered.Message, "the console could not be read: denied") {
		t.Errorf("condition Registered: %+v", registered)
	}
}

// What is recorded on a claim triggers the reconciler. That must not make it call AWS again at once, also where AWS
// answers in other words each time.
func TestLateClaimIsNotLookedIntoWithoutRest(t *testing.T) {
	f := controllertest.New(t, class(), launched("a"))
	o := &fakeCloud{}
	r := reconciler(f, o)
	f.Clock = controllertest.Start.Add(2 * time.Minute)
	for n := range 10 {
		o.found = []cloudprovider.Finding{
			{Cause: "ConsoleUnchecked", Certainty: cloudprovider.Unchecked, Message: fmt.Sprintf("not authorized, encoded message: %d", n)},
		}
		if result := f.Reconcile(r, "a"); result.RequeueAfter != recheckInterval {
			t.Fatalf("is requeued after %v, want %v", result.RequeueAfter, recheckInterval)
		}
	}
	if o.calls != 1 {
		t.Errorf("diagnosed %d times within a moment, want once", o.calls)
	}
	f.Clock = f.Clock.Add(recheckInterval)
	if f.Reconcile(r, "a"); o.calls != 2 {
		t.Errorf("diagnosed %d times, want once more", o.calls)
	}
}

// A claim that joined teaches how long that takes, and closes the breaker of what it shares with others.
func TestJoined(t *testing.T) {
	joined := launched("a")
	condition.SetTrue(joined, karpv1.ConditionRegistered, controllertest.Start.Add(25*time.Second))
	f := controllertest.New(t, class(), joined)
	r := reconciler(f, &fakeCloud{})
	r.Breakers.Report(untrust)
	f.Reconcile(r, "a")
	if got := r.Times.GracePeriod("default"); got != 50*time.Second {
		t.Errorf("usual time %v, want twice 25 s", got)
	}
	if len(r.Breakers.Open()) > 0 {
		t.Error("the breaker is still open")
	}
}

// What an instance cost that never became a node is counted once, under its cause.
func TestWaste(t *testing.T) {
	f := controllertest.New(t, class(), launched("a"))
	r := reconciler(f, &fakeCloud{found: []cloudprovider.Finding{untrust}})
	f.Clock = controllertest.Start.Add(2 * time.Minute)
	f.Reconcile(r, "a")
	if len(r.Breakers.Open()) != 1 {
		t.Error("no breaker is open")
	}
	if err := f.API.Delete(t.Context(), f.Claim("a")); err != nil {
		t.Fatal(err)
	}
	f.Clock = controllertest.Start.Add(15 * time.Minute)
	f.Reconcile(r, "a")
	f.Reconcile(r, "a")
	if got := testutil.ToFloat64(f.Metrics.JoinWaste.WithLabelValues("EndpointUntrusted")); got != 0.25 {
		t.Errorf("%v instance-hours wasted, want 0.25", got)
	}
}

// Of claims that are deleted young, only those count with an instance that terminated by itself.
func TestEndedBeforeLate(t *testing.T) {
	for name, tt := range map[string]struct {
		found cloudprovider.Finding
		want  float64
	}{
		"EC2 could not start it": {cloudprovider.Finding{
			Cause: "VolumeKeyDenied", Certainty: cloudprovider.Likely, InstanceGone: true,
			Message: "m",
		}, 1},
		"somebody deleted it": {cloudprovider.Finding{Cause: "VolumeKeyDenied", Certainty: cloudprovider.Certain, Message: "m"}, 0},
	} {
		f := controllertest.New(t, class(), launched("a"))
		r := reconciler(f, &fakeCloud{found: []cloudprovider.Finding{tt.found}})
		f.Clock = controllertest.Start.Add(10 * time.Second)
		if err := f.API.Delete(t.Context(), f.Claim("a")); err != nil {
			t.Fatal(err)
		}
		f.Reconcile(r, "a")
		if got := testutil.ToFloat64(f.Metrics.JoinFailures.WithLabelValues("VolumeKeyDenied")); got != tt.want {
			t.Errorf("%s: counted %v, want %v", name, got, tt.want)
		}
	}
}

// While a breaker is open nothing is launched, and the node class reports why.
// Each write to a claim being deleted triggers the reconciler. It does not call AWS each time.
func TestEndingClaimIsNotLookedIntoWithoutRest(t *testing.T) {
	ending := launched("a")
	ending.DeletionTimestamp = &metav1.Time{Time: controllertest.Start}
	f := controllertest.New(t, class(), ending)
	o := &fakeCloud{}
	r := reconciler(f, o)
	for range 10 {
		f.Reconcile(r, "a")
	}
	if o.calls != 1 {
		t.Errorf("diagnosed %d times within a moment, want once", o.calls)
	}
}

// A probe for which nothing could be launched has finished, whether or not a reconcile has seen the claim before its
// deletion.
func TestGuardReleasesWhatWasNotBought(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		held bool
	}{
		"no capacity":             {&cloudprovider.InsufficientCapacityError{Err: errors.New("none")}, false},
		"the class has changed":   {&cloudprovider.NodeClassNotReadyError{Err: errors.New("changed")}, false},
		"it will be tried again":  {&cloudprovider.CreateError{Reason: "LaunchFailed", Message: "throttled"}, true},
		"it has got its instance": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			w, o := newWatched(), &fakeCloud{err: tt.err}
			guard := NewLaunchGuard(o, w.Breakers, func() time.Time { return w.clock })
			w.Report(untrust)
			w.clock = w.clock.Add(firstProbe)
			if _, err := guard.LaunchInBatch(t.Context(), launched("a"), class(), nil); !errors.Is(err, tt.err) || o.launched != 1 {
				t.Fatalf("error %v, %d launched", err, o.launched)
			}
			w.clock = w.clock.Add(firstProbe)
			if w.held() != tt.held {
				t.Errorf("held %v, want %v", w.held(), tt.held)
			}
		})
	}
}

func TestGuard(t *testing.T) {
	w, o := newWatched(), &fakeCloud{}
	guard := NewLaunchGuard(o, w.Breakers, func() time.Time { return w.clock })
	if _, err := guard.LaunchInBatch(t.Context(), launched("a"), class(), nil); err != nil || o.launched != 1 {
		t.Fatalf("nothing is wrong, and launching fails: %v", err)
	}
	w.Report(untrust)
	_, err := guard.LaunchInBatch(t.Context(), launched("b"), class(), nil)
	var notReady *cloudprovider.NodeClassNotReadyError
	if !errors.As(err, &notReady) || o.launched != 1 || !strings.Contains(err.Error(), "EndpointUntrusted") {
		t.Errorf("launch under an open breaker: %v, %d launched", err, o.launched)
	}
	resolved := guard.ResolveNodeClass(t.Context(), class())
	last := resolved.Conditions[len(resolved.Conditions)-1]
	if len(resolved.Conditions) != 2 || last.Type != awsv1.ConditionNodesCanJoin || last.Status != metav1.ConditionFalse ||
		last.Reason != "EndpointUntrusted" {
		t.Errorf("conditions %+v", resolved.Conditions)
	}
	if resolved.Next != time.Minute {
		t.Errorf("requeued after %v, want when the next instance may be tried", resolved.Next)
	}
	w.clock = w.clock.Add(time.Minute)
	if _, err := guard.LaunchInBatch(t.Context(), launched("c"), class(), nil); err != nil || o.launched != 2 {
		t.Errorf("the probe is not launched: %v", err)
	}
}
