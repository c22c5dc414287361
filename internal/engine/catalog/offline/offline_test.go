package offline

import (
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
	if n := len(c.Types()); n != 1373 {
		t.Errorf("%d types, want all of EC2's, which were 1373 in August 2026", n)
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
			{typ.VCPUs < 1 || typ.Cores < 1 || typ.VCPUs%typ.Cores != 0, "has whole threads per core"},
			{typ.MemoryMiB < 512, "has at least half a GiB"},
			{len(typ.Architectures) == 0, "has an architecture"},
			{!slices.Contains([]string{"Intel", "AMD", "AWS", "Apple"}, typ.Manufacturer), "has a known manufacturer"},
			{slices.Contains(typ.Architectures, "arm64") != (typ.Manufacturer == "AWS"), "is arm64 if and only if AWS made the processor"},
			{typ.ClockGHz < 0 || typ.ClockGHz > 6, "has a plausible clock"},
			{!typ.BareMetal && typ.Hypervisor == "", "is bare metal or has a hypervisor"},
			{typ.BareMetal != strings.Contains(typ.Name, ".metal"), "is called metal if and only if it is"},
			{!slices.Contains(typ.UsageClasses, "on-demand"), "is sold on demand"},
			{typ.IPv4PerENI < 2 && typ.Name != "t1.micro", "has an address for pods"},
			{typ.EFAMax > len(typ.NetworkCards), "has at most one EFA per card"},
			{typ.EBSAttachments < 1 || !slices.Contains([]string{"shared", "dedicated"}, typ.EBSAttachmentLimit), "has a limit of volumes"},
			{len(typ.Virtualization) == 0 || len(typ.Placement) == 0, "has a virtualization and placement groups"},
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

func TestZones(t *testing.T) {
	c := load(t)
	if got, want := c.ZoneIDs("us-west-2", "m5.large"), []string{"usw2-az1", "usw2-az2", "usw2-az3", "usw2-az4"}; !slices.Equal(got, want) {
		t.Errorf("m5.large is in %v, want %v", got, want)
	}
	if got := c.ZoneIDs("eu-west-1", "p4d.24xlarge"); got == nil {
		t.Error("p4d.24xlarge is not in eu-west-1, which offers it")
	}
	if got := c.ZoneIDs("me-south-1", "p4d.24xlarge"); got != nil {
		t.Errorf("p4d.24xlarge is in %v of me-south-1, which does not offer it", got)
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
		{"g5.12xlarge", 48, 24, 192, 737, 3800, 4, 0, true, true},
		{"p4d.24xlarge", 96, 48, 1152, 737, 8000, 8, 0, true, true},
		{"p5.48xlarge", 192, 96, 2048, 100, 30400, 8, 0, true, true},
		{"inf1.24xlarge", 96, 48, 192, 321, 0, 0, 64, true, true},
		{"inf2.48xlarge", 192, 96, 768, 737, 0, 0, 24, true, true},
		{"trn1.32xlarge", 128, 64, 512, 247, 7600, 0, 32, false, true},
		{"trn2.48xlarge", 192, 96, 2048, 100, 7600, 0, 128, true, true},
		{"m8i.large", 2, 1, 8, 59, 0, 0, 0, false, true},
		{"c8a.medium", 1, 1, 2, 8, 0, 0, 0, false, true},
		{"c9g.metal-48xl", 192, 192, 384, 1514, 0, 0, 0, false, true},
		{"x8i.96xlarge", 384, 192, 6144, 1514, 0, 0, 0, true, true},
		{"m1.small", 1, 1, 1.7, 8, 160, 0, 0, false, false},
		{"u-6tb1.112xlarge", 448, 224, 6144, 737, 0, 0, 0, false, true},
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

func text(t *testing.T, name string) string {
	t.Helper()
	file, err := embedded.ReadFile("data/" + name + suffix)
	if err != nil {
		t.Fatal(err)
	}
	var out string
	if err := unpack(file, func(text []byte) error { out = string(text); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRefusesWhatItDoesNotUnderstand(t *testing.T) {
	types, prices := text(t, "types"), text(t, "us-east-1")
	for name, broken := range map[string]string{
		"another version": strings.Replace(types, "dovetail-ec2 2", "dovetail-ec2 3", 1),
		"unknown column":  strings.Replace(types, "\tena\t", "\tena2\t", 1),
		"missing column":  strings.Replace(types, "\tattach\tattachkind\t", "\tattach\t", 1),
		"missing field":   strings.Replace(types, "\tnitro\t", "\t", 1),
		"no number":       strings.Replace(types, "m5.xlarge\t4\t", "m5.xlarge\tfour\t", 1),
		"unknown flag":    strings.Replace(types, "\tce\t", "\tcez\t", 1),
		"not sorted":      strings.Replace(types, "\nm5.xlarge\t", "\na5.xlarge\t", 1),
		"half an entry":   strings.Replace(types, "\t0/4\t", "\t0\t", 1),
		"no types":        types[:strings.Index(types, "\na1.")+1],
	} {
		if broken == types {
			t.Fatalf("%s: nothing was broken", name)
		}
		if err := (&Catalog{}).parseTypes([]byte(broken)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, broken := range map[string]string{
		"another version": strings.Replace(prices, marketMagic, marketMagic+"1", 1),
		"no region":       strings.Replace(prices, "region us-east-1 USD 1\n", "", 1),
		"no zones":        prices[:strings.Index(prices, "zones")],
		"unknown line":    strings.Replace(prices, "month ", "year ", 1),
		"no number":       strings.Replace(prices, "m5.xlarge\t", "m5.xlarge\tx", 1),
		"no ratio":        strings.Replace(prices, "ratio 1", "ratio one", 1),
		"not sorted":      strings.Replace(prices, "\nm5.xlarge\t", "\na5.xlarge\t", 1),
		"missing field":   strings.Replace(prices, "\nm5.xlarge\t", "\nm5.xlarge", 1),
		"no mask":         strings.Replace(prices, "\t2b\n", "\t2z\n", 1),
		"unknown zone":    strings.Replace(prices, "\t2b\n", "\t4b\n", 1),
	} {
		if broken == prices {
			t.Fatalf("%s: nothing was broken", name)
		}
		if err := (&Catalog{markets: map[string]*market{}}).parseMarket([]byte(broken)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := unpack([]byte(prices), func([]byte) error { return nil }); err == nil {
		t.Error("what is not compressed: no error")
	}
}

func TestTheFilesAreSmall(t *testing.T) {
	total := 0
	entries, err := embedded.ReadDir("data")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		file, err := embedded.ReadFile("data/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		total += len(file)
	}
	if total > 250<<10 {
		t.Errorf("%d bytes, want at most 250 KiB", total)
	}
}

// What `dovetail plan` reads when it starts.
func BenchmarkLoadOneRegion(b *testing.B) {
	for b.Loop() {
		if _, err := Load("eu-west-1"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoadAll(b *testing.B) {
	for b.Loop() {
		load(b)
	}
}
