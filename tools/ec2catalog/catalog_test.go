package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func generated(t *testing.T) []byte {
	t.Helper()
	text, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheSameSourcesGiveTheSameText(t *testing.T) {
	if !bytes.Equal(generated(t), generated(t)) {
		t.Error("two runs differ")
	}
}

func TestTheCommittedFileIsUpToDate(t *testing.T) {
	if err := run(filepath.Join("..", "..", "internal", "engine", "catalog", "offline", "ec2.tsv.gz"), true /* check */); err != nil {
		t.Error(err)
	}
}

// The VPC CNI also ships how many pods fit a type, computed from the API's answers by another program.
func TestPodsAgreeWithTheCNI(t *testing.T) {
	dir, err := download(networkLimits)
	if err != nil {
		t.Fatal(err)
	}
	want := podTable(t, filepath.Join(dir, "misc", "eni-max-pods.txt"))
	compared := 0
	lines := strings.Split(string(generated(t)), "\n")
	header := strings.Split(lines[7], "\t")
	for _, line := range lines[8 : len(lines)-1] {
		fields := map[string]string{}
		for i, text := range strings.Split(line, "\t") {
			fields[header[i]] = text
		}
		pods, ok := want[fields["name"]]
		if !ok {
			continue
		}
		compared++
		_, enis, _ := strings.Cut(strings.Split(fields["cards"], ",")[integer(t, "0"+fields["card"])], "/")
		if got := integer(t, enis)*(integer(t, fields["ipv4"])-1) + 2; got != pods {
			t.Errorf("%s: %d pods, the CNI says %d", fields["name"], got, pods)
		}
	}
	if compared < 1200 {
		t.Errorf("only %d types compared", compared)
	}
}

func podTable(t *testing.T, path string) map[string]int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table := map[string]int{}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, pods, ok := strings.Cut(s.Text(), " ")
		if ok && name != "#" {
			table[name] = integer(t, pods)
		}
	}
	return table
}

func integer(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestClockOfProcessor(t *testing.T) {
	got := clockOfProcessor([]instance{
		{Processor: "agreed", Clock: "2.5 GHz"},
		{Processor: "agreed", Clock: ""},
		{Processor: "agreed", Clock: "2.5 GHz"},
		{Processor: "disputed", Clock: "2.5 GHz"},
		{Processor: "disputed", Clock: "Up to 3 GHz"},
		{Processor: "disputed", Clock: "2.5 GHz"},
		{Processor: "unknown", Clock: ""},
	})
	if len(got) != 1 || got["agreed"] != 2.5 {
		t.Errorf("got %v, want only agreed, 2.5", got)
	}
}

func TestTypesOfYoungFamilies(t *testing.T) {
	families, err := parseFamilies("# comment\n\nc8a: AMD x86_64 2 0.10777 metal-24xl=5.69026\n")
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[string]struct {
		vcpus      int
		gib, price float64
	}{
		"medium":     {1, 2, 0.053885},
		"large":      {2, 4, 0.10777},
		"xlarge":     {4, 8, 0.21554},
		"12xlarge":   {48, 96, 2.58648},
		"metal-24xl": {96, 192, 5.69026},
		"metal-48xl": {192, 384, 10.34592},
	} {
		in, err := families["c8a"].instance(size)
		if err != nil {
			t.Fatal(err)
		}
		price := float64(in.Pricing["us-east-1"].Linux.OnDemand)
		if in.VCPUs != want.vcpus || in.MemoryGiB != want.gib || price != want.price {
			t.Errorf("%s: %d vCPUs, %v GiB, %v $/h, want %v", size, in.VCPUs, in.MemoryGiB, price, want)
		}
	}
	if _, err := families["c8a"].instance("metal"); err == nil {
		t.Error("a size without a number is no error")
	}
	for _, broken := range []string{"c8a: AMD x86_64 2", "c8a: AMD x86_64 two 0.1", "c8a: AMD x86_64 2 0.1x", "c8a: AMD x86_64 2 0.1 metal"} {
		if _, err := parseFamilies(broken); err == nil {
			t.Errorf("%q: no error", broken)
		}
	}
}

// What families.txt and repriced.txt take for granted of us-west-2.
func TestOregonCostsWhatVirginiaCosts(t *testing.T) {
	dir, err := download(priceList)
	if err != nil {
		t.Fatal(err)
	}
	list, err := readInstances(filepath.Join(dir, "data", "instances.json"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, in := range list {
		east, west := in.Pricing["us-east-1"].Linux.OnDemand, in.Pricing["us-west-2"].Linux.OnDemand
		if east == 0 || west == 0 {
			continue
		}
		compared++
		if east != west {
			t.Errorf("%s costs %v and %v $/h", in.Name, east, west)
		}
	}
	if compared < 890 {
		t.Errorf("only %d types compared", compared)
	}
}

func TestReprice(t *testing.T) {
	price := func(p dollars) (r regionPrices) { r.Linux.OnDemand = p; return r }
	list := []instance{
		{Name: "a.large", Pricing: map[string]regionPrices{"us-east-1": price(1), "eu-west-1": price(2)}},
		{Name: "b.large", Pricing: map[string]regionPrices{"us-east-1": price(1), "us-west-2": price(1)}},
	}
	if err := reprice(list, "# comment\na.large 0.5\n"); err != nil {
		t.Fatal(err)
	}
	if got := list[0].Pricing; got["us-east-1"] != price(0.5) || got["eu-west-1"] != price(2) || len(got) != 2 {
		t.Errorf("a.large costs %v", got)
	}
	if got := list[1].Pricing; got["us-east-1"] != price(1) || got["us-west-2"] != price(1) {
		t.Errorf("b.large costs %v", got)
	}
	for _, broken := range []string{"c.large 1\n", "a.large one\n"} {
		if err := reprice(list, broken); err == nil {
			t.Errorf("%q: no error", broken)
		}
	}
}
