package offering

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/controllertest"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
)

// fakeCloud offers by node class.
type fakeCloud struct {
	types map[string][]*catalog.InstanceType
	state []cloudprovider.PriceState
}

func (s *fakeCloud) InstanceTypes(_ context.Context, class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	types, ok := s.types[class.Name]
	if !ok {
		return nil, errors.New("no subnets found")
	}
	return types, nil
}

func (s *fakeCloud) PriceState() []cloudprovider.PriceState { return s.state }

func m5(offerings ...catalog.Offering) []*catalog.InstanceType {
	return []*catalog.InstanceType{{Name: "m5.large", Offerings: offerings, Capacity: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}}}
}

func newOffering(capacityType, zone string, price float64, available bool) catalog.Offering {
	return catalog.Offering{CapacityType: capacityType, Zone: zone, Price: price, Available: available}
}

// scraped are the metrics, a line each.
func scraped(t *testing.T, c *Collector) []string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.Metric {
			line := []string{strings.TrimPrefix(f.GetName(), "karpenter_cloudprovider_instance_type_")}
			for _, l := range m.Label {
				line = append(line, l.GetValue())
			}
			out = append(out, strings.Join(append(line, fmt.Sprint(m.Gauge.GetValue())), " "))
		}
	}
	return out
}

func of(class string) func(*karpv1.NodePool) {
	return func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = class }
}

func named(name string) func(*awsv1.EC2NodeClass) {
	return func(c *awsv1.EC2NodeClass) { c.Name, c.UID = name, "" }
}

func TestOfferingsOfPools(t *testing.T) {
	f := controllertest.New(
		t,
		controllertest.Class(),
		controllertest.Class(named("other")),
		controllertest.Class(named("broken")),
		controllertest.Pool(
			"a",
			of("broken"),
		),
		controllertest.Pool("b", of("default")),
		controllertest.Pool("c", of("other")),
		controllertest.Pool("d", of("none")),
	)
	s := &fakeCloud{types: map[string][]*catalog.InstanceType{
		"default": m5(newOffering("on-demand", "z1", 0.1, true), newOffering("spot", "z1", 0.03, false), newOffering("spot", "z2", 0, false)),
		"other": m5(
			newOffering("on-demand", "z1", 0.08, false),
			newOffering("spot", "z1", 0.04, true),
			newOffering("reserved", "z2", 1e-8, true),
			newOffering("reserved", "z2", 2e-8, true),
		),
	}}
	l := &Loop{Client: f.API, Cloud: s, Reserved: true, Collector: NewCollector(), Events: f.Events, Log: f.Log}
	if got := scraped(t, l.Collector); len(got) != 0 {
		t.Errorf("before the first look: %q", got)
	}
	if all, err := l.measure(t.Context()); all || err != nil {
		t.Errorf("all pools are measured: %v, %v", all, err)
	}
	want := []string{
		"cpu_cores m5.large 2",
		"memory_bytes m5.large 1.073741824e+09",
		"offering_available on-demand m5.large z1 1", // any pool can have it
		"offering_available reserved m5.large z1 0",
		"offering_available reserved m5.large z2 1",
		"offering_available spot m5.large z1 1",
		"offering_available spot m5.large z2 0",
		"offering_price_estimate on-demand m5.large z1 0.1",
		"offering_price_estimate reserved m5.large z1 0",
		"offering_price_estimate reserved m5.large z2 1e-08",
		"offering_price_estimate spot m5.large z1 0.04",
		"offering_price_estimate spot m5.large z2 0",
	}
	if got := scraped(t, l.Collector); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}

	l.Reserved = false
	s.types = map[string][]*catalog.InstanceType{"default": m5(newOffering("on-demand", "z1", 0.1, true))}
	l.ApplyOverlays = func(pool *karpv1.NodePool, types []*catalog.InstanceType) ([]*catalog.InstanceType, bool) {
		return m5(newOffering("on-demand", "z1", 0.07, true)), pool.Name == "b"
	}
	s.types["other"], s.types["broken"] = nil, nil
	f.Do(f.API.Delete(t.Context(), controllertest.Pool("d")))
	if all, err := l.measure(t.Context()); !all || err != nil {
		t.Errorf("all pools are measured: %v, %v", all, err)
	}
	want = []string{
		"cpu_cores m5.large 2", "memory_bytes m5.large 1.073741824e+09", "offering_available on-demand m5.large z1 1",
		"offering_price_estimate on-demand m5.large z1 0.07",
	}
	if got := scraped(t, l.Collector); !slices.Equal(got, want) {
		t.Errorf("later: got  %q\nwant %q", got, want)
	}
}

func TestEventsAboutPrices(t *testing.T) {
	read := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	denied := errors.New("AccessDeniedException: not authorized to perform pricing:GetProducts")
	for _, tt := range []struct {
		name    string
		state   cloudprovider.PriceState
		said    string
		metrics []string
	}{
		{"from the cloud", cloudprovider.PriceState{Read: read}, "", []string{
			"dovetail_prices_built_in on-demand 0",
			"dovetail_prices_read_timestamp_seconds on-demand 1.7672256e+09",
		}},
		{
			"denied",
			cloudprovider.PriceState{Err: denied},
			"PricesBuiltIn on-demand prices are built in: AccessDenied",
			[]string{"dovetail_prices_built_in on-demand 1"},
		},
		{
			"denied since",
			cloudprovider.PriceState{Read: read, Err: denied},
			"PricesOutdated on-demand prices are those of 2026-01-01T00:00:00Z: AccessDenied",
			[]string{
				"dovetail_prices_built_in on-demand 0",
				"dovetail_prices_read_timestamp_seconds on-demand 1.7672256e+09",
			},
		},
		{
			"nobody asks",
			cloudprovider.PriceState{NotReadReason: "an isolated VPC"},
			"PricesBuiltIn on-demand prices are built in: an isolated VPC",
			[]string{"dovetail_prices_built_in on-demand 1"},
		},
		{
			"GovCloud",
			cloudprovider.PriceState{NotReadReason: "no prices of GovCloud", Basis: "us-gov-west-1: prices of July 2026"},
			"PricesBuiltIn on-demand prices are built in (us-gov-west-1: prices of July 2026): no prices of GovCloud",
			[]string{"dovetail_prices_built_in on-demand 1"},
		},
		{"not read yet", cloudprovider.PriceState{}, "", []string{"dovetail_prices_built_in on-demand 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := controllertest.New(t, controllertest.Class(), controllertest.Pool("a"))
			tt.state.CapacityType = "on-demand"
			l := &Loop{
				Client:    f.API,
				Cloud:     &fakeCloud{state: []cloudprovider.PriceState{tt.state}},
				Collector: NewCollector(),
				Events:    f.Events,
				Log:       f.Log,
			}
			for range 2 { // reports it once
				_, err := l.measure(t.Context())
				f.Do(err)
			}
			said := f.RecordedEvents()
			if (tt.said == "") != (len(said) == 0) || len(said) > 1 || tt.said != "" && !strings.Contains(said[0], tt.said) {
				t.Errorf("said %q, want %q", said, tt.said)
			}
			if got := scraped(t, l.Collector); !slices.Equal(got, tt.metrics) {
				t.Errorf("got %q, want %q", got, tt.metrics)
			}
		})
	}
}
