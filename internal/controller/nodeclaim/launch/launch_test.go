package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
)

// fakeCloud launches one instance, or returns why not.
type fakeCloud struct {
	err    error
	during func()
	// mark is written on the claim before anything is launched; "-" stands for none.
	mark       string
	launched   int
	terminated []string
}

func (s *fakeCloud) LaunchInBatch(
	ctx context.Context,
	_ *karpv1.NodeClaim,
	_ *awsv1.EC2NodeClass,
	annotate func(context.Context, string) error,
) (cloudprovider.Launched, error) {
	if s.mark != "" {
		if err := annotate(ctx, strings.Trim(s.mark, "-")); err != nil {
			return cloudprovider.Launched{}, err
		}
	}
	s.launched++
	if s.during != nil {
		s.during()
	}
	if s.err != nil {
		return cloudprovider.Launched{}, s.err
	}
	return cloudprovider.Launched{
		ProviderID: "aws:///us-east-1a/i-1", ImageID: "ami-1",
		Labels:      map[string]string{corev1.LabelTopologyZone: "us-east-1a", "team": "cloud"},
		Annotations: map[string]string{"both": "cloud", "cloud": "1"},
	}, nil
}

func (s *fakeCloud) Terminate(_ context.Context, permit destroy.Permit) error {
	providerID, err := permit.ProviderID()
	if err != nil {
		return err
	}
	s.terminated = append(s.terminated, providerID)
	return nil
}

func reconciler(f *controllertest.Fixture, s *fakeCloud) *Reconciler {
	return &Reconciler{Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Cloud: s, Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: f.Now}
}

func TestLaunch(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a", func(c *karpv1.NodeClaim) {
		c.Finalizers = nil
		c.Labels["team"] = "claim"
		c.Annotations = map[string]string{"both": "claim", "claim": "1"}
	}))
	s := &fakeCloud{}
	r := reconciler(f, s)
	f.Reconcile(r, "a")
	if s.launched != 0 || !slices.Contains(f.Claim("a").Finalizers, karpv1.FinalizerTermination) {
		t.Fatal("launched before the finalizer was there to give it back")
	}
	if mark := f.Claim("a").Annotations[karpv1.AnnotationLaunch]; mark != cloudprovider.Unlaunched {
		t.Errorf("before the first launch the claim has %q", mark)
	}
	s.mark = "-"
	f.Reconcile(r, "a")
	c := f.Claim("a")
	if !condition.IsTrue(c, karpv1.ConditionLaunched) || c.Status.ProviderID != "aws:///us-east-1a/i-1" || c.Status.ImageID != "ami-1" {
		t.Errorf("status %+v", c.Status)
	}
	if c.Labels["team"] != "claim" || c.Labels[corev1.LabelTopologyZone] != "us-east-1a" {
		t.Errorf("labels %v: the claim's win over the cloud's", c.Labels)
	}
	if diff := cmp.Diff(map[string]string{"both": "cloud", "claim": "1", "cloud": "1"}, c.Annotations); diff != "" {
		t.Errorf("annotations: the cloud's win over the claim's (-want +got):\n%s", diff)
	}
	f.Reconcile(r, "a")
	if s.launched != 1 {
		t.Errorf("launched %d times", s.launched)
	}
}

// While the process waits for AWS, a claim states what for, is not deleted, and launches as soon as that is known.
func TestClaimWaitsForAWS(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{}
	r := reconciler(f, s)
	waiting := fmt.Errorf("%w: ec2-instance-types (InternalError)", cloudprovider.ErrNotKnownYet)
	r.Waiting = func() error { return waiting }
	for range 2 {
		if _, err := f.Try(r, "a"); !errors.Is(err, cloudprovider.ErrNotKnownYet) {
			t.Errorf("error %v", err)
		}
	}
	c, _ := condition.Get(f.Claim("a"), karpv1.ConditionLaunched)
	named := c.Reason == "WaitingForAWS" && strings.Contains(c.Message, "ec2-instance-types")
	if s.launched != 0 || c.Status != metav1.ConditionUnknown || !named {
		t.Errorf("launched %d times, condition %+v", s.launched, c)
	}
	waiting = nil
	f.Reconcile(r, "a")
	if !condition.IsTrue(f.Claim("a"), karpv1.ConditionLaunched) {
		t.Error("it is not launched at once when AWS answers")
	}
}

// The cloud finds out during the launch that it does not know yet what this node class needs. The claim waits: others in its place would
// wait, too.
func TestClaimWaitsForWhatItsNodeClassNeedsOfAWS(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{err: fmt.Errorf("%w: eks-cluster", cloudprovider.ErrNotKnownYet)}
	r := reconciler(f, s)
	for range 3 {
		if _, err := f.Try(r, "a"); !errors.Is(err, cloudprovider.ErrNotKnownYet) {
			t.Errorf("error %v", err)
		}
		claim := f.Claim("a")
		c, _ := condition.Get(claim, karpv1.ConditionLaunched)
		if claim.DeletionTimestamp != nil || c.Reason != "WaitingForAWS" || !strings.Contains(c.Message, "eks-cluster") {
			t.Fatalf("deleted %v, condition %+v", claim.DeletionTimestamp, c)
		}
	}
	s.err = nil
	f.Reconcile(r, "a")
	if !condition.IsTrue(f.Claim("a"), karpv1.ConditionLaunched) {
		t.Error("it is not launched at once when AWS answers")
	}
}

// the launch is repeated, which launches nothing more, and is recorded then.
func TestLostStatusWrite(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{}
	r := reconciler(f, s)
	lost := true
	r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			if lost {
				lost = false
				return errors.New("the API server is gone")
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	if _, err := f.Try(r, "a"); err == nil {
		t.Fatal("the write was lost, without an error")
	}
	f.Reconcile(r, "a")
	c := f.Claim("a")
	if !condition.IsTrue(c, karpv1.ConditionLaunched) || c.Status.ProviderID != "aws:///us-east-1a/i-1" || len(s.terminated) > 0 {
		t.Errorf("status %+v, terminated %v", c.Status, s.terminated)
	}
}

// A claim gets many writes within a minute. The API server need not track which fields they own.
func TestWritesToClaimsAreNotTracked(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a", func(c *karpv1.NodeClaim) {
		c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "dovetail", Operation: metav1.ManagedFieldsOperationUpdate}}
	}))
	f.Reconcile(reconciler(f, &fakeCloud{mark: "x/1/2"}), "a")
	for _, m := range f.Claim("a").ManagedFields {
		if m.Manager != "" {
			t.Errorf("the fields of %s are tracked", m.Manager)
		}
	}
}

// The annotation is written before the call, and the launch continues from it.
func TestEnrolledBeforeItIsBought(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{mark: "x/1/2"}
	s.during = func() {
		if mark := f.Claim("a").Annotations[karpv1.AnnotationLaunch]; mark != "x/1/2" {
			t.Errorf("when the instance is launched, the claim has %q", mark)
		}
	}
	f.Reconcile(reconciler(f, s), "a")
	if c := f.Claim("a"); !condition.IsTrue(c, karpv1.ConditionLaunched) || c.Annotations[karpv1.AnnotationLaunch] != "x/1/2" {
		t.Errorf("claim %+v", c)
	}
}

// A claim that has changed since it was read is not launched: it may be being deleted.
func TestClaimChangesBeforeItIsEnrolled(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{mark: "x/1/2"}
	r := reconciler(f, s)
	stale := f.Claim("a")
	c := f.Claim("a")
	c.Labels["meanwhile"] = "yes"
	f.Do(f.API.Update(f.Context(), c))
	r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if claim, ok := o.(*karpv1.NodeClaim); ok {
				stale.DeepCopyInto(claim)
				return nil
			}
			return api.Get(ctx, key, o, opts...)
		},
	})
	_, err := f.Try(r, "a")
	got := f.Claim("a")
	if !apierrors.IsConflict(err) || s.launched != 0 || got.Annotations[karpv1.AnnotationLaunch] != "" ||
		len(got.Status.Conditions) != len(stale.Status.Conditions) {
		t.Errorf("launched %d times, claim %+v", s.launched, got)
	}
}

// The cache may show a claim as it was before its launch was written down.
func TestStaleClaimIsNotLaunchedAgain(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{}
	r := reconciler(f, s)
	stale := f.Claim("a")
	f.Reconcile(r, "a")
	r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			stale.DeepCopyInto(o.(*karpv1.NodeClaim))
			return nil
		},
	})
	f.Reconcile(r, "a")
	if s.launched != 1 {
		t.Errorf("launched %d times", s.launched)
	}
}

// A replica that has just taken over may read a claim from before the one before it has launched it. Whatever it makes
// of that, the claim has its instance, and stays.
func TestStaleClaimIsNotGivenUp(t *testing.T) {
	notReady := func(c *awsv1.EC2NodeClass) {
		condition.SetFalse(c, awsv1.ConditionAMIsReady, condition.Because("AMINotFound", ""), controllertest.Start)
	}
	f := controllertest.New(t, controllertest.Class(notReady), controllertest.Claim("a", controllertest.Initialized))
	r := reconciler(f, &fakeCloud{})
	stale := controllertest.Claim("a")
	stale.ResourceVersion = "1"
	r.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if claim, ok := o.(*karpv1.NodeClaim); ok {
				stale.DeepCopyInto(claim)
				return nil
			}
			return api.Get(ctx, key, o, opts...)
		},
	})
	if _, err := f.Try(r, "a"); !apierrors.IsConflict(err) {
		t.Errorf("error %v, want a conflict", err)
	}
	if f.Claim("a").DeletionTimestamp != nil || f.Counted("nodeclass_not_ready") > 0 {
		t.Error("a claim with a node is deleted, since an old version of it has none")
	}
}

func TestLeftAlone(t *testing.T) {
	tests := []struct {
		name   string
		change func(*karpv1.NodeClaim)
	}{
		{"another provider's", func(c *karpv1.NodeClaim) { c.Finalizers, c.Spec.NodeClassRef.Kind = nil, "Other" }},
		{"being deleted", controllertest.Deleting},
		{"launched", controllertest.Launched},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a", tt.change))
			before := f.Claim("a")
			s := &fakeCloud{}
			f.Reconcile(reconciler(f, s), "a")
			if diff := cmp.Diff(before, f.Claim("a")); diff != "" || s.launched != 0 {
				t.Errorf("launched %d, changed:\n%s", s.launched, diff)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	const long = 1200
	changed := func(change func(*awsv1.EC2NodeClass)) func() *awsv1.EC2NodeClass {
		return func() *awsv1.EC2NodeClass { return controllertest.Class(change) }
	}
	ready := changed(func(*awsv1.EC2NodeClass) {})
	tests := []struct {
		name  string
		class func() *awsv1.EC2NodeClass
		err   error
		// gone claims are deleted and counted for it; others show reason and message, and are retried.
		gone            string
		reason, message string
		event           string
		launched        int
	}{
		{
			"no capacity",
			ready,
			&cloudprovider.InsufficientCapacityError{Err: errors.New("all zones")},
			"insufficient_capacity",
			"",
			"",
			"InsufficientCapacityError",
			1,
		},
		{
			"class not ready",
			ready,
			&cloudprovider.NodeClassNotReadyError{Err: errors.New("no subnets")},
			"nodeclass_not_ready",
			"",
			"",
			"",
			1,
		},
		{
			"reason and message",
			ready,
			&cloudprovider.CreateError{Reason: "Unauthorized", Message: "not allowed"},
			"",
			"Unauthorized",
			"not allowed",
			"",
			1,
		},
		{"anything else", ready, errors.New("boom"), "", "LaunchFailed", "boom", "", 1},
		{"a long message is cut", ready, errors.New(strings.Repeat("x", long)), "", "LaunchFailed", strings.Repeat("x", 1021) + "...", "", 1},
		{"class is missing", nil, nil, "insufficient_capacity", "", "", "InsufficientCapacityError", 0},
		{"class is being deleted", changed(func(c *awsv1.EC2NodeClass) {
			c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: controllertest.Start}, []string{awsv1.FinalizerTermination}
		}), nil, "insufficient_capacity", "", "", "InsufficientCapacityError", 0},
		{"class is not ready", changed(func(c *awsv1.EC2NodeClass) {
			condition.SetFalse(c, awsv1.ConditionAMIsReady, condition.Because("AMINotFound", ""), controllertest.Start)
		}), nil, "nodeclass_not_ready", "", "", "", 0},
		{
			"class has not events yet",
			func() *awsv1.EC2NodeClass { return &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}} },
			nil,
			"",
			"NodeClassReadinessUnknown",
			`the readiness of node class "default" is not known yet`,
			"",
			0,
		},
		{
			"class has changed since its last reconcile",
			changed(func(c *awsv1.EC2NodeClass) { c.Generation = 2 }),
			nil,
			"nodeclass_not_ready",
			"",
			"",
			"",
			0,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := []client.Object{controllertest.Claim("a")}
			if tt.class != nil {
				objects = append(objects, tt.class())
			}
			f := controllertest.New(t, objects...)
			s := &fakeCloud{err: tt.err}
			result, err := f.Try(reconciler(f, s), "a")
			c := f.Claim("a")
			gone, waits := c.DeletionTimestamp != nil, result.RequeueAfter > 0
			if gone != (tt.gone != "") || waits != (tt.reason == reasonReadinessUnknown) || (err != nil) != (!gone && !waits) {
				t.Errorf("deleted %v, requeued after %v, error %v", gone, result.RequeueAfter, err)
			}
			if tt.gone != "" && f.Counted(tt.gone) != 1 {
				t.Errorf("not counted as %s", tt.gone)
			}
			if got, _ := condition.Get(c, karpv1.ConditionLaunched); tt.reason != "" &&
				(got.Status != metav1.ConditionUnknown || got.Reason != tt.reason || got.Message != tt.message) {
				t.Errorf("Launched %+v, want Unknown, %s: %s", got, tt.reason, tt.message)
			}
			recorded := f.RecordedEvents()
			if events := strings.Join(recorded, "\n"); (tt.event == "") != (events == "") || !strings.Contains(events, tt.event) {
				t.Errorf("events %q, want %q", events, tt.event)
			}
			if tt.class == nil && !slices.Contains(recorded,
				`Warning InsufficientCapacityError NodeClaim a event: node class "default" does not exist`) {
				t.Errorf("events %q name a lack of capacity", recorded)
			}
			if s.launched != tt.launched {
				t.Errorf("the cloud was called %d times, want %d", s.launched, tt.launched)
			}
		})
	}
}

// conditions keep the time since which they are Unknown, whatever the words.
func TestFailingLaunchCountsFromCreation(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{}
	r := reconciler(f, s)
	for _, words := range []string{"one", "two"} {
		f.Clock = f.Clock.Add(time.Minute)
		s.err = errors.New(words)
		if _, err := f.Try(r, "a"); err == nil {
			t.Fatal("no error, no back-off")
		}
		if c, _ := condition.Get(f.Claim("a"), karpv1.ConditionLaunched); !c.LastTransitionTime.Time.Equal(controllertest.Start) ||
			c.Message != words {
			t.Errorf("Launched %+v", c)
		}
	}
}

func TestClaimGoesWhileItsInstanceIsBought(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{during: func() {
		c := f.Claim("a")
		c.Finalizers = nil
		f.Do(f.API.Update(f.Context(), c))
		f.Do(f.API.Delete(f.Context(), c))
	}}
	f.Reconcile(reconciler(f, s), "a")
	if diff := cmp.Diff([]string{"aws:///us-east-1a/i-1"}, s.terminated); diff != "" {
		t.Errorf("no claim owns the instance, and it was not terminated (-want +got):\n%s", diff)
	}
}

func TestClaimChangesWhileItsInstanceIsBought(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(), controllertest.Claim("a"))
	s := &fakeCloud{during: func() {
		c := f.Claim("a")
		c.Labels["meanwhile"] = "yes"
		f.Do(f.API.Update(f.Context(), c))
	}}
	r := reconciler(f, s)
	if _, err := f.Try(r, "a"); err == nil {
		t.Fatal("overwrote another writer's change")
	}
	s.during = nil
	f.Reconcile(r, "a")
	if c := f.Claim("a"); !condition.IsTrue(c, karpv1.ConditionLaunched) || c.Labels["meanwhile"] != "yes" || len(s.terminated) > 0 {
		t.Errorf("claim %+v, terminated %v", c, s.terminated)
	}
}

func TestWakes(t *testing.T) {
	unlaunched := controllertest.Claim("a")
	tests := []struct {
		name   string
		change func(*karpv1.NodeClaim)
		want   bool
	}{
		{"its own words about a failure", func(c *karpv1.NodeClaim) {
			condition.SetUnknown(c, karpv1.ConditionLaunched, condition.Because("LaunchFailed", "RequestID: 7"), controllertest.Start)
		}, false},
		{"launched", controllertest.Launched, true},
		{"finalizer", func(c *karpv1.NodeClaim) { c.Finalizers = nil }, true},
		{"deletion", controllertest.Deleting, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after := unlaunched.DeepCopy()
			tt.change(after)
			if got := predicates().Update(event.UpdateEvent{ObjectOld: unlaunched, ObjectNew: after}); got != tt.want {
				t.Errorf("triggers: %v, want %v", got, tt.want)
			}
		})
	}
}
