package status

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// fleet is a source of nodes and of no usage.
type fleet struct{ snapshot.Snapshot }

func (*fleet) Usage(context.Context) (map[string]corev1.ResourceList, error) { return nil, nil }

func (c *fleet) Nodes(context.Context) (*snapshot.Snapshot, error) {
	copied := c.Snapshot
	return &copied, nil
}

func (*fleet) Version(context.Context) (cluster.Version, bool) { return cluster.Version{}, false }

// twenty are 20 nodes of the pool "general": one is not ready, one goes, three have drifted; and one of another pool.
func twenty() *fleet {
	c := &fleet{snapshot.Snapshot{Now: controllertest.Start}}
	for i := range 20 {
		c.Snapshot.Nodes = append(c.Snapshot.Nodes, enginetest.Node(string(rune('a'+i)), "general"))
	}
	nodes := c.Snapshot.Nodes
	nodes[0].Ready, nodes[1].Disrupting = false, true
	for i := range 3 {
		nodes[5+i].DriftedAt = controllertest.Start
	}
	c.Snapshot.Nodes = append(nodes, enginetest.Node("other", "other"))
	return c
}

func number(n int64) *int64 { return &n }

func TestDisruptionStatus(t *testing.T) {
	f := controllertest.New(t, controllertest.Pool("general", func(p *karpv1.NodePool) {
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "20%"}, {Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionDrifted}}}
	}))
	c := &Counter{Client: f.API, Metrics: f.Metrics, Log: f.Log, Now: f.Now, State: twenty()}
	f.Do(c.pass(t.Context()))
	want := &karpv1.DisruptionStatus{
		Nodes: 20, Disrupted: 2, Drifted: 3, Allowed: "Drifted:0 others:4",
		Budgets: []karpv1.BudgetStatus{
			{Reason: karpv1.DisruptionEmpty, Nodes: number(4)},
			{Reason: karpv1.DisruptionUnderutilized, Nodes: number(4)},
			{Reason: karpv1.DisruptionDrifted, Nodes: number(0)},
			{Reason: karpv1.DisruptionUnhealthy, Nodes: number(4)},
		},
	}
	if diff := cmp.Diff(want, pool(f).Status.Disruption); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	version := pool(f).ResourceVersion
	for range 3 * passesPerCount {
		f.Do(c.pass(t.Context()))
	}
	if pool(f).ResourceVersion != version {
		t.Error("written again, though nothing has changed")
	}
}

func TestAllowedInWords(t *testing.T) {
	for want, edit := range map[string]func(*karpv1.NodePool){
		"2":       func(*karpv1.NodePool) {}, // 10% of 20
		"any":     func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{} },
		"invalid": func(p *karpv1.NodePool) { p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "many"}} },
	} {
		f := controllertest.New(t, controllertest.Pool("general", edit))
		f.Do((&Counter{Client: f.API, Metrics: f.Metrics, Log: f.Log, Now: f.Now, State: twenty()}).pass(t.Context()))
		if got := pool(f).Status.Disruption; got == nil || got.Allowed != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

// withoutField is an API server with a CRD that lacks status.disruption: it drops the field from every write.
type withoutField struct {
	client.Client
	writes int
}

func (c *withoutField) Status() client.SubResourceWriter {
	return &droppingWriter{c.Client.Status(), c}
}

type droppingWriter struct {
	client.SubResourceWriter
	of *withoutField
}

func (w *droppingWriter) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	w.of.writes++
	pool, ok := o.(*karpv1.NodePool)
	if ok {
		pool.Status.Disruption = nil
	}
	return w.SubResourceWriter.Patch(ctx, o, p, opts...)
}

// An API server with a CRD that lacks the field is not written again and again, and the other fields stay right.
func TestCRDWithoutDisruption(t *testing.T) {
	f := controllertest.New(t, controllertest.Pool("general"))
	api := &withoutField{Client: f.API}
	c := &Counter{Client: api, Metrics: f.Metrics, Log: f.Log, Now: f.Now, State: twenty()}
	const half = int(30*time.Minute/countInterval) - 1
	for range half {
		f.Do(c.pass(t.Context()))
	}
	if api.writes != 1 {
		t.Errorf("%d writes within %d passes, want one", api.writes, half)
	}
	if p := pool(f); p.Status.Nodes == nil || p.Status.Disruption != nil {
		t.Errorf("status %+v", p.Status)
	}
	for range passesPerCount + 1 {
		f.Do(c.pass(t.Context()))
	}
	if api.writes != 2 {
		t.Errorf("%d writes after half an hour, want a second one", api.writes)
	}
}
