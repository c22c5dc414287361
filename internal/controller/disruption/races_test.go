package disruption

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// The reason of a command pauses while its replacement is in flight.
func TestBreakerPausesACommandInProgress(t *testing.T) {
	tests := []struct {
		name  string
		pool  string
		until string // the condition that the replacement has come to
		waits bool
	}{
		{"nothing has come", "general", "", false},
		{"an instance has come", "general", karpv1.ConditionLaunched, false},
		{"its node has joined", "general", karpv1.ConditionRegistered, true},
		{"another pool pauses", "other", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, driftedNodes("a")...)
			l := newLoopWithTypes(f)
			passes(t, l)
			runDue(t, l)
			if !isTainted(f, "node-a") {
				t.Fatal("given up before the reason pauses")
			}
			if tt.until != "" {
				created := replacements(f)[0]
				condition.SetTrue(&created, tt.until, f.Now())
				f.Do(f.API.Status().Update(t.Context(), &created))
			}
			l.Queue.Breaker = pausedBreaker(tt.pool)
			runDue(t, l)
			failures := testutil.ToFloat64(l.Metrics.QueueFailures.WithLabelValues("replace", "drifted", ""))
			if tt.waits {
				if n := len(replacements(f)); n != 1 || !isTainted(f, "node-a") || failures != 0 {
					t.Errorf("taken back: %d replacements, %v failures", n, failures)
				}
				return
			}
			wantRestored(t, f, "a")
			if n := len(replacements(f)); n != 0 || failures != 1 {
				t.Errorf("%d replacements, %v failures", n, failures)
			}
		})
	}
}

// competingProvisioner is a state in which another controller creates a claim just before the loop does.
type competingProvisioner struct {
	*cluster.State
	spend func()
}

func (s competingProvisioner) LockProvisioning() func() {
	s.spend()
	return s.State.LockProvisioning()
}

func TestLimitReachedSinceTheDecision(t *testing.T) {
	for limit, want := range map[string]int{"5": 0, "6": 1} { // CPUs: two of the node, two of its replacement, two of another
		f := controllertest.New(t, driftedNodes("a")...)
		pool := controllertest.Pool("general")
		f.Get(pool)
		pool.Spec.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)}
		f.Do(f.API.Update(t.Context(), pool))
		a := f.Claim("a")
		a.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
		f.Do(f.API.Status().Update(t.Context(), a))
		state, created := newStateWithTypes(f.API, f.Now), false
		l := newLoop(f, f.API, state, f.Now)
		l.State = competingProvisioner{state, func() {
			if created {
				return
			}
			created = true
			f.Do(f.API.Create(t.Context(), controllertest.Claim("for-pods", controllertest.Launched, func(c *karpv1.NodeClaim) {
				c.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
			})))
		}}
		if _, err := l.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !created {
			t.Fatal("nobody has come in between")
		}
		if n := len(replacements(f)); n != want {
			t.Errorf("limit %s: %d replacements, want %d", limit, n, want)
		}
		if want == 0 {
			wantRestored(t, f, "a")
		}
	}
}

// The cache shows a node as it was before its taint changed.
func TestTaintThatTheCacheDoesNotShow(t *testing.T) {
	for _, present := range []bool{true, false} {
		stale := controllertest.ReadyNode("a")
		if present {
			tainted(stale)
		}
		f := controllertest.New(t, controllertest.Class(), controllertest.ReadyNode("a", func(n *corev1.Node) {
			if !present {
				tainted(n)
			}
		}))
		cache := interceptor.NewClient(f.API, interceptor.Funcs{
			Get: func(_ context.Context, _ client.WithWatch, _ types.NamespacedName, o client.Object, _ ...client.GetOption) error {
				stale.DeepCopyInto(o.(*corev1.Node))
				return nil
			},
		})
		f.Do(setTaint(t.Context(), cache, f.API, "node-a", present))
		if isTainted(f, "node-a") != present {
			t.Errorf("tainted %v, want %v", !present, present)
		}
	}
}
