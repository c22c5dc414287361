package main

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// sources are read once for all tests.
var sources = sync.OnceValues(func() (all struct {
	facts
	prices
}, err error,
) {
	if all.facts, err = readFacts(); err == nil {
		all.prices, err = readPrices()
	}
	return all, err
})

func read(t *testing.T) (facts, prices) {
	t.Helper()
	all, err := sources()
	if err != nil {
		t.Fatal(err)
	}
	return all.facts, all.prices
}

func TestTheSameSourcesGiveTheSameText(t *testing.T) {
	known, p := read(t)
	twice := [2]map[string][]byte{{}, {}}
	for i := range twice {
		twice[i]["types"] = encodeTypes(known, p.windowsFees(known))
		for _, m := range markets(known, p) {
			twice[i][m.name] = m.encode()
		}
	}
	if !maps.EqualFunc(twice[0], twice[1], bytes.Equal) || len(twice[0]) != 35 {
		t.Errorf("two runs differ, or there are not 34 regions: %d", len(twice[0])-1)
	}
}

func TestTheCommittedFilesAreUpToDate(t *testing.T) {
	if err := run(committed, true /* check */); err != nil {
		t.Error(err)
	}
}

func TestAFileThatNothingGivesIsNoticed(t *testing.T) {
	files := map[string][]byte{"types.tsv.gz": nil}
	if err := compare(committed, files); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("got %v", err)
	}
}

// The VPC resource controller's limits, which another module repeats, state the same of network cards as
// DescribeInstanceTypes.
func TestNetworkCardsAgreeWithTheResourceController(t *testing.T) {
	known, _ := read(t)
	text, err := priceTables.read(tableOfLimits)
	if err != nil {
		t.Fatal(err)
	}
	limits := literal(text)
	compared := 0
	for _, in := range known.types {
		want := pairs(limits[in.Name])
		if len(want) == 0 {
			continue
		}
		compared++
		total := 0
		for _, card := range in.NetworkInfo.NetworkCards {
			total += card.MaximumNetworkInterfaces
		}
		n := in.NetworkInfo
		for field, got := range map[string]int{
			"IPv4PerInterface": n.Ipv4AddressesPerInterface, "DefaultNetworkCardIndex": n.DefaultNetworkCardIndex,
			// The controller counts the interfaces of all cards.
			"Interface": total,
		} {
			if w, err := strconv.Atoi(word(want[field])); err != nil || w != got {
				t.Errorf("%s: %s is %d, the controller has %d", in.Name, field, got, w)
			}
		}
	}
	if compared < 1300 {
		t.Errorf("only %d types compared", compared)
	}
}

func TestWhatMostTypesPayForWindows(t *testing.T) {
	known, p := read(t)
	fees := p.windowsFees(known)
	listed, usual := 0, 0
	for _, in := range known.types {
		f, ok := fees[in.Name]
		if !ok || f.derived {
			continue
		}
		listed++
		if math.Abs(f.amount-windowsPerVCPU*float64(in.VCpuInfo.DefaultVCpus)) < 0.001 {
			usual++
		}
	}
	if listed < 500 || usual < listed*8/10 {
		t.Errorf("of %d types that the list sells with Windows, %d pay %v for each vCPU", listed, usual, windowsPerVCPU)
	}
	if f := fees["r3.large"]; !f.derived || f.amount == 0 {
		t.Errorf("regions disagree about r3.large, and yet it pays %+v", f)
	}
	for _, name := range []string{"m7g.large", "trn1.32xlarge", "mac2.metal", "inf2.xlarge", "f2.6xlarge"} {
		if _, ok := fees[name]; ok {
			t.Errorf("%s runs Windows", name)
		}
	}
}

// Ratios are medians, so that a few types that are priced apart do not move them.
func TestRatioIsTheMedianOverTypesThatBothHave(t *testing.T) {
	a := map[string]float64{"m5.large": 0.12, "c5.large": 0.11, "r5.large": 9, "only.here": 1}
	b := map[string]float64{"m5.large": 0.1, "c5.large": 0.1, "r5.large": 1, "only.there": 1}
	if got := ratio(a, b); got != 1.2 {
		t.Errorf("got %v, want 1.2", got)
	}
	if got := ratio(a, map[string]float64{"other": 1}); got != 0 {
		t.Errorf("without a type in common: %v, want 0", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2 {
		t.Errorf("of an even number: %v, want the lower one of the middle", got)
	}
}

func TestARepricedTypeIsRepricedInEveryRegion(t *testing.T) {
	known, p := read(t)
	for _, m := range markets(known, p) {
		q := m.onDemand["p5.48xlarge"]
		list := p.list[m.name]["p5.48xlarge"]
		if m.name == base || list == 0 || strings.HasPrefix(m.name, "us-gov") {
			continue
		}
		if want := list * 55.04 / 98.32; !q.derived || math.Abs(q.price-want) > 0.001 {
			t.Errorf("%s: p5.48xlarge costs %v, want %v, derived", m.name, q, want)
		}
	}
	if got := since(1, 1.001); got != 1 {
		t.Errorf("a difference of rounding counts as a change by %v", got)
	}
}

func TestEveryOfferingIsCarriedOver(t *testing.T) {
	known, p := read(t)
	all := markets(known, p)
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = m.name
		if _, listed := known.zones[m.name]; !listed {
			continue
		}
		for name, zones := range known.offered[m.name] {
			if got := m.offered[name]; !slices.Equal(got, zones) {
				t.Errorf("%s: %s is in %v, want %v", m.name, name, got, zones)
			}
		}
	}
	for _, want := range []string{"us-gov-east-1", "us-gov-west-1", "cn-north-1", "cn-northwest-1", "eu-west-1", "ap-southeast-5"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s among %v", want, names)
		}
	}
	if len(names) != 34 || !slices.IsSorted(names) {
		t.Errorf("%d regions: %v", len(names), names)
	}
}

func TestPricesOfGoFiles(t *testing.T) {
	p := prices{recent: table{}}
	text := "package x\nvar P = map[string]map[T]float64{\n\"us-east-1\": {\"m5.large\": 0.096000, \"c5.large\": 0.085},\n}\n"
	if err := p.readTable([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if got := p.recent["us-east-1"]; got["m5.large"] != 0.096 || got["c5.large"] != 0.085 {
		t.Errorf("got %v", got)
	}
	for _, broken := range []string{"package x", "no Go", strings.Replace(text, "0.096000", "f()", 1)} {
		if err := p.readTable([]byte(broken)); err == nil {
			t.Errorf("%q: no error", broken)
		}
	}
}

func TestPricesOfTheList(t *testing.T) {
	p := prices{list: table{}, windows: table{}, spot: table{}}
	text := `[{"instance_type": "m5.large", "pricing": {"eu-west-1": {"linux": {"ondemand": "0.107", "spot_avg": "N/A"}, "mswin": {"ondemand": "0.199"}}}}]`
	if err := p.readList([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if p.list["eu-west-1"]["m5.large"] != 0.107 || p.windows["eu-west-1"]["m5.large"] != 0.199 || len(p.spot["eu-west-1"]) != 0 {
		t.Errorf("got %+v", p)
	}
	if err := p.readList([]byte(strings.Replace(text, "0.107", "cheap", 1))); err == nil {
		t.Error("what is no price is no error")
	}
}
