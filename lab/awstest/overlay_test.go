package awstest

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/pricing"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/engine/overlay"
)

// hiddenType knows all prices but one.
type hiddenType struct {
	pricing.Fallback
	instanceType string
}

func (h hiddenType) Price(s offline.PriceQuery) (offline.Price, bool) {
	if s.Type == h.instanceType {
		return offline.Price{}, false
	}
	return h.Fallback.Price(s)
}

// A type without a price cannot launch, unless a NodeOverlay sets its price.
func TestUserPrices(t *testing.T) {
	for _, tt := range []struct {
		name   string
		prices map[string]float64
		want   float64
		off    bool // the feature gate
	}{
		{"no price", nil, 0, false},
		{"a user's price", map[string]float64{"m5.large": 0.25}, 0.25, false},
		{"the same with the gate off", map[string]float64{"m5.large": 0.25}, 0, true},
		{"a user's price of another type", map[string]float64{"m5.xlarge": 0.25}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			cfg := w.config("uid-1")
			cfg.IsolatedVPC, cfg.Fallback = true, hiddenType{cfg.Fallback, "m5.large"}
			prices, version := map[string]float64{}, 0
			if !tt.off {
				cfg.UserPrices = func() (map[string]float64, int) { return prices, version }
			}
			c := w.start(cfg)
			class := nodeClass("default")
			resolve(t, c, class)
			class.ResourceVersion = "1"
			offering := func(name string) catalog.Offering {
				types, err := c.InstanceTypes(t.Context(), class)
				if err != nil {
					t.Fatal(err)
				}
				return offering(t, typeNamed(t, types, name), "us-east-1a", karpv1.CapacityTypeOnDemand)
			}
			known := offering("m5.xlarge").Price
			if o := offering("m5.large"); o.Available {
				t.Errorf("before: %+v", o)
			}
			prices, version = tt.prices, 1
			if o := offering("m5.large"); o.Available != (tt.want > 0) || o.Price != tt.want {
				t.Errorf("offering %+v, want price %g", o, tt.want)
			}
			if got := offering("m5.xlarge").Price; got != known {
				t.Errorf("a known price has become %g", got)
			}
		})
	}
}

// A claim that requests a resource of a NodeOverlay launches with it, and has it in its capacity.
// Without the overlay no instance type fits.
func TestLaunchOverlaid(t *testing.T) {
	const device = corev1.ResourceName("example.com/device")
	o := &v1alpha1.NodeOverlay{}
	price := "0.01"
	o.Name, o.Spec.Price = "devices", &price
	o.Spec.Capacity = corev1.ResourceList{device: resource.MustParse("2")}
	lay := func(_ context.Context, claim *karpv1.NodeClaim, types []*catalog.InstanceType) ([]*catalog.InstanceType, error) {
		pool := &karpv1.NodePool{}
		pool.Name = claim.Labels[karpv1.LabelNodePool]
		book, _ := overlay.Evaluate([]*v1alpha1.NodeOverlay{o}, nil, overlay.Terms{})
		return book.Apply(pool, types), nil
	}
	asking := func(name string) *karpv1.NodeClaim {
		c := claim(name, onDemand, in(corev1.LabelInstanceTypeStable, "m5.large"))
		c.Spec.Resources.Requests = corev1.ResourceList{device: resource.MustParse("1")}
		return c
	}
	launch := func(cfg adapter.Config, w *world) (cloudprovider.Launched, error) {
		c := w.start(cfg)
		class := nodeClass("default")
		resolve(t, c, class)
		return c.Launch(t.Context(), asking("general-1"), class)
	}

	w := newWorld(t)
	var scarce *cloudprovider.InsufficientCapacityError
	if _, err := launch(w.config("uid-1"), w); !errors.As(err, &scarce) {
		t.Errorf("without the overlay: %v, want insufficient capacity", err)
	}
	cfg := w.config("uid-1")
	cfg.Overlay = lay
	got, err := launch(cfg, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []corev1.ResourceList{got.Capacity, got.Allocatable} {
		if q := list[device]; q.Value() != 2 {
			t.Errorf("the claim promises %s of the device, want 2", q.String())
		}
	}
	unknown := errors.New("not known yet")
	cfg.Overlay = func(context.Context, *karpv1.NodeClaim, []*catalog.InstanceType) ([]*catalog.InstanceType, error) {
		return nil, unknown
	}
	w = newWorld(t)
	if _, err := launch(func() adapter.Config { c := w.config("uid-1"); c.Overlay = cfg.Overlay; return c }(), w); !errors.Is(
		err,
		unknown,
	) ||
		len(w.runningInstances()) != 0 {
		t.Errorf("error %v, %d instances; want none before the overlays are known", err, len(w.runningInstances()))
	}
}
