package expiration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/destroy/destroytest"
	"github.com/dovetail-k8s/dovetail/internal/engine/disrupt"
)

// expired are claims of a pool with the annotation that have expired, n0 first.
func expired(n int, annotation string) []client.Object {
	objects := []client.Object{controllertest.Pool("general", func(p *karpv1.NodePool) {
		if annotation != "" {
			p.Annotations = map[string]string{karpv1.AnnotationExpiration: annotation}
		}
	})}
	for i := range n {
		objects = append(objects, controllertest.Claim(fmt.Sprintf("n%02d", i), controllertest.Initialized, func(c *karpv1.NodeClaim) {
			c.Spec.ExpireAfter = karpv1.After(time.Hour)
			c.CreationTimestamp.Time = controllertest.Start.Add(-2*time.Hour + time.Duration(i)*time.Second)
			c.Finalizers = append(c.Finalizers, "example.com/drain")
		}))
	}
	return objects
}

// expireAll reconciles all claims, the youngest first, and returns how many have been deleted so far.
func expireAll(f *controllertest.Fixture, r *Reconciler) (deleted []string) {
	var list karpv1.NodeClaimList
	f.Do(f.API.List(f.Context(), &list))
	for _, c := range slices.Backward(list.Items) {
		f.Reconcile(r, c.Name)
	}
	for i := range list.Items {
		if f.Claim(list.Items[i].Name).DeletionTimestamp != nil {
			deleted = append(deleted, list.Items[i].Name)
		}
	}
	return deleted
}

func reconciler(f *controllertest.Fixture, most disrupt.Forced) *Reconciler {
	return &Reconciler{
		Client: f.API, Guard: destroytest.Guard(f.API, f.Now), Most: most, Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: f.Now,
	}
}

// Past their deadline a tenth of the nodes goes each minute, the oldest first, also after a restart of the controller.
func TestExpiredNodesGoByTheMinute(t *testing.T) {
	f := controllertest.New(t, expired(25, `{"mode":"Graceful"}`)...)
	r := reconciler(f, disrupt.Forced{Percent: 10})
	for minute := range 3 {
		for range 3 { // the youngest are looked at first: it takes some rounds
			expireAll(f, r)
		}
		got := expireAll(f, r)
		want := []string{"n00", "n01", "n02", "n03", "n04", "n05"}[:2*(minute+1)]
		if !slices.Equal(got, want) {
			t.Fatalf("minute %d: deleted %v, want %v", minute, got, want)
		}
		r = &Reconciler{
			Client: r.Client, Guard: r.Guard, Most: r.Most, Events: f.Events, Metrics: f.Metrics, Log: f.Log, Now: f.Now,
		}
		f.Clock = f.Clock.Add(time.Minute)
	}
	if said := f.RecordedEvents(); !slices.ContainsFunc(said, func(s string) bool {
		return strings.Contains(s, "ExpirationBehind Expired nodes stay for minutes: at most 2 nodes of the NodePool are deleted per minute")
	}) {
		t.Errorf("events %q", said)
	}
}

func TestWhichPoolsLimitForcedExpirations(t *testing.T) {
	for _, tt := range []struct {
		name, annotation string
		most             disrupt.Forced
		want             int
	}{
		{"without the annotation all go at once", "", disrupt.Forced{Percent: 10}, 12},
		{"Forceful is the same", `{"mode":"Forceful"}`, disrupt.Forced{Percent: 10}, 12},
		{"Graceful", `{"mode":"Graceful"}`, disrupt.Forced{Percent: 10}, 1},
		{"an annotation that cannot be read is limited", `{"mode":"Graceful","grace":"soon"}`, disrupt.Forced{Percent: 10}, 1},
		{"no limit", `{"mode":"Graceful"}`, disrupt.Forced{}, 12},
		{"a number", `{"mode":"Graceful"}`, disrupt.Forced{Nodes: 3}, 3},
		{"none within the grace", `{"mode":"Graceful","grace":"2h"}`, disrupt.Forced{}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, expired(12, tt.annotation)...)
			r := reconciler(f, tt.most)
			for range 4 {
				expireAll(f, r)
			}
			if got := expireAll(f, r); len(got) != tt.want {
				t.Errorf("deleted %v, want %d", got, tt.want)
			}
		})
	}
}
