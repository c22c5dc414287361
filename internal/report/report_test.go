package report_test

import (
	"fmt"
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
