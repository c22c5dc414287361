package nodereport_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// The forecast counts grace periods, what holds pods back, and the bound of the node.
func TestHowLongADrainWouldTake(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plant func(*world)
		want  string
	}{
		{"a grace period", func(w *world) { w.pod().Spec.TerminationGracePeriodSeconds = new(int64(90)) }, "its pods leave within 1m35s"},
		{
			"a protected pod", func(w *world) { w.pod().Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} },
			"its pods leave within 5s, but shop/web-1, which its annotation karpenter.sh/do-not-disrupt keeps",
		},
		{
			"with a bound", func(w *world) {
				w.pod().Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
				w.claim().Spec.TerminationGracePeriod = &metav1.Duration{Duration: 10 * time.Minute}
			},
			"its pods leave within 10m",
		},
		{"a budget", func(w *world) { w.addPDB("web") }, "its pods leave within 5s, but shop/web-1, which a PodDisruptionBudget keeps"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, deleted := range []bool{false, true} {
				w := lone()
				tt.plant(w)
				if deleted && tt.name != "with a bound" { // of a claim that is deleted, the annotation has the bound
					w.claim().DeletionTimestamp = &metav1.Time{Time: now}
				}
				if got := explained(t, w).Drain; got == nil || got.String() != tt.want {
					t.Errorf("deleted %v: got %v, want %s", deleted, got, tt.want)
				}
			}
		})
	}
}

// A node that waits for the restart of a Deployment names it.
func TestNodeThatWaitsForARestart(t *testing.T) {
	for _, tt := range []struct {
		name   string
		surges []karpv1.Surge
		want   string
	}{
		{
			"one",
			[]karpv1.Surge{{Namespace: "shop", Name: "web", Began: &metav1.Time{Time: now}}},
			"is about to be removed because it drifted, once Deployment shop/web has a Ready pod elsewhere",
		},
		{
			"two",
			[]karpv1.Surge{
				{Namespace: "shop", Name: "web", Began: &metav1.Time{Time: now}}, {Namespace: "shop", Name: "api", Began: &metav1.Time{Time: now}},
			},
			"is about to be removed because it drifted, once each of Deployment shop/web and 1 more has a Ready pod elsewhere",
		},
		{
			"given up",
			[]karpv1.Surge{{Namespace: "shop", Name: "web", Began: &metav1.Time{Time: now}, GaveUp: true}},
			"is about to be removed because it drifted",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := lone()
			record := karpv1.DisruptionCommand{ID: "d-1", Reason: karpv1.DisruptionDrifted, Candidates: []string{w.claim().Name}, Surges: tt.surges}
			if err := w.claim().SetDisruptionCommand(&record); err != nil {
				t.Fatal(err)
			}
			if text := explained(t, w).Verdict.Text; !strings.HasSuffix(text, tt.want) {
				t.Errorf("got  %s\nwant %s", text, tt.want)
			}
		})
	}
}

// A node that is being removed reports what its drain waits for, as the controller decides it.
func TestWhatADrainWaitsFor(t *testing.T) {
	daemon := func(w *world) {
		w.pod().OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent"}}
	}
	for _, tt := range []struct {
		name  string
		plant func(*world)
		says  string
	}{
		{"a pod", func(*world) {}, "1 pod to evict yet, such as shop/web-1"},
		{"a daemon leaves, too", daemon, "1 pod to evict yet, such as shop/web-1"},
		{
			"a pod that tolerates the taint stays to the end",
			func(w *world) { w.pod().Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} },
			"it is drained, and its instance ends",
		},
		{
			"a pod that is kept, rather than others", func(w *world) {
				w.addPod("web-2", "ip-10-0-1-7", "100m")
				w.Pods[1].Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
			},
			"2 pods to evict yet, such as shop/web-2, which its annotation karpenter.sh/do-not-disrupt keeps",
		},
		{"a budget", func(w *world) { w.addPDB("web") }, "1 pod to evict yet, such as shop/web-1, which a PodDisruptionBudget keeps"},
		{
			"a sibling that is not Ready", func(w *world) {
				w.addPod("web-2", "ip-10-0-1-8", "100m")
				for _, p := range w.Pods {
					metav1.SetMetaDataAnnotation(&p.ObjectMeta, karpv1.AnnotationDrain, "Ordered")
					p.OwnerReferences = []metav1.OwnerReference{
						{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "web", Controller: new(true)},
					}
				}
			},
			"1 pod to evict yet, such as shop/web-1, which waits for other pods of its owner to be Ready, since dovetail.sh/drain is Ordered",
		},
		{
			"a job that is almost done", func(w *world) {
				p := w.pod()
				p.Spec.RestartPolicy, p.Status.StartTime = corev1.RestartPolicyNever, &metav1.Time{Time: now.Add(-time.Hour)}
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, karpv1.AnnotationExpectedDuration, "65m")
			},
			"1 pod to evict yet, such as shop/web-1, which completes by itself soon",
		},
		{
			"volumes", func(w *world) {
				w.Pods = nil
				condition.SetTrue(w.claim(), karpv1.ConditionDrained, now)
				condition.SetUnknown(w.claim(), karpv1.ConditionVolumesDetached, condition.Because("AwaitingVolumeDetachment", ""), now)
			},
			"it is drained, and its volumes are not detached yet",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := lone()
			w.claim().DeletionTimestamp = &metav1.Time{Time: now}
			tt.plant(w)
			if text := explained(t, w).Verdict.Text; !strings.HasSuffix(text, "; "+tt.says) {
				t.Errorf("got  %s\nwant %s", text, tt.says)
			}
		})
	}
}
