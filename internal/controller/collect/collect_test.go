package collect

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloud"
	"github.com/dovetail-k8s/dovetail/internal/controller/metric"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func claim(name, providerID string) karpv1.NodeClaim {
	c := karpv1.NodeClaim{}
	c.Name = name
	c.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	c.Status.ProviderID = providerID
	return c
}

func instance(id string, owner cloud.Ownership, age time.Duration) cloud.Instance {
	return cloud.Instance{ID: id, ProviderID: "aws:///a/" + id, Owner: owner, State: cloud.Running, LaunchedAt: now.Add(-age)}
}

func TestStrays(t *testing.T) {
	launching := instance("i-2", cloud.Ours, time.Hour)
	launching.NodeClaim = "launching"
	namesake := instance("i-3", cloud.Ours, time.Hour)
	namesake.NodeClaim = "launched"
	ending := instance("i-4", cloud.Ours, time.Hour)
	ending.State = cloud.ShuttingDown
	tests := []struct {
		name     string
		instance cloud.Instance
		claims   []karpv1.NodeClaim
		stray    bool
	}{
		{"row 54: ours, old, no claim", instance("i-1", cloud.Ours, time.Minute), nil, true},
		{"row 55: younger than 30 s", instance("i-1", cloud.Ours, 29*time.Second), nil, false},
		{"another cluster's", instance("i-1", cloud.Foreign, time.Hour), nil, false},
		{"nobody's mark on it", instance("i-1", cloud.Unknown, time.Hour), nil, false},
		{"to be adopted first", instance("i-1", cloud.Adoptable, time.Hour), nil, false},
		{"its claim has its provider ID", instance("i-1", cloud.Ours, time.Hour), []karpv1.NodeClaim{claim("a", "aws:///a/i-1")}, false},
		{"its claim does not know yet that it has it", launching, []karpv1.NodeClaim{claim("launching", "")}, false},
		{"the claim it was launched for has another", namesake, []karpv1.NodeClaim{claim("launched", "aws:///a/i-9")}, true},
		{"already on its way out", ending, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strays([]cloud.Instance{tt.instance}, tt.claims, now)
			if (len(got) == 1) != tt.stray {
				t.Errorf("stray = %v, want %v", len(got) == 1, tt.stray)
			}
		})
	}
}

// fakeFleet is a cloud whose instances end at once.
type fakeFleet struct {
	instances []cloud.Instance
	ended     []string
}

func (f *fakeFleet) List(context.Context) ([]cloud.Instance, error) { return f.instances, nil }

func (f *fakeFleet) Terminate(_ context.Context, providerID string) error {
	f.ended = append(f.ended, providerID)
	return cloud.ErrNotFound
}

// noClaims is an API server that lost its NodeClaims, or shows none of them.
type noClaims struct{ client.Reader }

func (noClaims) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestManyStraysAtOnceAreAMistakeAndStay(t *testing.T) {
	metrics, err := metric.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	fleet := &fakeFleet{}
	for _, id := range []string{"i-1", "i-2", "i-3", "i-4"} {
		fleet.instances = append(fleet.instances, instance(id, cloud.Ours, time.Hour))
	}
	c := &Instances{Live: noClaims{}, Cloud: fleet, Metrics: metrics, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() time.Time { return now }}
	if err := c.pass(t.Context()); err == nil {
		t.Error("four of four instances without a claim raised no error")
	}
	if diff := cmp.Diff([]string(nil), fleet.ended); diff != "" {
		t.Errorf("instances were ended:\n%s", diff)
	}
}
