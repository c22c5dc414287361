package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/pricefile"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// pricesOf writes a file of prices.
func pricesOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prices.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// statesPrices are the commands that state prices, of the cluster in assessedFiles.
var statesPrices = map[string][]string{
	"plan":             {"plan", "-f", assessedFiles, "--no-timings"},
	"instance-types":   {"instance-types", "-f", assessedFiles, "--nodepool", "general", "m7i.2xlarge"},
	"explain pod":      {"explain", "pod", "shop/search-7d9c4-1", "-f", assessedFiles},
	"explain node":     {"explain", "node", "ip-10-0-1-12", "-f", assessedFiles},
	"explain nodepool": {"explain", "nodepool", "general", "-f", assessedFiles},
	"assess":           {"assess", "-f", assessedFiles},
	"top":              {"top", "--once", "-f", assessedFiles},
}

// Each command that states prices takes them from a file, and states once where they come from: for a person and for a program.
func TestEachCommandTakesPricesOfAFile(t *testing.T) {
	path := pricesOf(t, "onDemand: {m7i.2xlarge: 0.1234, m7i.xlarge: 0.01}\nspot: {m7i.2xlarge: {us-east-1a: 0.0123}}\n")
	lacks := "; prices that it lacks: the built-in catalog of us-east-1, of July 2026"
	for name, args := range statesPrices {
		for source, want := range map[string]string{path: "the file " + path + lacks, pricesCatalog: "the built-in catalog of us-east-1, of July 2026"} {
			stdout, stderr, err := command("", append(args, "--prices", source)...)
			if err != nil || strings.Contains(stderr, "warning") {
				t.Fatalf("%s --prices %s: %v: %s", name, source, err, stderr)
			}
			unfolded := strings.Join(strings.Fields(stdout), " ")
			if strings.Count(unfolded, "Prices: ") != 1 || !strings.Contains(unfolded, "Prices: "+want) {
				t.Errorf("%s --prices %s does not state once %q:\n%s", name, source, want, stdout)
			}
			var document struct {
				Prices string
				Cost   struct{ Prices string } // of top
			}
			stdout, _, err = command("", append(args, "--prices", source, "-o", "json")...)
			if err != nil || json.Unmarshal([]byte(stdout), &document) != nil || document.Prices+document.Cost.Prices != want {
				t.Errorf("%s --prices %s -o json: prices %q, want %q (%v)", name, source, document.Prices+document.Cost.Prices, want, err)
			}
		}
	}
}

// The price of a file is that of a node in every command.
func TestANodeCostsWhatTheFileSays(t *testing.T) {
	path := pricesOf(t, "onDemand: {m7i.2xlarge: 0.1234}\n")
	node := []string{"explain", "node", "ip-10-0-1-12", "-f", assessedFiles, "--prices", path}
	if got := parsed[struct{ HourlyCost float64 }](t, node...); got.HourlyCost != 0.1234 {
		t.Errorf("explain node: $%v/h, want $0.1234/h", got.HourlyCost)
	}
	top := parsed[struct{ Nodes pricedNodes }](t, "top", "--once", "-f", assessedFiles, "--prices", path)
	found := false
	for _, n := range top.Nodes {
		found = found || n.Name == "ip-10-0-1-12" && *n.HourlyCost == 0.1234
	}
	if !found {
		t.Error("top: the node does not cost $0.1234/h")
	}
	types := append(statesPrices["instance-types"], "--prices", path)
	if got := succeed(t, types...); !strings.Contains(got, "0.1234") {
		t.Errorf("instance-types:\n%s", got)
	}
}

// A plan launches what is cheapest by the file.
func TestAPlanLaunchesWhatIsCheapestByTheFile(t *testing.T) {
	path := pricesOf(t, "onDemand: {m5.4xlarge: 0.0001}\n")
	args := []string{"plan", "-f", "../../examples/plan", "--no-timings"}
	if before := succeed(t, args...); strings.Contains(before, "m5.4xlarge") {
		t.Fatalf("it is the cheapest without the file:\n%s", before)
	}
	if got := succeed(t, append(args, "--prices", path)...); !strings.Contains(got, "m5.4xlarge") || !strings.Contains(got, "0.0001") {
		t.Errorf("plan:\n%s", got)
	}
}

// What a file has and the catalog lacks is a warning with the name that was meant.
func TestMisspelledInstanceTypesAndZonesAreReported(t *testing.T) {
	path := pricesOf(t, "onDemand: {m7i.large: 1, m7i.2xlagre: 1, x: 1, y: 1, z: 1}\nspot: {m7i.large: {us-east-1q: 1}}\n")
	for name, args := range statesPrices {
		_, stderr, err := command("", append(args, "--prices", path)...)
		want := `warning: the prices of 4 instance types are not used, which the catalog lacks: "m7i.2xlagre" (did you mean m7i.2xlarge?), `
		if err != nil || strings.Count(stderr, "warning: ") != 1 || !strings.Contains(stderr, want) ||
			!strings.Contains(stderr, ` and 1 more; the spot prices of 1 zone are not used, which the catalog lacks: "us-east-1q"`) {
			t.Errorf("%s: %v\n%s", name, err, stderr)
		}
	}
}

func TestWrongPricesStopACommand(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "it has no prices",
		"onDemand: {m7i.large: -1}":              "onDemand.m7i.large: -1 is no price",
		"onDemand: {m7i.large: .nan}":            "NaN",
		"onDemand: {m7i.large: 1e99}":            "1e+99 is no price",
		"onDemand: {nothing: 1}":                 `it has no instance type of the catalog: "nothing"`,
		"{":                                      "not a file of prices",
		"onDemand: {m7i.large: .inf}":            "Inf",
		"onDemand: {m7i.large: 1, m7i.large: 2}": "m7i.large",
		"onDemand: {m7i.large: 1}\n---\nspot: {m7i.large: 1}": "it has several documents",
		"onDemand: &a {x: *a}":                                "not a file of prices",
		"a,b,c\n1,2,3":                                        "not a file of prices",
		"onDemand: {m7i.large: 1, \"\\e[2J\": 1}":             `"\x1b[2J"`,
	} {
		path := pricesOf(t, text)
		for name, args := range statesPrices {
			_, stderr, err := command("", append(args, "--prices", path)...)
			shown := stderr
			if err != nil {
				shown += shownError(err)
			}
			if !strings.Contains(shown, want) || strings.Contains(shown, "\x1b") {
				t.Errorf("%s with %q: %q, want %q", name, text, shown, want)
			}
			if strings.HasPrefix(text, "onDemand: {m7i.large: 1, \"\\e") != (err == nil) {
				t.Errorf("%s with %q: error %v", name, text, err)
			}
		}
	}
}

func TestSourcesOfPricesThatAreNone(t *testing.T) {
	for value, want := range map[string]string{
		"acount":      `"acount" is neither a file nor one of auto, account, catalog, did you mean account?`,
		"./none.yaml": "open ./none.yaml: no such file",
		"testdata":    "--prices testdata: ",
	} {
		_, _, err := command("", "plan", "-f", "../../examples/plan", "--prices", value)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--prices %s: %v, want %q", value, err, want)
		}
	}
	_, _, err := command("", "explain", "nodepool", "default", "--recording", consolidationRecording, "--prices", "catalog")
	if err == nil || !strings.Contains(err.Error(), "a recording has the prices of its controller") {
		t.Errorf("--recording with --prices: %v", err)
	}
	for _, endless := range []string{"/dev/zero", pricesOf(t, strings.Repeat("#", largestPriceFile+1))} {
		_, _, err = command("", "plan", "-f", "../../examples/plan", "--prices", endless)
		if err == nil || !strings.Contains(err.Error(), "it is larger than 4 MiB") {
			t.Errorf("--prices %s: %v", endless, err)
		}
	}
}

// fixedCatalog is a catalog of these types.
type fixedCatalog []*catalog.InstanceType

func (c fixedCatalog) Types(*awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) { return c, nil }

// A type without a price can be launched at that of the file. Windows keeps its price, which has a license in it, and the catalog itself is
// not changed.
func TestAPriceOfTheFileMakesATypeLaunchable(t *testing.T) {
	prices, err := pricefile.Decode([]byte(`{"onDemand": {"m": 0.5, "w": 0.5}, "spot": {"m": 0.1}}`))
	if err != nil {
		t.Fatal(err)
	}
	offering := catalog.Offering{
		Zone: "z", CapacityType: "on-demand", UnavailableReason: catalog.ReasonNoPrice, UnavailableMessage: "no price",
	}
	refused := catalog.Offering{Zone: "z", CapacityType: "spot", Price: 9, UnavailableReason: catalog.ReasonNotOffered}
	typeOf := func(name, os string) *catalog.InstanceType {
		return &catalog.InstanceType{
			Name: name, Requirements: requirement.NewSet(requirement.In(corev1.LabelOSStable, os)), Offerings: []catalog.Offering{offering, refused},
		}
	}
	base := fixedCatalog{typeOf("m", "linux"), typeOf("w", "windows")}
	types, err := quotedCatalog{base, prices}.Types(nil)
	if err != nil {
		t.Fatal(err)
	}
	if o := types[0].Offerings[0]; !o.Available || o.Price != 0.5 || o.UnavailableReason != "" || o.UnavailableMessage != "" {
		t.Errorf("without a price before: %+v", o)
	}
	if o := types[0].Offerings[1]; o.Available || o.Price != 0.1 {
		t.Errorf("not offered: %+v", o)
	}
	if o := types[1].Offerings[0]; o.Available || o.Price != 0 {
		t.Errorf("Windows: %+v", o)
	}
	if o := base[0].Offerings[0]; o.Available || o.Price != 0 {
		t.Errorf("the catalog has changed: %+v", o)
	}
}
