package quantity_test

import (
	"math"
	"math/big"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-k8s/dovetail/internal/engine/quantity"
)

const (
	cpu    = corev1.ResourceCPU
	widget = corev1.ResourceName("example.com/widget")
)

// Quantities that users may write, and their value.
func TestNoQuantityWrapsAround(t *testing.T) {
	for _, c := range []struct {
		text string
		name corev1.ResourceName
		want int64
	}{
		{"0", cpu, 0},
		{"0e2147483647", cpu, 0},
		{"0e2147483647", widget, 0},
		{"1", cpu, 1000},
		{"100m", cpu, 100},
		{"0.1", cpu, 100},
		{"1500u", cpu, 2}, // rounded up, as Kubernetes does
		{"1n", cpu, 1},
		{"1n", widget, 1},
		{"0.5", widget, 1},
		{"1.5Gi", corev1.ResourceMemory, 3 << 29},
		{"1Ki", widget, 1024},
		{"999999999999999", widget, 999999999999999},
		{"1000000000000001", widget, 1000000000000001},
		{"9223372036854775", cpu, 9223372036854775000},
		{"9223372036854775807m", cpu, quantity.Max},
		{"9223372036854776", cpu, quantity.Max},
		{"9223372036854775806", widget, quantity.Max - 1},
		{"9223372036854775807", widget, quantity.Max},
		{"9223372036854775807", cpu, quantity.Max},
		{"9223372036854775808", widget, quantity.Max},
		{"9223372036854775807.5", widget, quantity.Max},
		{"10P", cpu, quantity.Max},
		{"10P", widget, 1e16},
		{"1Ei", cpu, quantity.Max},
		{"1Ei", widget, 1 << 60},
		{"8Ei", widget, quantity.Max},
		{"100Ei", widget, quantity.Max},
		{"1e18", widget, 1e18},
		{"1e30", cpu, quantity.Max},
		{"1e30", widget, quantity.Max},
		{"1e400", cpu, quantity.Max},
		{"1e2147483647", cpu, quantity.Max},
		{"12345678901234567890e1000", widget, quantity.Max},
		{"12345678901234567890e-9", widget, 12345678902},
		{strings.Repeat("9", 400) + ".5", widget, quantity.Max},
		{"0." + strings.Repeat("0", 400) + "1", widget, 1},
		{"-1", cpu, -1000},
		{"-1500u", cpu, -2},
		{"-10P", cpu, quantity.Min},
		{"-9223372036854775808", widget, quantity.Min},
		{"-1e2147483647", widget, quantity.Min},
	} {
		q, err := resource.ParseQuantity(c.text)
		if err != nil {
			t.Fatalf("%.40s: %v", c.text, err)
		}
		if got := quantity.Of(c.name, q); got != c.want {
			t.Errorf("%.40s of %s counts as %d, want %d", c.text, c.name, got, c.want)
		}
		b := quantity.Clamp(q)
		if got := quantity.Of(c.name, b); got != c.want {
			t.Errorf("%.40s of %s, bounded, counts as %d, want %d", c.text, c.name, got, c.want)
		}
		b.Add(resource.MustParse("1n")) // which would write out every digit of what is not bounded
	}
}

func TestBoundedListReturnsUnchangedList(t *testing.T) {
	list := corev1.ResourceList{cpu: resource.MustParse("250m"), widget: resource.MustParse("1.5Gi")}
	if out := quantity.ClampList(list); len(out) != 2 || testing.AllocsPerRun(10, func() { quantity.ClampList(list) }) > 4 {
		t.Errorf("%v became %v", list, out)
	}
	list[widget] = resource.MustParse("1e999")
	out := quantity.ClampList(list)
	if got, want := out[widget], resource.NewQuantity(math.MaxInt64, resource.DecimalSI); got.Cmp(*want) != 0 {
		t.Errorf("1e999 became %v", got.String())
	}
	if q := list[widget]; q.String() != "1e999" {
		t.Errorf("the list that was given has become %v", list)
	}
}

// 1.5Gi is stored in a form that Quantity.Add writes to, even if it is shared.
func TestAddToSharesNoMemory(t *testing.T) {
	list := corev1.ResourceList{widget: resource.MustParse("1.5Gi")}
	total := corev1.ResourceList{}
	for range 3 {
		quantity.AddTo(total, list)
	}
	if q := list[widget]; q.Value() != 3<<29 {
		t.Errorf("adding 1.5Gi has made it %s", q.String())
	}
	if q := total[widget]; q.Value() != 9<<29 {
		t.Errorf("three times 1.5Gi is %s", q.String())
	}
}

func TestArithmeticSaturates(t *testing.T) {
	edges := []int64{0, 1, 2, 3, 1000, 1 << 31, 1 << 32, 1 << 62, math.MaxInt64 - 1, math.MaxInt64}
	for _, e := range edges[1:] {
		edges = append(edges, -e)
	}
	edges = append(edges, math.MinInt64)
	bound := func(x *big.Int) int64 {
		switch {
		case x.Cmp(big.NewInt(quantity.Max)) > 0:
			return quantity.Max
		case x.Cmp(big.NewInt(quantity.Min)) < 0:
			return quantity.Min
		}
		return x.Int64()
	}
	for _, a := range edges {
		for _, b := range edges {
			x, y := big.NewInt(max(a, quantity.Min)), big.NewInt(max(b, quantity.Min))
			for _, c := range []struct {
				sign string
				got  int64
				want *big.Int
			}{
				{"+", quantity.Add(a, b), new(big.Int).Add(x, y)},
				{"-", quantity.Sub(a, b), new(big.Int).Sub(x, y)},
				{"*", quantity.Mul(a, b), new(big.Int).Mul(x, y)},
			} {
				if c.got != bound(c.want) && a != math.MinInt64 && b != math.MinInt64 || c.got < quantity.Min {
					t.Errorf("%d %s %d = %d, want %d", a, c.sign, b, c.got, bound(c.want))
				}
			}
		}
	}
}
