package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/controllertest/kill"
)

// fakeCloud returns a given resolution of a class.
type fakeCloud struct {
	resolution cloudprovider.Resolution
	deleted    []string
	err        error
}

func (a *fakeCloud) ResolveNodeClass(context.Context, *awsv1.EC2NodeClass) cloudprovider.Resolution {
	return a.resolution
}

func (a *fakeCloud) NodeClassHash(*awsv1.EC2NodeClass) (hash, version string, err error) {
	return "new", "v4", nil
}

func (a *fakeCloud) DeleteNodeClassResources(_ context.Context, class *awsv1.EC2NodeClass) error {
	a.deleted = append(a.deleted, class.Name)
	return a.err
}

func reconciler(f *controllertest.Fixture, a *fakeCloud) *Reconciler {
	return &Reconciler{Client: f.API, Cloud: a, Events: f.Events, Log: f.Log, Now: f.Now}
}

func stamped(c *awsv1.EC2NodeClass) {
	c.Finalizers = []string{awsv1.FinalizerTermination}
	c.Annotations = map[string]string{awsv1.AnnotationNodeClassHash: "new", awsv1.AnnotationNodeClassHashVersion: "v4"}
}

func deleting(c *awsv1.EC2NodeClass) {
	stamped(c)
	c.DeletionTimestamp = &metav1.Time{Time: controllertest.Start}
}

func class(f *controllertest.Fixture) *awsv1.EC2NodeClass {
	c := &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if !f.Get(c) {
		return nil
	}
	return c
}

func TestResolutionIsWritten(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(stamped))
	lost := errors.New("images: throttled")
	a := &fakeCloud{resolution: cloudprovider.Resolution{
		Status: awsv1.EC2NodeClassStatus{Subnets: []awsv1.Subnet{{ID: "subnet-1", Zone: "us-east-1a"}}},
		Conditions: []cloudprovider.Condition{
			{Type: awsv1.ConditionSubnetsReady, Status: metav1.ConditionTrue},
			{Type: awsv1.ConditionSecurityGroupsReady, Status: metav1.ConditionFalse, Reason: "SecurityGroupsNotFound", Message: "none"},
		},
		Next: 5 * time.Minute, Err: lost,
	}}
	r := reconciler(f, a)
	if _, err := f.Try(r, "default"); !errors.Is(err, lost) {
		t.Errorf("error %v, want %v", err, lost)
	}
	c := class(f)
	if len(c.Status.Subnets) != 1 || !condition.IsFalse(c, awsv1.ConditionSecurityGroupsReady) || !condition.IsFalse(c, condition.Ready) {
		t.Errorf("status %+v", c.Status)
	}
	if !condition.IsTrue(c, awsv1.ConditionAMIsReady) {
		t.Error("a condition about which nothing was found out has changed")
	}
	a.resolution.Err = nil
	version := c.ResourceVersion
	if result := f.Reconcile(r, "default"); result.RequeueAfter != 5*time.Minute {
		t.Errorf("is requeued after %v", result.RequeueAfter)
	}
	if class(f).ResourceVersion != version {
		t.Error("written again, though nothing has changed")
	}
}

// Runbooks and tests compare the message of Ready with Karpenter's: what follows from a selector without match is named first.
func TestReadyNamesWhatFailsInKarpentersOrder(t *testing.T) {
	for want, failed := range map[string]string{
		"ValidationSucceeded=False, SubnetsReady=False":        awsv1.ConditionSubnetsReady,
		"ValidationSucceeded=False, SecurityGroupsReady=False": awsv1.ConditionSecurityGroupsReady,
	} {
		f := controllertest.New(t, controllertest.Class(stamped))
		f.Reconcile(reconciler(f, &fakeCloud{resolution: cloudprovider.Resolution{
			Conditions: []cloudprovider.Condition{
				{Type: failed, Status: metav1.ConditionFalse, Reason: "NotFound", Message: "none"},
				{Type: awsv1.ConditionValidationSucceeded, Status: metav1.ConditionFalse, Reason: "DependenciesNotReady"},
			},
			Next: time.Minute,
		}}), "default")
		if ready, _ := condition.Get(class(f), condition.Ready); ready.Message != want {
			t.Errorf("message %q, want %q", ready.Message, want)
		}
	}
}

// While the process waits for AWS, a class states what for, and stays Ready with what it was resolved to before; the condition goes with
// its cause.
func TestClassSaysWhatLaunchesWaitFor(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(stamped))
	a := &fakeCloud{resolution: cloudprovider.Resolution{
		Status:     awsv1.EC2NodeClassStatus{Subnets: []awsv1.Subnet{{ID: "subnet-1", Zone: "us-east-1a"}}},
		Conditions: []cloudprovider.Condition{{Type: awsv1.ConditionSubnetsReady, Status: metav1.ConditionTrue}},
		Next:       5 * time.Minute,
	}}
	r := reconciler(f, a)
	f.Reconcile(r, "default")
	ready := condition.IsTrue(class(f), condition.Ready)
	waiting := fmt.Errorf("%w: eks-cluster (InternalError)", cloudprovider.ErrNotKnownYet)
	r.Waiting = func() error { return waiting }
	a.resolution = cloudprovider.Resolution{}
	if result := f.Reconcile(r, "default"); result.RequeueAfter == 0 {
		t.Error("it is not looked at again")
	}
	c, ok := condition.Get(class(f), awsv1.ConditionAWSReachable)
	if !ok || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "eks-cluster (InternalError)") {
		t.Errorf("condition %+v", c)
	}
	if len(class(f).Status.Subnets) != 1 || condition.IsTrue(class(f), condition.Ready) != ready {
		t.Errorf("the status has changed: %+v", class(f).Status)
	}
	waiting = nil
	f.Reconcile(r, "default")
	if _, ok := condition.Get(class(f), awsv1.ConditionAWSReachable); ok {
		t.Error("the condition stays when AWS answers")
	}
}

// While AWS fails, a class names the earlier answers that launches use, and stays Ready; the condition goes with its cause.
func TestClassNamesEarlierAnswersInUse(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(stamped))
	a := &fakeCloud{resolution: cloudprovider.Resolution{
		Conditions: []cloudprovider.Condition{{Type: awsv1.ConditionSubnetsReady, Status: metav1.ConditionTrue}}, Next: 5 * time.Minute,
	}}
	r := reconciler(f, a)
	f.Reconcile(r, "default")
	ready := condition.IsTrue(class(f), condition.Ready)
	earlier := []string{"ec2-instance-types (no answer; those of 2026-03-01T11:00:00Z)"}
	r.StandIns = func() []string { return earlier }
	a.resolution.Unread = []string{"images (InternalError)"}
	f.Reconcile(r, "default")
	c, ok := condition.Get(class(f), awsv1.ConditionAWSReachable)
	const want = "launches use what AWS has returned before of ec2-instance-types (no answer; those of 2026-03-01T11:00:00Z), " +
		"images (InternalError)"
	if !ok || c.Status != metav1.ConditionFalse || c.Reason != "LastKnownGood" || c.Message != want {
		t.Errorf("condition %+v", c)
	}
	if condition.IsTrue(class(f), condition.Ready) != ready {
		t.Error("Ready has changed")
	}
	version := class(f).ResourceVersion
	f.Reconcile(r, "default")
	if class(f).ResourceVersion != version {
		t.Error("written again, though nothing has changed")
	}
	a.resolution.Unread, earlier = nil, nil
	f.Reconcile(r, "default")
	if _, ok := condition.Get(class(f), awsv1.ConditionAWSReachable); ok {
		t.Error("the condition stays when AWS answers")
	}
}

// An edit that has no effect is events on the class, and does not stop it.
func TestFieldsWithoutEffectAreNamedOnTheClass(t *testing.T) {
	f := controllertest.New(t, controllertest.Class(stamped, func(c *awsv1.EC2NodeClass) {
		c.Spec.AMIFamily = awsv1.AMIFamilyBottlerocket
		c.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(`{"podsPerCore": 2}`)}
	}))
	f.Reconcile(reconciler(f, &fakeCloud{resolution: cloudprovider.Resolution{Next: time.Minute}}), "default")
	want := []string{"Warning FieldWithoutEffect spec.kubelet.podsPerCore: the image family has no setting for it, so it is ignored"}
	if diff := cmp.Diff(want, f.RecordedEvents()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStamp(t *testing.T) {
	claim := func(name, hash, version string, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
		return controllertest.Claim(name, append(change, func(c *karpv1.NodeClaim) {
			c.Annotations = map[string]string{awsv1.AnnotationNodeClassHash: hash, awsv1.AnnotationNodeClassHashVersion: version}
		})...)
	}
	f := controllertest.New(t,
		controllertest.Class(func(c *awsv1.EC2NodeClass) {
			c.Annotations = map[string]string{awsv1.AnnotationNodeClassHash: "old", awsv1.AnnotationNodeClassHashVersion: "v3"}
		}),
		claim("plain", "old", "v3"),
		claim("drifted", "old", "v3", func(c *karpv1.NodeClaim) { condition.SetTrue(c, karpv1.ConditionDrifted, controllertest.Start) }),
		claim("stamped", "other", "v4"),
		claim("another-class", "old", "v3", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Name = "gpu" }),
	)
	f.Reconcile(reconciler(f, &fakeCloud{}), "default")
	if c := class(f); !slices.Contains(c.Finalizers, awsv1.FinalizerTermination) || c.Annotations[awsv1.AnnotationNodeClassHash] != "new" {
		t.Errorf("class %+v", c.ObjectMeta)
	}
	want := map[string]string{"plain": "new v4", "drifted": "old v4", "stamped": "other v4", "another-class": "old v3"}
	got := map[string]string{}
	for name := range want {
		a := f.Claim(name).Annotations
		got[name] = a[awsv1.AnnotationNodeClassHash] + " " + a[awsv1.AnnotationNodeClassHashVersion]
	}
	t.Run("under a new version every claim is stamped, and one that has drifted keeps its hash", func(t *testing.T) {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("claims (-want +got):\n%s", diff)
		}
	})
}

func TestFinalize(t *testing.T) {
	tests := []struct {
		name    string
		objects []client.Object
		err     error
		// gone classes are gone; for others the test checks whether the cloud resources were deleted.
		gone, cleared bool
		event         string
	}{
		{"nothing refers to it", []client.Object{controllertest.Class(deleting)}, nil, true, true, ""},
		{
			"a claim still does",
			[]client.Object{controllertest.Class(deleting), controllertest.Claim("a")},
			nil,
			false,
			false,
			"WaitingOnNodeClaimTermination",
		},
		{
			"another class's claim",
			[]client.Object{
				controllertest.Class(deleting),
				controllertest.Claim("a", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Name = "gpu" }),
			},
			nil,
			true,
			true,
			"",
		},
		{"what was made for it cannot be deleted", []client.Object{controllertest.Class(deleting)}, errors.New("denied"), false, true, ""},
		{
			"not ours to finalize",
			[]client.Object{controllertest.Class(deleting, func(c *awsv1.EC2NodeClass) { c.Finalizers = []string{"theirs/x"} })},
			nil,
			false,
			false,
			"",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, tt.objects...)
			a := &fakeCloud{err: tt.err}
			_, err := f.Try(reconciler(f, a), "default")
			if (err != nil) != (tt.err != nil) {
				t.Errorf("error %v", err)
			}
			if gone := class(f) == nil; gone != tt.gone || (len(a.deleted) > 0) != tt.cleared {
				t.Errorf("gone %v, cleared %v", gone, a.deleted)
			}
			if events := strings.Join(f.RecordedEvents(), "\n"); (tt.event == "") != (events == "") || !strings.Contains(events, tt.event) {
				t.Errorf("events %q, want %q", events, tt.event)
			}
		})
	}
}

func TestClaimWakesItsClass(t *testing.T) {
	theirs := controllertest.Claim("b", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Kind = "Other" })
	if got := classOf(t.Context(), theirs); len(got) > 0 {
		t.Errorf("another provider's claim enqueues %v", got)
	}
	// One that was deleted before it had a finalizer goes without a deletion timestamp.
	if got := classOf(t.Context(), controllertest.Claim("a")); len(got) != 1 || got[0].Name != "default" {
		t.Errorf("enqueues %v, want its class", got)
	}
}

func TestKilled(t *testing.T) {
	kill.Run(t, kill.Scenario{
		Objects: func() []client.Object {
			old := map[string]string{awsv1.AnnotationNodeClassHash: "old", awsv1.AnnotationNodeClassHashVersion: "v3"}
			objects := []client.Object{
				controllertest.Class(func(c *awsv1.EC2NodeClass) { c.Annotations, c.Status = old, awsv1.EC2NodeClassStatus{} }),
			}
			for _, name := range []string{"a", "b"} {
				objects = append(objects, controllertest.Claim(name, func(c *karpv1.NodeClaim) { c.Annotations = old }))
			}
			return objects
		},
		Process: func(w *kill.World, c client.Client, _ *kill.Cloud) []kill.Actor {
			f := controllertest.New(t)
			ready := cloudprovider.Resolution{Next: time.Hour}
			for _, typ := range (&awsv1.EC2NodeClass{}).ConditionTypes().Dependents {
				ready.Conditions = append(ready.Conditions, cloudprovider.Condition{Type: typ, Status: metav1.ConditionTrue})
			}
			return []kill.Actor{
				{
					Kind:       &awsv1.EC2NodeClassList{},
					Reconciler: &Reconciler{Client: c, Cloud: &fakeCloud{resolution: ready}, Events: f.Events, Log: f.Log, Now: w.Now},
				},
			}
		},
		Check: func(t *testing.T, w *kill.World) {
			c := &awsv1.EC2NodeClass{}
			if err := w.API.Get(t.Context(), client.ObjectKey{Name: "default"}, c); err != nil || !condition.IsTrue(c, condition.Ready) {
				t.Errorf("class %+v, error %v", c.Status, err)
			}
		},
	})
}
