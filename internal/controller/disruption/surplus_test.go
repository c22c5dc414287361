package disruption

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controller/metrics"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

func withUID(p *corev1.Pod) { p.UID = types.UID(p.Name) }

func launchedFor(pods string) func(*karpv1.NodeClaim) {
	return func(c *karpv1.NodeClaim) {
		consolidatableClaim(c)
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationNominatedPods, pods)
	}
}

// surplusCounts are the counts of surplus launches that are not 0.
func surplusCounts(f *controllertest.Fixture) map[metrics.Surplus]float64 {
	out := map[metrics.Surplus]float64{}
	for _, cause := range []metrics.Surplus{
		metrics.SurplusLaunchedAgain, metrics.SurplusBoundElsewhere, metrics.SurplusUnbound, metrics.SurplusPodsGone,
	} {
		if n := testutil.ToFloat64(f.Metrics.SurplusLaunches.WithLabelValues(string(cause))); n != 0 {
			out[cause] = n
		}
	}
	return out
}

// An empty node is removed in each case. Its launch is surplus if it was for pods and none has ever come.
func TestSurplusLaunches(t *testing.T) {
	done := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	leaving := func(p *corev1.Pod) {
		p.Finalizers, p.DeletionTimestamp = []string{"a/b"}, &metav1.Time{Time: controllertest.Start}
	}
	for _, tt := range []struct {
		name   string
		change func(*karpv1.NodeClaim)
		pods   []client.Object
		want   metrics.Surplus
	}{
		{"another claim was launched for its pods", launchedFor(""), nil, metrics.SurplusLaunchedAgain},
		{
			"its pods run elsewhere", launchedFor("a,b"),
			[]client.Object{controllertest.Pod("a", "other", withUID), controllertest.Pod("b", "other", withUID, done)},
			metrics.SurplusBoundElsewhere,
		},
		{
			"one of its pods waits", launchedFor("a,b"),
			[]client.Object{controllertest.Pod("a", "other", withUID), controllertest.Pod("b", "", withUID)},
			metrics.SurplusUnbound,
		},
		{"its pod was deleted", launchedFor("a"), []client.Object{controllertest.Pod("x", "other", withUID)}, metrics.SurplusPodsGone},
		{"its pod is leaving", launchedFor("a"), []client.Object{controllertest.Pod("a", "", withUID, leaving)}, metrics.SurplusPodsGone},
		{
			"a daemon is there", launchedFor(""),
			[]client.Object{controllertest.Pod("agent", "node-n", controllertest.OwnedByDaemonSet)},
			metrics.SurplusLaunchedAgain,
		},
		{"a pod was there before", func(c *karpv1.NodeClaim) {
			launchedFor("")(c)
			c.Status.LastPodEventTime = metav1.Time{Time: controllertest.Start}
		}, nil, ""},
		{"a pod that ended is still listed there", launchedFor("a"), []client.Object{controllertest.Pod("a", "node-n", withUID, done)}, ""},
		{"launched for no pods, as those of pools with replicas", consolidatableClaim, nil, ""},
		{"launched for a buffer, too", func(c *karpv1.NodeClaim) {
			launchedFor("")(c)
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, karpv1.AnnotationNominatedBuffers, "v")
		}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			objects := append(emptyNodes(), controllertest.Claim("n", tt.change), controllertest.ReadyNode("n"))
			f := controllertest.New(t, append(objects, tt.pods...)...)
			f.Clock = f.Clock.Add(2 * time.Minute) // its pods are no longer expected
			l, _ := loop(f)
			passes(t, l)
			if diff := cmp.Diff([]string{"n"}, deletingClaims(f)); diff != "" {
				t.Fatalf("ending (-want +got):\n%s", diff)
			}
			want := map[metrics.Surplus]float64{}
			if tt.want != "" {
				want[tt.want] = 1
			}
			restarted, _ := loop(f)
			passes(t, restarted)
			if diff := cmp.Diff(want, surplusCounts(f)); diff != "" {
				t.Errorf("after a restart, too (-want +got):\n%s", diff)
			}
		})
	}
}

// Drift and repair remove nodes that pods might still have come to; a node that takes no pods yet is none that pods did not choose.
func TestNodesThatAreRemovedForAnotherReasonAreNotSurplus(t *testing.T) {
	fresh := controllertest.Claim("n", launchedFor(""))
	for reason, want := range map[karpv1.DisruptionReason]bool{
		karpv1.DisruptionEmpty: true, karpv1.DisruptionUnderutilized: true, karpv1.DisruptionDrifted: false, karpv1.DisruptionUnhealthy: false,
	} {
		if got := mayBeSurplus(fresh, reason); got != want {
			t.Errorf("%s: %v", reason, got)
		}
	}
	condition.SetUnknown(fresh, karpv1.ConditionInitialized, condition.Because("TaintStuck", "a taint stays"), controllertest.Start)
	if mayBeSurplus(fresh, karpv1.DisruptionEmpty) {
		t.Error("a node that is not initialized counts")
	}
}
