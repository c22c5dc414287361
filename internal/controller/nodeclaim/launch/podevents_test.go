package launch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// waiting is a pending pod with its name as UID.
func waiting(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := controllertest.Pod(name, "", change...)
	p.UID = types.UID(name)
	return p
}

// podReports are the events on pods of a launch without capacity, for a claim that was made for pods with these names.
func podReports(t *testing.T, nominated []string, pods ...*corev1.Pod) []string {
	t.Helper()
	objects := []client.Object{controllertest.Class(), controllertest.Claim("a", func(c *karpv1.NodeClaim) {
		c.Annotations = map[string]string{karpv1.AnnotationNominatedPods: strings.Join(nominated, ",")}
	})}
	for _, p := range pods {
		objects = append(objects, p)
	}
	f := controllertest.New(t, objects...)
	_, _ = f.Try(reconciler(f, &fakeCloud{err: &cloudprovider.InsufficientCapacityError{Err: errors.New("all zones")}}), "a")
	events := f.RecordedEvents()
	const onClaim = "Warning InsufficientCapacityError NodeClaim a event: "
	if len(events) == 0 || !strings.HasPrefix(events[0], onClaim) {
		t.Fatalf("no event on the claim: %q", events)
	}
	return events[1:]
}

func TestLackOfCapacityIsReportedOnPods(t *testing.T) {
	scheduled := func(p *corev1.Pod) { p.Spec.NodeName = "node" }
	finished := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	deleted := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: controllertest.Start}, []string{"example.com/a"}
	}
	got := podReports(t, []string{"one", "scheduled", "finished", "deleted", "missing"},
		waiting("one"), waiting("other"), waiting("scheduled", scheduled), waiting("finished", finished), waiting("deleted", deleted))
	if len(got) != 1 || !strings.HasPrefix(got[0], "Warning InsufficientCapacityError NodeClaim a event: ") || !strings.Contains(got[0], "all zones") {
		t.Errorf("events on pods: %q", got)
	}
}

func TestReportsOnPodsAreLimited(t *testing.T) {
	var pods []*corev1.Pod
	var names []string
	for i := range 25 {
		names = append(names, fmt.Sprintf("pod-%d", i))
		pods = append(pods, waiting(names[i]))
	}
	if got := podReports(t, slices.Clone(names), pods...); len(got) != podEventsBurst {
		t.Errorf("%d events on 25 pods at one instant, want %d", len(got), podEventsBurst)
	}
}
