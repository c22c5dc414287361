package report_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dovetail-k8s/dovetail/internal/report"
)

func TestAPageFitsItsWidthInRunes(t *testing.T) {
	p := &report.Page{Width: 24}
	p.Line("node %s costs 12 %% more than the others", "größer")
	p.Item("an item that is folded, too")
	p.Labeled("Note: ", "      ", "the label stands alone")
	p.List("  ", []string{"shop/web x3", "of shop/db", "job one"})
	p.Heading("Nodes")
	p.Section("None", []string{"A"}, nil)
	p.Section("Zürich", []string{"NAME", "$/H"}, [][]string{{"äöü", "1"}, {"b", "2"}}, "     below\n")
	const want = `
node größer costs 12 %
  more than the others
  an item that is
    folded, too
Note: the label stands
      alone
  shop/web x3,
  of shop/db, job one

Nodes
Zürich
  NAME  $/H
  äöü   1
     below
  b     2

`
	if got := "\n" + p.String(); got != want {
		t.Errorf("%s\nwant:%s", got, want)
	}
	for line := range strings.Lines(p.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 24 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestAPageWithoutAWidthFoldsNothing(t *testing.T) {
	p := &report.Page{}
	p.Line("%s", strings.Repeat("word ", 100))
	if got := strings.Count(p.String(), "\n"); got != 1 {
		t.Errorf("%d lines", got)
	}
}

func TestNumbersAreAlignedToTheRight(t *testing.T) {
	got := strings.Join(report.Aligned([][]string{{"A", "N", ""}, {"bb", "10", ""}}, map[int]bool{1: true}), "\n")
	if want := "A    N\nbb  10"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func ExampleMoney() {
	fmt.Println(report.Money(0.0416), report.Money(12), report.Money(-0.5), report.Money(-0.00001))
	fmt.Println(report.Hourly(0.5), report.Hourly(-0.5), report.Price(0.5))
	fmt.Println(report.Grouped(1234567.891, 0), report.Grouped(-1234.5, 2), report.Grouped(-0.001, 2))
	// Output:
	// $0.0416 $12.00 -$0.50 $0.00
	// $0.5000/h -$0.5000/h 0.5000
	// $1,234,568 -$1,234.50 $0.00
}

func ExampleShare() {
	fmt.Println(report.Share(0.996), report.Share(-0.001), report.Percent(0.996))
	// Output: 100% 0% 99
}

func ExamplePlural() {
	fmt.Println(report.Plural(1, "node"), report.Plural(0, "node"), report.Plural(1200, "pod"), report.Count(1200, "pod"), report.Count(1, "pod"))
	// Output: 1 node 0 nodes 1200 pods 1,200 pods 1 pod
}

func ExampleAge() {
	fmt.Println(report.Age(76*time.Hour), report.Age(5*time.Hour+12*time.Minute), report.Age(-time.Second))
	fmt.Println(report.Duration(720*time.Hour), report.Duration(90*time.Minute))
	now := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	fmt.Println(report.Time(now.Add(time.Hour), now), report.Time(now.Add(24*time.Hour), now))
	// Output:
	// 3d4h 5h12m 0s
	// 720h 1h30m
	// 04:04 UTC 2026-01-03 03:04 UTC
}

func ExampleJSON() {
	var out strings.Builder
	if err := report.JSON(&out, "Reason", map[string]string{"why": "a < b"}); err != nil {
		panic(err)
	}
	fmt.Print(out.String())
	// Output:
	// {
	//   "apiVersion": "dovetail.sh/v1alpha1",
	//   "kind": "Reason",
	//   "why": "a < b"
	// }
}

// A price has the same digits in a terminal and in the browser: internal/report/testdata/dollars.json has values with their texts, which the
// page's test compares with its own. Halves are among them, which binary fractions cannot hold, and sums of prices in two orders.
func TestTerminalAndBrowserRoundPricesAlike(t *testing.T) {
	var values []float64
	for i := range 1000 {
		values = append(values, float64(i)/2000, float64(i)/10+0.0005) // 0.0005 apart, so that each other one is a half
	}
	for _, v := range []float64{
		0.0535, 0.05349999999999999, 1.0005, 9.9995, 9.99949, 10.005, 99.995, 999.995, 999.5, 1000.5, 1234.5, 4194304.5, 123456789.5, 5e-17, 0.0005,
		0.1065 + 0.2312 + 0.2312 + 0.0526, 0.0526 + 0.2312 + 0.2312 + 0.1065,
	} {
		values = append(values, v, -v)
	}
	var got bytes.Buffer
	got.WriteString("[\n")
	for i, v := range values {
		comma := ","
		if i == len(values)-1 {
			comma = ""
		}
		fmt.Fprintf(&got, "[%s, %q, %q]%s\n", strconv.FormatFloat(v, 'g', -1, 64), report.Dollars(v), report.Rounded(v, 2), comma)
	}
	got.WriteString("]\n")
	const file = "testdata/dollars.json"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s is not what prices print as (%v): run UPDATE=1 go test ./internal/report", file, err)
	}
	for v, text := range map[float64]string{
		0.0535: "$0.054", 0.0525: "$0.053", 9.9995: "$10.000", 12.345: "$12.35", 1234.5: "$1,235", -0.0004: "$0.000", -0.0005: "−$0.001",
	} {
		if got := report.Dollars(v); got != text {
			t.Errorf("%g prints as %s, want %s", v, got, text)
		}
	}
}
