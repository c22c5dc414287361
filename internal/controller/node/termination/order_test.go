package termination

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// replicaOf makes a pod a replica, Ready or not.
func replicaOf(kind string, ready bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "web", UID: "owner", Controller: new(true)}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		if ready {
			p.Status.Conditions[0].Status = corev1.ConditionTrue
		}
	}
}

func drainedAs(modes string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, karpv1.AnnotationDrain, modes) }
}

// requested are the names of the pods that the evictor is to evict.
func requested(e *Evictor) (out []string) {
	for key := range e.requests {
		out = append(out, key.name)
	}
	slices.Sort(out)
	return out
}

func TestOrderOfEvictions(t *testing.T) {
	const set, stateful = "ReplicaSet", "StatefulSet"
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data-0"}}
	pvc.Spec.VolumeName = "pv-0"
	of := func(replicas int32) client.Object {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "owner"}}
		s.Spec.Replicas = &replicas
		return s
	}
	pod := controllertest.Pod
	tests := []struct {
		name    string
		objects []client.Object
		want    []string
		event   string
	}{
		{
			name:    "nobody has opted in: all at once",
			objects: []client.Object{pod("a", "node-a", replicaOf(set, true)), pod("b", "node-a", replicaOf(set, true))}, want: []string{"a", "b"},
		},
		{
			name: "they have: one",
			objects: []client.Object{
				pod("a", "node-a", replicaOf(set, true), drainedAs("Ordered")), pod("b", "node-a", replicaOf(set, true), drainedAs("Ordered")),
			},
			want: []string{"a"},
		},
		{
			name: "none before its sibling on another node is Ready",
			objects: []client.Object{
				pod("a", "node-a", replicaOf(set, true), drainedAs("Ordered")), pod("b", "node-b", replicaOf(set, false), drainedAs("Ordered")),
			},
		},
		{
			name: "the one on another node that is drained comes first",
			objects: []client.Object{
				controllertest.ReadyNode("b", controllertest.DeletingNode, closed),
				pod("a", "node-b", replicaOf(set, true), drainedAs("Ordered")), pod("b", "node-a", replicaOf(set, true), drainedAs("Ordered")),
			},
		},
		{
			name: "a StatefulSet with all pods",
			objects: []client.Object{
				of(2), pod("a", "node-a", replicaOf(stateful, true), drainedAs("Ordered")),
				pod("b", "node-b", replicaOf(stateful, true), drainedAs("Ordered")),
			},
			want: []string{"a"},
		},
		{
			name: "one that is missing a pod",
			objects: []client.Object{
				of(3), pod("a", "node-a", replicaOf(stateful, true), drainedAs("Ordered")),
				pod("b", "node-b", replicaOf(stateful, true), drainedAs("Ordered")),
			},
		},
		{
			name: "one with a volume that is still attached to the node that its pod has left",
			objects: []client.Object{
				of(2), pvc, attachment("va", "node-c", "pv-0"), pod("a", "node-a", replicaOf(stateful, true), drainedAs("Ordered")),
				pod("b", "node-b", replicaOf(stateful, true), drainedAs("Ordered"), mounting("data-0")),
			},
		},
		{
			name: "one with volumes where its pods are",
			objects: []client.Object{
				of(2), pvc, attachment("va", "node-b", "pv-0"), pod("a", "node-a", replicaOf(stateful, true), drainedAs("Ordered")),
				pod("b", "node-b", replicaOf(stateful, true), drainedAs("Ordered"), mounting("data-0")),
			},
			want: []string{"a"},
		},
		{
			name: "a word that is no mode has no effect, and is reported",
			objects: []client.Object{
				pod("a", "node-a", replicaOf(set, true), drainedAs("Slowly")), pod("b", "node-b", replicaOf(set, false), drainedAs("Slowly")),
			},
			want: []string{"a"},
			event: `Warning InvalidAnnotation The pod is drained as without it: ` +
				`annotation dovetail.sh/drain: "Slowly" is none of [Ordered Surge]`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, append(leaving(), tt.objects...)...)
			r := nodeReconciler(f, &ec2{})
			if result := f.Reconcile(r, "node-a"); result.RequeueAfter != poll {
				t.Errorf("the next step comes after %v", result.RequeueAfter)
			}
			if got := requested(r.Evictor); !slices.Equal(got, tt.want) {
				t.Errorf("evicts %v, want %v", got, tt.want)
			}
			if events := f.RecordedEvents(); tt.event != "" && !slices.Contains(events, tt.event) {
				t.Errorf("events %q", events)
			}
		})
	}
}

// A sibling that never becomes Ready keeps no node for longer than five minutes.
func TestOrderOfEvictionsIsBounded(t *testing.T) {
	f := controllertest.New(t, append(leaving(),
		controllertest.Pod("a", "node-a", replicaOf("ReplicaSet", true), drainedAs("Ordered")),
		controllertest.Pod("b", "node-b", replicaOf("ReplicaSet", false), drainedAs("Ordered")),
	)...)
	r := nodeReconciler(f, &ec2{})
	f.Reconcile(r, "node-a")
	f.Clock = f.Clock.Add(5*time.Minute - time.Second)
	f.Reconcile(r, "node-a")
	if got := requested(r.Evictor); len(got) > 0 {
		t.Errorf("evicts %v before the bound", got)
	}
	f.Clock = f.Clock.Add(time.Second)
	f.Reconcile(r, "node-a")
	if got := requested(r.Evictor); !slices.Equal(got, []string{"a"}) {
		t.Errorf("evicts %v at the bound", got)
	}
}
