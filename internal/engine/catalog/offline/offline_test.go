package offline

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func load(t testing.TB) *Catalog {
	t.Helper()
	c, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryTypeIsComplete(t *testing.T) {
	c := load(t)
	if n := len(c.Types()); n < 1200 {
		t.Errorf("%d types, want all of EC2's, which are more than 1200", n)
	}
	if !slices.IsSortedFunc(c.Types(), func(a, b Type) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("types are not sorted")
	}
	name := regexp.MustCompile(`^[a-z][a-z0-9-]*\.[a-z0-9-]+$`)
	for _, typ := range c.Types() {
		for _, rule := range []struct {
			broken bool
			rule   string
		}{
			{!name.MatchString(typ.Name), "is named family.size"},
			{typ.VCPUs < 1 || typ.Cores < 1 || (typ.VCPUs != typ.Cores && typ.VCPUs != 2*typ.Cores), "has one or two vCPUs per core"},
			{typ.MemoryMiB < 512, "has at least half a GiB"},
			{len(typ.Architectures) == 0, "has an architecture"},
			{!slices.Contains([]string{"Intel", "AMD", "AWS", "Apple"}, typ.Manufacturer), "has a known manufacturer"},
			{slices.Contains(typ.Architectures, "arm64") != (typ.Manufacturer == "AWS"), "is arm64 if and only if AWS made the processor"},
			{typ.ClockGHz < 0 || typ.ClockGHz > 6, "has a plausible clock"},
			{!typ.BareMetal && typ.Hypervisor == "", "is bare metal or has a hypervisor"},
			{typ.BareMetal != strings.Contains(typ.Name, ".metal"), "is called metal if and only if it is"},
			{!slices.Contains(typ.UsageClasses, "on-demand"), "is sold on demand"},
			{typ.IPv4PerENI < 2 && typ.Name != "t1.micro", "has an address for pods"},
			{typ.EFAMax > 0 && typ.EFAMax != len(typ.NetworkCards), "has one EFA per card"},
			{typ.Disks.TotalGB != typ.Disks.Count*typ.Disks.SizeGB, "has disks that add up"},
			{typ.EBSOptimized == "", "has an EBS support"},
			{typ.NitroEnclaves && typ.Hypervisor != "nitro", "has enclaves only on nitro"},
		} {
			if rule.broken {
				t.Errorf("%s: not true that it %s: %+v", typ.Name, rule.rule, typ)
			}
		}
		for i, card := range typ.NetworkCards {
			if card.Index != i || card.MaxENIs < 1 {
				t.Errorf("%s: card %d is %+v", typ.Name, i, card)
			}
		}
		if typ.DefaultCard >= len(typ.NetworkCards) {
			t.Errorf("%s: default card %d of %d", typ.Name, typ.DefaultCard, len(typ.NetworkCards))
		}
		if got, ok := c.Type(typ.Name); !ok || got.Name != typ.Name {
			t.Errorf("Type(%q) = %v, %v", typ.Name, got.Name, ok)
		}
	}
}

func TestPricesAreWholeAndPlausible(t *testing.T) {
	c := load(t)
	if want := []string{"eu-west-1", "us-east-1", "us-west-2"}; !slices.Equal(c.Regions(), want) {
		t.Fatalf("regions %v, want %v", c.Regions(), want)
	}
	for _, region := range c.Regions() {
		sold := 0
		for _, typ := range c.Types() {
			od, hasOD := c.OnDemand(region, typ.Name)
			spot, hasSpot := c.Spot(region, typ.Name)
			if hasOD {
				sold++
			}
			if hasOD && (od < 0.003 || od > 500) {
				t.Errorf("%s in %s: %v $/h", typ.Name, region, od)
			}
			if hasSpot && (!hasOD || spot > od || !slices.Contains(typ.UsageClasses, "spot")) {
				t.Errorf("%s in %s: spot %v $/h, on demand %v $/h, %v", typ.Name, region, spot, od, typ.UsageClasses)
			}
		}
		if sold < 790 {
			t.Errorf("%s sells %d types", region, sold)
		}
	}
	if _, ok := c.OnDemand("us-east-1", "m99.large"); ok {
		t.Error("a type that is none has a price")
	}
	if _, ok := c.Spot("mars-north-1", "m5.large"); ok {
		t.Error("a region that is none has a price")
	}
}

func TestZones(t *testing.T) {
	c := load(t)
	if got, want := c.ZoneIDs("us-west-2", "m5.large"), []string{"usw2-az1", "usw2-az2", "usw2-az3", "usw2-az4"}; !slices.Equal(got, want) {
		t.Errorf("m5.large is in %v, want %v", got, want)
	}
	if got := c.ZoneIDs("eu-west-1", "dl1.24xlarge"); got != nil {
		t.Errorf("dl1.24xlarge is in %v of eu-west-1, where it is not sold", got)
	}
}

// Prices of us-east-1 as of July 2026, typed from AWS' price list, compared to a tenth of a per mille,
// the rounding of either. Wherever AWS has not repriced since, the catalog's come from another source.
var priceList = map[string]float64{
	"a1.metal": 0.408, "c5.large": 0.085, "c5.metal": 4.08, "c5n.18xlarge": 3.888, "c6a.48xlarge": 7.344,
	"c6g.medium": 0.034, "c6gn.16xlarge": 2.7648, "c6i.large": 0.085, "c6in.32xlarge": 7.2576, "c7a.medium": 0.05132,
	"c7g.xlarge": 0.145, "c7i.2xlarge": 0.357, "c7i-flex.large": 0.0847875, "c8g.24xlarge": 3.82848, "m7i.metal-24xl": 5.32224, "p4d.24xlarge": 21.95764, "p5.48xlarge": 55.04, "r5b.metal": 7.8672,
	"d3.xlarge": 0.499, "f2.48xlarge": 15.84, "g4ad.xlarge": 0.37853, "g4dn.xlarge": 0.526, "g5.48xlarge": 16.288,
	"g5g.metal": 2.744, "g6.4xlarge": 1.3232, "g6e.xlarge": 1.861, "gr6.4xlarge": 1.5392, "hpc7g.16xlarge": 1.6832,
	"i3.large": 0.156, "i3en.metal": 10.848, "i4i.32xlarge": 10.9824, "i7ie.large": 0.2599, "inf1.6xlarge": 1.18,
	"inf2.48xlarge": 12.981264, "m5.large": 0.096, "m5.xlarge": 0.192, "m5zn.12xlarge": 3.9641, "m6a.large": 0.0864,
	"m6g.large": 0.077, "m6i.32xlarge": 6.144, "m6idn.32xlarge": 10.18368, "m7g.medium": 0.0408, "m7i.24xlarge": 4.8384,
	"m7i-flex.8xlarge": 1.53216, "p3.2xlarge": 3.06, "r5.24xlarge": 6.048, "r7iz.32xlarge": 11.904, "t2.small": 0.023,
	"t2.medium": 0.0464, "t3.large": 0.0832, "t3a.nano": 0.0047, "t4g.micro": 0.0084, "trn1.32xlarge": 21.5,
	"u-3tb1.56xlarge": 27.3, "u7in-16tb.224xlarge": 180.47559, "vt1.24xlarge": 5.2, "x1e.32xlarge": 26.688,
	"x2gd.large": 0.167, "x8g.large": 0.1954, "z1d.12xlarge": 4.464,
}

func TestPricesAgreeWithThePriceList(t *testing.T) {
	c := load(t)
	for name, want := range priceList {
		got, ok := c.OnDemand("us-east-1", name)
		if !ok || math.Abs(got-want) > max(0.0001, want*0.0001) {
			t.Errorf("%s costs %v $/h, want %v", name, got, want)
		}
	}
}

// What AWS documents of some types, typed by hand.
func TestKnownTypes(t *testing.T) {
	c := load(t)
	for _, want := range []struct {
		name             string
		vcpus, cores     int
		gib              float64
		pods             int // by the formula of the VPC CNI: interfaces x (addresses - 1) + 2
		disksGB          int64
		gpus, neuron     int
		enclave, transit bool
	}{
		{"t3.large", 2, 1, 8, 35, 0, 0, 0, false, false},
		{"t2.small", 1, 1, 2, 11, 0, 0, 0, false, false},
		{"t2.medium", 2, 2, 4, 17, 0, 0, 0, false, false},
		{"m5.xlarge", 4, 2, 16, 58, 0, 0, 0, true, false},
		{"m6g.large", 2, 2, 8, 29, 0, 0, 0, true, false},
		{"m6idn.32xlarge", 128, 64, 512, 394, 7600, 0, 0, true, true},
		{"c7a.large", 2, 2, 4, 29, 0, 0, 0, false, true},
		{"i3.metal", 72, 36, 512, 737, 15200, 0, 0, false, false},
		{"g5.12xlarge", 48, 24, 192, 737, 3800, 4, 0, true, true},
		{"p4d.24xlarge", 96, 48, 1152, 737, 8000, 8, 0, true, true},
		{"p5.48xlarge", 192, 96, 2048, 100, 30400, 8, 0, true, true},
		{"dl1.24xlarge", 96, 48, 768, 737, 4000, 8, 0, true, true},
		{"inf1.24xlarge", 96, 48, 192, 321, 0, 0, 64, true, true},
		{"inf2.48xlarge", 192, 96, 768, 737, 0, 0, 24, true, true},
		{"trn1.32xlarge", 128, 64, 512, 247, 7600, 0, 32, false, true},
		{"trn2.48xlarge", 192, 96, 2048, 100, 7680, 0, 128, true, true},
		{"m8i.large", 2, 1, 8, 59, 0, 0, 0, false, true},
		{"c8a.medium", 1, 1, 2, 8, 0, 0, 0, false, true},
		{"c9g.metal-48xl", 192, 192, 384, 1514, 0, 0, 0, false, true},
		{"x8i.96xlarge", 384, 192, 6144, 1514, 0, 0, 0, true, true},
		{"m1.small", 1, 1, 1.7, 8, 160, 0, 0, false, false},
		{"u-6tb1.metal", 448, 224, 6144, 147, 0, 0, 0, false, true},
	} {
		typ, ok := c.Type(want.name)
		if !ok {
			t.Errorf("no %s", want.name)
			continue
		}
		got := want
		got.vcpus, got.cores, got.gib = typ.VCPUs, typ.Cores, math.Round(float64(typ.MemoryMiB)/102.4)/10
		got.pods = typ.NetworkCards[typ.DefaultCard].MaxENIs*(typ.IPv4PerENI-1) + 2
		got.disksGB, got.gpus, got.neuron = typ.Disks.TotalGB, 0, 0
		for _, g := range typ.GPUs {
			got.gpus += g.Count
		}
		for _, n := range typ.Neuron {
			got.neuron += n.Count * n.CoresPerDevice
		}
		got.enclave, got.transit = typ.NitroEnclaves, typ.EncryptionInTransit
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}

func TestRefusesWhatItDoesNotUnderstand(t *testing.T) {
	z, err := gzip.NewReader(bytes.NewReader(embedded))
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parse(all); err != nil {
		t.Fatalf("as it is: %v", err)
	}
	text := string(all)
	for name, broken := range map[string]string{
		"another version": strings.Replace(text, "dovetail-ec2 1", "dovetail-ec2 2", 1),
		"unknown column":  strings.Replace(text, "\tena\t", "\tena2\t", 1),
		"unknown region":  strings.Replace(text, "\tus-east-1 od\t", "\tus-east-2 od\t", 1),
		"missing field":   strings.Replace(text, "\tnitro\t", "\t", 1),
		"no number":       strings.Replace(text, "m5.xlarge\t4\t", "m5.xlarge\tfour\t", 1),
		"unknown flag":    strings.Replace(text, "\tce\t", "\tcez\t", 1),
		"not sorted":      strings.Replace(text, "\nm5.xlarge\t", "\na5.xlarge\t", 1),
		"half an entry":   strings.Replace(text, "\t0/4\t", "\t0\t", 1),
		"no types":        text[:strings.Index(text, "\na1.")],
	} {
		if broken == text {
			t.Fatalf("%s: nothing was broken", name)
		}
		if _, err := parse([]byte(broken)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := decode(embedded[:len(embedded)/2]); err == nil {
		t.Error("half a file: no error")
	}
}

func TestTheFileIsSmall(t *testing.T) {
	if n := len(embedded); n > 150<<10 {
		t.Errorf("%d bytes, want at most 150 KiB", n)
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		load(b)
	}
}
