package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// withoutCredentials hides the AWS credentials of the computer.
func withoutCredentials(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "credentials"))
}

// Prices that fall back to the built-in catalog, since those of the account cannot be read, are one warning for a person and a field for
// a program, by every command that shows prices of a live cluster.
func TestPricesThatFallBackAreReported(t *testing.T) {
	withoutCredentials(t)
	for _, of := range [][]string{{"assess"}, {"top", "--once"}, {"instance-types", "--live", "m7i.large"}} {
		args := append(of, "--kubeconfig", apiServerOfNothing(t), "-o", "json")
		stdout, stderr, err := command("", args...)
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, stderr)
		}
		got := strings.Count(stderr, "warning: prices are of the built-in catalog of us-east-1")
		if got != 1 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: %d warnings:\n%s", args, got, stderr)
		}
		if !strings.Contains(stdout, `"pricesProblem": "prices of the account cannot be read: `) {
			t.Errorf("%v: a program cannot see that the prices are not the account's:\n%s", args, stdout)
		}
		stdout, stderr, err = command("", append(args, "--prices", "catalog")...)
		if err != nil || stderr != "" || strings.Contains(stdout, "pricesProblem") {
			t.Errorf("%v --prices catalog: %v, %q\n%s", args, err, stderr, stdout)
		}
		if _, _, err = command("", append(args, "--prices", "account")...); of[0] != "top" && err == nil {
			t.Errorf("%v --prices account: no error", args)
		}
	}
	_, _, err := command("", "plan", "-f", "../../examples/plan", "--prices", "account")
	if err == nil || !strings.Contains(err.Error(), "--prices=account: ") {
		t.Errorf("plan --prices account: %v", err)
	}
}

// fixedQuotes are prices of an account: one for each capacity type of each instance type.
type fixedQuotes struct{ onDemand, spot float64 }

func (q fixedQuotes) OnDemand(string) (float64, bool) { return q.onDemand, true }

func (q fixedQuotes) Spot(_, zone string) (float64, bool) { return q.spot, zone != "us-east-1b" }

// pricesOfRegion are those of a live cluster in us-east-1 with the quotes of an account, by instance type, capacity type and zone.
func pricesOfRegion(t *testing.T, source *priceSource, account *accountQuotes) (inspect.Prices, map[[3]string]float64) {
	t.Helper()
	source.regions["us-east-1"] = account
	flags := catalogFlags{region: "us-east-1", source: source}
	opened, err := flags.open(nil, settings.Planning{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := flags.priced(t.Context(), opened, true)
	if err != nil {
		t.Fatal(err)
	}
	types, err := found.Types(nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[[3]string]float64{}
	for _, it := range types {
		for i := range it.Offerings {
			o := &it.Offerings[i]
			out[[3]string{it.Name, o.CapacityType, o.Zone}] = o.Price
		}
	}
	return found, out
}

// Of a live cluster, the file comes before the account, and the account before the catalog: offering by offering, in one line.
func TestAFileComesBeforeTheAccountAndTheAccountBeforeTheCatalog(t *testing.T) {
	source := newPriceSource()
	source.value = pricesOf(t, "onDemand: {m7i.large: 0.7}\nspot: {m7i.large: {us-east-1a: 0.1}}\n")
	var warnings bytes.Buffer
	source.warnings = &warnings
	found, prices := pricesOfRegion(t, source, &accountQuotes{quotes: fixedQuotes{5, 2}, from: "prices of AWS", read: time.Now()})
	catalogOnly := newPriceSource()
	catalogOnly.value = pricesCatalog
	_, built := pricesOfRegion(t, catalogOnly, nil)
	spot, onDemand := karpv1.CapacityTypeSpot, karpv1.CapacityTypeOnDemand
	for of, want := range map[[3]string]float64{
		{"m7i.large", onDemand, "us-east-1a"}: 0.7, {"m7i.large", spot, "us-east-1a"}: 0.1,
		{"m7i.large", spot, "us-east-1c"}: 2, {"m7i.xlarge", onDemand, "us-east-1a"}: 5, {"m7i.xlarge", spot, "us-east-1a"}: 2,
		{"m7i.large", spot, "us-east-1b"}: built[[3]string{"m7i.large", spot, "us-east-1b"}],
	} {
		if prices[of] != want || want == 0 {
			t.Errorf("%v: $%v/h, want $%v/h", of, prices[of], want)
		}
	}
	want := "the file " + source.value + "; prices that it lacks: prices of AWS; prices that AWS does not list: " +
		"the built-in catalog of us-east-1, of July 2026"
	if found.From != want || found.Problem != "" || warnings.Len() > 0 {
		t.Errorf("prices are of %q, problem %q, warnings %q; want %q", found.From, found.Problem, &warnings, want)
	}
}

// Without the account's prices, the file comes before the catalog, and one warning states why.
func TestAFileWithoutTheAccountComesBeforeTheCatalog(t *testing.T) {
	source := newPriceSource()
	source.value = pricesOf(t, "onDemand: {m7i.large: 0.7, m7i.lagre: 1}\n")
	var warnings bytes.Buffer
	source.warnings = &warnings
	found, prices := pricesOfRegion(t, source, &accountQuotes{problem: "no credentials", read: time.Now()})
	if prices[[3]string{"m7i.large", karpv1.CapacityTypeOnDemand, "us-east-1a"}] != 0.7 {
		t.Error("the price of the file does not count")
	}
	problem := "prices of the account cannot be read: no credentials; the prices of 1 instance type are not used"
	if !strings.HasPrefix(found.Problem, problem) || strings.Count(warnings.String(), "warning: ") != 1 ||
		!strings.Contains(warnings.String(), problem) {
		t.Errorf("problem %q, warnings %q", found.Problem, &warnings)
	}
}
