package live

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster/apitest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// nothing is a catalog without types.
type nothing struct{}

func (nothing) Types(*awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) { return nil, nil }

func cluster(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) Cluster {
	refuse := apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, "", nil)
	funcs.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		t.Error("create")
		return refuse
	}
	funcs.Update = func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
		t.Error("update")
		return refuse
	}
	funcs.Delete = func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
		t.Error("delete")
		return refuse
	}
	funcs.Patch = func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		t.Error("patch")
		return refuse
	}
	api := interceptor.NewClient(apitest.New(t, time.Now, objects...), funcs)
	return Cluster{Client: api, Name: "test", Config: inspect.Config{Prices: func(*manifest.ClusterState) (inspect.Prices, error) {
		return inspect.Prices{Catalog: nothing{}, From: "nowhere"}, nil
	}}}
}

// listing is an API server that lists before it watches: the fake one sends no initial events.
type listing struct{ client.WithWatch }

// IsWatchListSemanticsUnSupported returns what client-go looks for.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// One read lists, writes nothing, and works without NodePools and without metrics-server.
func TestOnceOnlyReads(t *testing.T) {
	observed, forecast, err := Once(t.Context(), cluster(t, interceptor.Funcs{}, node("a"), node("b")))
	if err != nil {
		t.Fatal(err)
	}
	if len(observed.Fleet.Nodes) != 2 || forecast == nil || len(observed.Link.Missing) != 0 {
		t.Errorf("%d nodes, forecast %v, missing %q", len(observed.Fleet.Nodes), forecast, observed.Link.Missing)
	}
}

// A permission that is missing is reported, and the rest is shown.
func TestMissingPermissions(t *testing.T) {
	forbidPods := interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, pods := list.(*corev1.PodList); pods {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
			}
			return c.List(ctx, list, opts...)
		},
	}
	observed, _, err := Once(t.Context(), cluster(t, forbidPods, node("a")))
	if err != nil {
		t.Fatal(err)
	}
	if len(observed.Fleet.Nodes) != 1 || len(observed.Link.Missing) == 0 {
		t.Fatalf("%d nodes, missing %q", len(observed.Fleet.Nodes), observed.Link.Missing)
	}
	const want = "no permission to list and watch pods: requests and pending pods are not shown"
	if got := observed.Link.Missing[0]; got != want {
		t.Errorf("missing %q, want %q", got, want)
	}
}

// A change of the cluster reaches the screen.
func TestAWatcherFollowsTheCluster(t *testing.T) {
	inner := listing{apitest.New(t, time.Now, node("a"))}
	c := cluster(t, interceptor.Funcs{})
	c.Client = inner
	ctx, stop := context.WithCancel(t.Context())
	messages, done := make(chan any, 100), make(chan struct{})
	go func() {
		defer close(done)
		NewWatcher(c).Run(ctx, func(m any) { messages <- m })
	}()
	waitForNodes(t, messages, 1)
	if err := inner.Create(ctx, node("b")); err != nil {
		t.Fatal(err)
	}
	waitForNodes(t, messages, 2)
	stop()
	<-done
}

func waitForNodes(t *testing.T, messages <-chan any, want int) {
	t.Helper()
	for {
		select {
		case <-t.Context().Done():
			t.Fatalf("never %d nodes", want)
		case m := <-messages:
			if o, ok := m.(top.Observed); ok && o.Fleet != nil && len(o.Fleet.Nodes) == want {
				return
			}
		}
	}
}

// What nodes cost is known no later than what they could cost: the screen never has a bound beside prices that are being read.
func TestPricesComeBeforeTheForecast(t *testing.T) {
	c := cluster(t, interceptor.Funcs{})
	c.Client = listing{apitest.New(t, time.Now, node("a"))}
	watchers := map[string]func(context.Context, func(any)){
		"a cluster": NewWatcher(c).Run, "the caches of a controller": NewSharedWatcher(newCached(1).shared(), time.Now).Run,
	}
	for name, run := range watchers {
		ctx, stop := context.WithCancel(t.Context())
		prices := ""
		run(ctx, func(m any) {
			switch m := m.(type) {
			case top.Observed:
				if m.Fleet != nil {
					prices = m.Prices
				}
			case top.Predicted:
				if prices == "" {
					t.Errorf("%s: a forecast comes before prices", name)
				}
				stop()
			}
		})
		stop()
	}
}
