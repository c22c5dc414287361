package overlay_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/overlay"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

func terms() overlay.Terms {
	return overlay.Terms{Labels: requirement.CoreLabels(), Resources: []corev1.ResourceName{gpu}}
}

// parsed reads "name: spec" as YAML.
func parsed(t *testing.T, text string) *v1alpha1.NodeOverlay {
	t.Helper()
	name, spec, _ := strings.Cut(text, ":")
	o := &v1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &o.Spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

func all(t *testing.T, texts ...string) (out []*v1alpha1.NodeOverlay) {
	t.Helper()
	for _, text := range texts {
		out = append(out, parsed(t, text))
	}
	return out
}

// ten is a type at $10/h on demand, in two zones, with a label of its own.
func ten(name string) *catalog.InstanceType {
	it := Type(name, 10, "cpu", "4", "memory", "16Gi", string(gpu), "1")
	return WithLabel(
		WithOfferings(
			it,
			Offering("z1", karpv1.CapacityTypeOnDemand, 10),
			Offering("z1", karpv1.CapacityTypeSpot, 4),
			Offering("z2", karpv1.CapacityTypeOnDemand, 10),
		),
		"family",
		"m",
	)
}

func pools(types ...*catalog.InstanceType) []overlay.Pool {
	return []overlay.Pool{{NodePool: Pool("general", nil, TemplateLabel("team", "web")).NodePool, InstanceTypes: types}}
}

// shown returns what a type has become, offering by offering, and the resources that it did not have.
func shown(it *catalog.InstanceType) string {
	var out []string
	for _, o := range it.Offerings {
		mark := ""
		if o.PriceOverlaid {
			mark = "*"
		}
		out = append(out, fmt.Sprintf("%s/%s=%g%s", o.Zone, o.CapacityType, o.Price, mark))
	}
	for _, name := range []corev1.ResourceName{"example.com/a", "example.com/b"} {
		if q, ok := it.Capacity[name]; ok {
			allocatable := it.Allocatable[name]
			out = append(out, fmt.Sprintf("%s=%s/%s", name, q.String(), allocatable.String()))
		}
	}
	return strings.Join(out, " ")
}

func TestPrice(t *testing.T) {
	for _, c := range []struct {
		name, price, adjustment string
		want                    float64
	}{
		{"a share less", "", "-10%", 9},
		{"more than all less", "", "-200%", 0},
		{"more than there is less", "", "-15", 0},
		{"an amount more", "", "+0.75", 10.75},
		{"a share more", "", "+50%", 15},
		{"all of it", "", "-100%", 0},
		{"a fraction of a per cent", "", "-0.5%", 9.95},
		{"without a leading digit", "", "+.5", 10.5},
		{"an amount", "2.5", "", 2.5},
		{"for nothing", "0", "", 0},
		{"left alone", "", "", 10},
	} {
		p, err := overlay.ParsePrice(pointer(c.price), pointer(c.adjustment))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := p.Of(10); got != c.want {
			t.Errorf("%s: %g, want %g", c.name, got, c.want)
		}
	}
	for _, c := range [][2]string{{"1", "+1"}, {"", "1"}, {"", "10%"}, {"", "+"}, {"", "+%"}, {"", "-1e3"}, {"", "+Inf"}, {"x", ""}, {"-1", ""}, {"+1", ""}, {"1e400", ""}} {
		if p, err := overlay.ParsePrice(pointer(c[0]), pointer(c[1])); err == nil {
			t.Errorf("price %q, adjustment %q: read as %+v", c[0], c[1], p)
		}
	}
}

func pointer(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

const unchanged = "z1/on-demand=10 z1/spot=4 z2/on-demand=10"

// What overlays make of one type, and which of them hold.
func TestEvaluate(t *testing.T) {
	for _, c := range []struct {
		name     string
		overlays []string
		want     string
		// broken are overlays that do not hold, as "name Reason", sorted.
		broken []string
	}{
		{name: "none", want: unchanged},
		{
			name:     "an adjustment is one of each offering's own price",
			overlays: []string{"a: {requirements: [], priceAdjustment: -10%}"}, want: "z1/on-demand=9* z1/spot=3.6* z2/on-demand=9*",
		},
		{
			name:     "only the offerings that match",
			overlays: []string{"a: {requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}], price: '1'}"},
			want:     "z1/on-demand=10 z1/spot=1* z2/on-demand=10",
		},
		{
			name:     "one zone of those that there are",
			overlays: []string{"a: {requirements: [{key: topology.kubernetes.io/zone, operator: NotIn, values: [z1]}], price: '1'}"},
			want:     "z1/on-demand=10 z1/spot=4 z2/on-demand=1*",
		},
		{
			name:     "zone and capacity type exist, but not together: not even capacity",
			overlays: []string{"a: {requirements: [{key: topology.kubernetes.io/zone, operator: In, values: [z2]}, {key: karpenter.sh/capacity-type, operator: In, values: [spot]}], price: '1', capacity: {example.com/a: 1}}"},
			want:     unchanged,
		},
		{
			name:     "capacity is the whole type's",
			overlays: []string{"a: {requirements: [{key: topology.kubernetes.io/zone, operator: In, values: [z2]}], capacity: {example.com/a: 8}}"},
			want:     unchanged + " example.com/a=8/8",
		},
		{
			name:     "by a label of the type, of the pool, and the pool itself",
			overlays: []string{"a: {requirements: [{key: family, operator: In, values: [m]}, {key: team, operator: In, values: [web]}, {key: karpenter.sh/nodepool, operator: In, values: [general]}], price: '1'}"},
			want:     "z1/on-demand=1* z1/spot=1* z2/on-demand=1*",
		},
		{
			name:     "another pool's",
			overlays: []string{"a: {requirements: [{key: karpenter.sh/nodepool, operator: In, values: [other]}], price: '1'}"}, want: unchanged,
		},
		{
			name: "a label that nobody has matches nothing, though a node may get it",
			overlays: []string{
				"a: {requirements: [{key: node.kubernetes.io/windows-build, operator: Exists}], price: '1'}",
				"b: {requirements: [{key: color, operator: In, values: [red]}], price: '2'}",
			},
			want: unchanged,
		},
		{
			name:     "a label that nobody has may be excluded",
			overlays: []string{"a: {requirements: [{key: color, operator: NotIn, values: [red]}], price: '1'}"},
			want:     "z1/on-demand=1* z1/spot=1* z2/on-demand=1*",
		},
		{
			name:     "a type that does not exist",
			overlays: []string{"a: {requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [none.large]}], price: '1'}"},
			want:     unchanged,
		},
		{
			name: "the heavier one wins, offering by offering and resource by resource",
			overlays: []string{
				"a: {weight: 10, requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}], price: '1', capacity: {example.com/a: 1}}",
				"b: {weight: 5, requirements: [], priceAdjustment: '+1', capacity: {example.com/a: 2, example.com/b: 2}}",
				"c: {requirements: [], price: '99', capacity: {example.com/b: 3}}",
			},
			want: "z1/on-demand=11* z1/spot=1* z2/on-demand=11* example.com/a=1/1 example.com/b=2/2",
		},
		{
			name: "of equal weight, the name that comes first contradicts",
			overlays: []string{
				"a: {weight: 5, requirements: [{key: topology.kubernetes.io/zone, operator: In, values: [z1]}], price: '1'}",
				"b: {weight: 5, requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}], price: '2'}",
			},
			want: "z1/on-demand=10 z1/spot=2* z2/on-demand=10", broken: []string{"a Conflict"},
		},
		{
			name:     "even if it sets the same value",
			overlays: []string{"a: {requirements: [], price: '2'}", "b: {requirements: [], price: '2'}"},
			want:     "z1/on-demand=2* z1/spot=2* z2/on-demand=2*", broken: []string{"a Conflict"},
		},
		{
			name: "of equal weight, about different offerings: both",
			overlays: []string{
				"a: {requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}], price: '1'}",
				"b: {requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}], price: '2'}",
			},
			want: "z1/on-demand=1* z1/spot=2* z2/on-demand=1*",
		},
		{
			name: "a third one of a weight is compared with all before it",
			overlays: []string{
				"c: {requirements: [], capacity: {example.com/a: 1}}",
				"b: {requirements: [], capacity: {example.com/b: 2}}",
				"a: {requirements: [], capacity: {example.com/a: 3}}",
			},
			want: unchanged + " example.com/a=1/1 example.com/b=2/2", broken: []string{"a Conflict"},
		},
		{
			name: "two of a weight contradict each other though a heavier one outdoes both",
			overlays: []string{
				"c: {weight: 9, requirements: [], price: '1'}", "b: {weight: 3, requirements: [], price: '2'}",
				"a: {weight: 3, requirements: [], price: '3'}",
			},
			want: "z1/on-demand=1* z1/spot=1* z2/on-demand=1*", broken: []string{"a Conflict"},
		},
		{
			name: "one that does not hold stands in nobody's way",
			overlays: []string{
				"c: {requirements: [], capacity: {example.com/a: 1}}",
				"b: {requirements: [], price: '7', capacity: {example.com/a: 2}}",
				"a: {requirements: [], price: '3'}",
			},
			want: "z1/on-demand=3* z1/spot=3* z2/on-demand=3* example.com/a=1/1", broken: []string{"b Conflict"},
		},
		{
			name: "what cannot be read does not hold",
			overlays: []string{
				"a: {requirements: [{key: karpenter.sh/initialized, operator: In, values: ['true']}], price: '1'}",
				"b: {requirements: [{key: family, operator: Gt, values: [x]}], price: '1'}",
				"c: {requirements: [], price: '1', priceAdjustment: '+1'}",
				"d: {requirements: [], capacity: {cpu: 1}}",
				"e: {requirements: [], capacity: {nvidia.com/gpu: 1}}",
				"f: {requirements: [], capacity: {example.com/a: -1}}",
			},
			want: unchanged,
			broken: []string{
				"a RuntimeValidation", "b RuntimeValidation", "c RuntimeValidation", "d RuntimeValidation", "e RuntimeValidation",
				"f RuntimeValidation",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			overlays, world := all(t, c.overlays...), pools(ten("m.large"))
			// The order of overlays and pools has no meaning.
			rng := rand.New(rand.NewPCG(1, 2))
			for range 5 {
				rng.Shuffle(len(overlays), func(i, j int) { overlays[i], overlays[j] = overlays[j], overlays[i] })
				book, verdicts := overlay.Evaluate(overlays, world, terms())
				if got := shown(book.Apply(world[0].NodePool, world[0].InstanceTypes)[0]); got != c.want {
					t.Errorf("type %s, want %s", got, c.want)
				}
				var broken []string
				for _, v := range verdicts {
					if v.Reason != "" {
						broken = append(broken, v.Overlay.Name+" "+v.Reason)
					}
				}
				if diff := cmp.Diff(c.broken, broken); diff != "" {
					t.Errorf("verdicts (-want +got):\n%s", diff)
				}
			}
			if got := shown(world[0].InstanceTypes[0]); got != unchanged {
				t.Errorf("the type itself has become %s", got)
			}
		})
	}
}

// A contradiction in one pool is enough: an overlay holds everywhere or nowhere. The message states where.
func TestConflictInOnePool(t *testing.T) {
	world := []overlay.Pool{
		{NodePool: Pool("a", nil).NodePool, InstanceTypes: []*catalog.InstanceType{ten("m.large")}},
		{NodePool: Pool("b", nil).NodePool, InstanceTypes: []*catalog.InstanceType{ten("m.large")}},
	}
	book, verdicts := overlay.Evaluate(all(
		t,
		"x: {requirements: [], price: '1'}",
		"y: {requirements: [{key: karpenter.sh/nodepool, operator: In, values: [b]}, {key: karpenter.sh/capacity-type, operator: In, values: [spot]}], price: '2'}",
	), world, terms())
	if want := `NodeOverlay "y" of the same weight already sets the price of spot m.large in z1 (NodePool b)`; verdicts[0].Message != want {
		t.Errorf("message %q, want %q", verdicts[0].Message, want)
	}
	if got := shown(book.Apply(world[0].NodePool, world[0].InstanceTypes)[0]); got != unchanged {
		t.Errorf("pool a: %s", got)
	}
}

// Whatever else a type states is the same after it was overlaid, in particular what is added to it later.
func TestNothingElseChanges(t *testing.T) {
	it := ten("m.large")
	fill(t, reflect.ValueOf(it).Elem())
	for i := range it.Offerings {
		fill(t, reflect.ValueOf(&it.Offerings[i]).Elem())
		it.Offerings[i].PriceOverlaid = false
	}
	it.CapacityOverlaid = false
	world := pools(it)
	book, _ := overlay.Evaluate(all(t, "a: {requirements: [], price: '7', capacity: {example.com/a: 1}}"), world, terms())
	got := *book.Apply(world[0].NodePool, world[0].InstanceTypes)[0]
	if shown(&got) != "z1/on-demand=7* z1/spot=7* z2/on-demand=7* example.com/a=1/1" || !got.CapacityOverlaid {
		t.Fatalf("type %s", shown(&got))
	}
	got.Offerings = slices.Clone(got.Offerings)
	for i := range got.Offerings {
		got.Offerings[i].Price, got.Offerings[i].PriceOverlaid = it.Offerings[i].Price, false
	}
	delete(got.Capacity, "example.com/a")
	delete(got.Allocatable, "example.com/a")
	got.CapacityOverlaid = false
	if !reflect.DeepEqual(got, *it) {
		t.Errorf("got %+v, want %+v", got, *it)
	}
}

// fill gives every plain field of a struct that is zero a value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.IsZero() {
			continue
		}
		switch f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("something")
		case reflect.Int, reflect.Int32, reflect.Int64:
			f.SetInt(3)
		case reflect.Float64:
			f.SetFloat(3)
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		}
	}
}

// Types that no overlay selects are not copied: overlays are applied often to pools of hundreds of types.
func TestOthersAreShared(t *testing.T) {
	types := []*catalog.InstanceType{ten("m.large"), ten("m.xlarge")}
	world := pools(types...)
	book, _ := overlay.Evaluate(
		all(t, "a: {requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m.large]}], price: '1'}"),
		world,
		terms(),
	)
	laid := book.Apply(world[0].NodePool, types)
	if laid[0] == types[0] || laid[1] != types[1] {
		t.Error("want a copy of the first type and the second as it is")
	}
}

// Prices for types that nobody else knows a price of come from overlays that name the types and nothing else.
func TestPrices(t *testing.T) {
	book, _ := overlay.Evaluate(all(
		t,
		"a: {weight: 2, requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [x.large]}], price: '3'}",
		"b: {weight: 1, requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [x.large, y.large]}], price: '4'}",
		"c: {weight: 3, requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [x.large]}], priceAdjustment: '+1'}",
		"d: {weight: 4, requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [x.large]}, {key: team, operator: In, values: [web]}], price: '5'}",
		"e: {weight: 5, requirements: [{key: node.kubernetes.io/instance-type, operator: NotIn, values: [x.large]}], price: '6'}",
		"f: {weight: 6, requirements: [], price: '7'}",
	), pools(ten("m.large")), terms())
	if diff := cmp.Diff(map[string]float64{"x.large": 3, "y.large": 4}, book.Prices()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
