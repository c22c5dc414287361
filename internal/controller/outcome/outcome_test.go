package outcome

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/claimevents"
	"github.com/dovetail-k8s/dovetail/internal/recorder"
)

type steps []string

func (s *steps) Step(x recorder.Step) {
	*s = append(*s, fmt.Sprintf("%s %s %s %s", x.Decision, x.What, x.Object, x.At.UTC().Format("15:04:05")))
}

func TestTheStepsOfAClaimAreRecordedOnce(t *testing.T) {
	now := time.Date(2026, 8, 21, 12, 0, 0, 0, time.UTC)
	var got steps
	w := &Watcher{Recorder: &got, Now: func() time.Time { return now.Add(time.Hour) }}
	h := claimevents.Handler(w.observe, w.gone)
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "c", UID: "u", Annotations: map[string]string{karpv1.AnnotationDecision: "p-1-0"},
	}}
	h.OnAdd(claim, false)
	condition.SetTrue(claim, karpv1.ConditionLaunched, now)
	h.OnUpdate(claim, claim)
	h.OnUpdate(claim, claim)
	condition.SetTrue(claim, karpv1.ConditionRegistered, now.Add(time.Minute))
	h.OnUpdate(claim, claim)
	if err := claim.SetDisruptionCommand(&karpv1.DisruptionCommand{ID: "d-2", Candidates: []string{"c"}}); err != nil {
		t.Fatal(err)
	}
	at := metav1.NewTime(now.Add(30 * time.Minute))
	claim.DeletionTimestamp = &at
	h.OnUpdate(claim, claim)
	h.OnDelete(claim)
	want := steps{
		"p-1-0 launched c 12:00:00", "p-1-0 registered c 12:01:00", "d-2 deleting c 12:30:00", "d-2 terminated c 13:00:00",
		"p-1-0 terminated c 13:00:00",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhatALaunchWaitsForAndHowANodeGoesAreSteps(t *testing.T) {
	now := time.Date(2026, 8, 21, 12, 0, 0, 0, time.UTC)
	seen := now
	var got steps
	w := &Watcher{Recorder: &got, Now: func() time.Time { return seen }}
	h := claimevents.Handler(w.observe, w.gone)
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "c", UID: "u", Annotations: map[string]string{karpv1.AnnotationDecision: "p-1-0"},
	}}
	for _, why := range []string{"the node is not ready", "the node is not ready", "a taint still exists"} {
		condition.SetUnknown(claim, karpv1.ConditionInitialized, condition.Cause{Reason: "NodeNotReady", Message: why}, now)
		h.OnUpdate(claim, claim)
		seen = seen.Add(time.Minute)
	}
	deleted := metav1.NewTime(now.Add(time.Hour))
	claim.DeletionTimestamp = &deleted
	condition.SetTrue(claim, karpv1.ConditionDrained, now.Add(61*time.Minute))
	condition.SetTrue(claim, karpv1.ConditionVolumesDetached, now.Add(62*time.Minute))
	h.OnUpdate(claim, claim)
	want := steps{
		"p-1-0 waiting c 12:00:00", "p-1-0 waiting c 12:02:00", "p-1-0 deleting c 13:00:00", "p-1-0 drained c 13:01:00",
		"p-1-0 volumes detached c 13:02:00",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAClaimWithoutADecisionHasNoSteps(t *testing.T) {
	var got steps
	w := &Watcher{Recorder: &got, Now: time.Now}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u"}}
	condition.SetTrue(claim, karpv1.ConditionLaunched, time.Now())
	claimevents.Handler(w.observe, w.gone).OnAdd(claim, true)
	claimevents.Handler(w.observe, w.gone).OnDelete(claim)
	if len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestWhatEC2GaveIsRecordedWithItsPrice(t *testing.T) {
	now := time.Date(2026, 8, 21, 12, 0, 0, 0, time.UTC)
	var got instances
	price := 0.1
	w := &Watcher{Recorder: &got, Now: func() time.Time { return now }, Price: func(labels map[string]string) (float64, bool) {
		return price, labels[corev1.LabelInstanceTypeStable] == "m7i.large"
	}}
	claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "c", UID: "u", Annotations: map[string]string{karpv1.AnnotationDecision: "p-1-0"}, Labels: map[string]string{
			karpv1.LabelNodePool: "general", corev1.LabelInstanceTypeStable: "m7i.large", corev1.LabelTopologyZone: "us-east-1b",
			karpv1.LabelCapacityType: karpv1.CapacityTypeSpot,
		},
	}}
	condition.SetTrue(claim, karpv1.ConditionLaunched, now)
	condition.SetTrue(claim, karpv1.ConditionRegistered, now)
	claimevents.Handler(w.observe, w.gone).OnAdd(claim, false)
	price = 0.2 // of spot, a minute later
	claimevents.Handler(w.observe, w.gone).OnUpdate(claim, claim)
	want := instances{{
		NodePool: "general", InstanceType: "m7i.large", Zone: "us-east-1b", CapacityType: karpv1.CapacityTypeSpot, HourlyCost: 0.1,
	}, {}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

type instances []recorder.Instance

func (s *instances) Step(x recorder.Step) { *s = append(*s, x.Instance) }
