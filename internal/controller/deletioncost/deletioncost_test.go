package deletioncost

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// noTypes is a cloud that offers nothing: no node can be replaced, but nodes that are leaving are known.
type noTypes struct{}

func (noTypes) InstanceTypes(context.Context, *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	return []*catalog.InstanceType{}, nil
}

func ofReplicaSet(change ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true)}}
		for _, c := range change {
			c(p)
		}
	}
}

func annotations(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			p.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

// fixture has a node "a" that is being disrupted, and a node "b" that stays, with pods of one ReplicaSet.
func fixture(t *testing.T, pods ...client.Object) (*controllertest.Fixture, *Loop) {
	t.Helper()
	f := controllertest.New(t, append([]client.Object{
		controllertest.Class(), controllertest.Pool("general"),
		controllertest.Claim("a", controllertest.Initialized), controllertest.Claim("b", controllertest.Initialized),
		controllertest.ReadyNode("a", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{karpv1.TaintDisrupted()} }),
		controllertest.ReadyNode("b"),
	}, pods...)...)
	m, err := NewMetrics(prometheus.NewRegistry())
	f.Do(err)
	return f, &Loop{
		Client: f.API, Enabled: true, Metrics: m, Log: f.Log, After: time.After,
		State: cluster.NewState(cluster.Config{
			Cache: f.API, Live: f.API, Types: noTypes{}, OnPoolSkipped: func(*karpv1.NodePool, error) {}, NominationWindow: time.Minute, Now: f.Now,
		}),
	}
}

// costs are the deletion costs of the pods, in the order of their names; "-" without one.
func costs(f *controllertest.Fixture) []string {
	var pods corev1.PodList
	f.Do(f.API.List(f.Context(), &pods))
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var out []string
	for _, p := range pods.Items {
		cost, set := p.Annotations[corev1.PodDeletionCost]
		if !set {
			cost = "-"
		}
		out = append(out, cost)
	}
	return out
}

func twoPods() []client.Object {
	return []client.Object{
		controllertest.Pod("1", "node-a", ofReplicaSet()),
		controllertest.Pod("2", "node-b", ofReplicaSet(annotations(corev1.PodDeletionCost, "-7", karpv1.AnnotationOwnDeletionCost, "-7"))),
	}
}

func TestPass(t *testing.T) {
	f, l := fixture(t, twoPods()...)
	for range 2 { // the second pass has nothing to do
		if left, err := l.pass(t.Context()); left != 0 || err != nil {
			t.Fatalf("%d writes left, %v", left, err)
		}
		if got := costs(f); !slices.Equal(got, []string{"-2147483648", "-"}) {
			t.Errorf("costs %v", got)
		}
		if n := testutil.ToFloat64(l.Metrics.Writes.WithLabelValues("updated")); n != 2 {
			t.Errorf("%v writes, want 2", n)
		}
	}
}

// Once the gate is off, own values go and the loop finishes; values of users stay.
func TestTurnedOff(t *testing.T) {
	f, l := fixture(t, append(twoPods(), controllertest.Pod("3", "node-a", ofReplicaSet(annotations(corev1.PodDeletionCost, "5"))))...)
	l.Enabled = false
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := costs(f); !slices.Equal(got, []string{"-", "-", "5"}) {
		t.Errorf("costs %v", got)
	}
}

// A write that fails does not keep others from being made, and is made in the next pass.
func TestWritesFail(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		left   int
		result string
	}{
		{"conflict", apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "1", errors.New("changed")), 0, "skipped_conflict"},
		{"gone", apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "1"), 0, "skipped_notfound"},
		{"server fails", apierrors.NewInternalError(errors.New("down")), 1, "error"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, l := fixture(t, twoPods()...)
			l.Client = interceptor.NewClient(f.API, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if o.GetName() == "1" {
						return tc.err
					}
					return c.Patch(ctx, o, p, opts...)
				},
			})
			if left, err := l.pass(t.Context()); left != tc.left || (err != nil) != (tc.left > 0) {
				t.Errorf("%d left, %v", left, err)
			}
			if n := testutil.ToFloat64(l.Metrics.Writes.WithLabelValues(tc.result)); n != 1 {
				t.Errorf("%v counted as %s", n, tc.result)
			}
			if n := testutil.ToFloat64(l.Metrics.Pending.WithLabelValues("general")); (n > 0) != (tc.left > 0) {
				t.Errorf("%v nodes pending", n)
			}
			l.Client = f.API
			if _, err := l.pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := costs(f); !slices.Equal(got, []string{"-2147483648", "-"}) {
				t.Errorf("costs %v", got)
			}
		})
	}
}

// Without the permission that goes with the gate, the loop finishes and states what to do.
func TestTurnedOffWithoutPermission(t *testing.T) {
	f, l := fixture(t, twoPods()...)
	l.Enabled = false
	l.Client = interceptor.NewClient(f.API, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "2", errors.New("no"))
		},
	})
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := costs(f); !slices.Equal(got, []string{"-", "-7"}) {
		t.Errorf("costs %v", got)
	}
}
