package top

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/terminalpicture"
)

var update = flag.Bool("update", false, "write the golden screens")

// screenOf is the screen without styles, and without spaces at the finishes of lines.
func screenOf(m Model) string {
	lines := strings.Split(ansi.Strip(m.View()), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); run with -update and read the change:\n%s", file, diff)
	}
}

func TestScreens(t *testing.T) {
	for name, m := range map[string]Model{
		"nodes-80.txt":     sampleModel(80, 24),
		"nodes-200.txt":    sampleModel(200, 30),
		"nodes-40.txt":     sampleModel(40, 16),
		"pending-80.txt":   press(sampleModel(80, 24), "2"),
		"changes-80.txt":   press(sampleModel(80, 24), "3"),
		"node-80.txt":      press(sampleModel(80, 40), "enter"),
		"pod-80.txt":       press(sampleModel(80, 24), "2", "enter"),
		"help-80.txt":      press(sampleModel(80, 40), "?"),
		"filter-80.txt":    press(sampleModel(80, 24), "/", "s", "p", "o", "t"),
		"by-zone-120.txt":  press(sampleModel(120, 24), "g", "s"),
		"stale-80.txt":     sampleModel(80, 24).Update(lost(sampleObserved())),
		"loading-80.txt":   NewModel(Link{Name: "production", Loading: "Reading pods 12000"}),
		"no-nodes-80.txt":  NewModel(Link{}).Update(Observed{Fleet: Observe(Objects{Now: now})}),
		"forbidden-80.txt": NewModel(Link{}).Update(refused(sampleObserved())),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, screenOf(m)) })
	}
}

func lost(o Observed) Observed {
	o.Link.Lost, o.Link.LostWhy = now.Add(-95*time.Second), "dial tcp 10.0.0.1:443: connect: connection refused"
	return o
}

func refused(o Observed) Observed {
	o.Link.Missing = []string{"no permission to list and watch nodepools.karpenter.sh: nothing is planned"}
	o.Link.NotPlanned = "list nodepools: forbidden"
	return o
}

// Whatever the size, the screen has as many lines as the terminal, and none is wider.
func TestScreenFitsTheTerminal(t *testing.T) {
	for _, keys := range [][]string{nil, {"2"}, {"3"}, {"enter"}, {"?"}, {"/", "x"}, {"2", "enter"}} {
		for w := 1; w <= 210; w += 3 {
			for _, h := range []int{1, 2, 3, 8, 24, 60} {
				checkFits(t, press(sampleModel(w, h).Update(lost(refused(sampleObserved()))), keys...), w, h)
			}
		}
	}
}

func checkFits(t *testing.T, m Model, w, h int) {
	t.Helper()
	lines := strings.Split(m.View(), "\n")
	if len(lines) != h {
		t.Fatalf("%d x %d: %d lines", w, h, len(lines))
	}
	for _, l := range lines {
		if got := ansi.StringWidth(l); got > w {
			t.Fatalf("%d x %d: a line is %d columns wide: %q", w, h, got, l)
		}
	}
}

// Text of objects cannot control the terminal, and does not break the layout.
func TestHostileText(t *testing.T) {
	evil := "\x1b[2J\x1b]0;owned\x07\u202egnp\u200b日本語日本語日本語👩‍👩‍👧🇩🇪e\u0301\u0301\u0301\r\n\t\x9b31m" +
		string([]byte{0xff, 0xfe})
	o := sampleObjects()
	o.Nodes[0].Labels = map[string]string{
		corev1.LabelInstanceTypeStable: evil, corev1.LabelTopologyZone: evil, evil: evil, "karpenter.sh/nodepool": evil,
	}
	o.Nodes[1].Status.Conditions[0].Status, o.Nodes[1].Status.Conditions[0].Message = corev1.ConditionFalse, evil
	o.Nodes[0].Spec.Taints = []corev1.Taint{{Key: evil, Value: evil}}
	o.Pods[0].Name, o.Pods[0].Labels = evil, map[string]string{evil: evil}
	o.Pods = append(o.Pods, Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: evil, Namespace: evil, UID: "evil"}}, Scheduler: evil})
	link := Link{Name: evil, Loading: evil, Missing: []string{evil}, Lost: now, LostWhy: evil}
	for _, keys := range [][]string{nil, {"enter"}, {"enter", "enter"}, {"2"}, {"2", "enter"}, {"g", "g"}, {"/", evil}} {
		m := press(NewModel(link).Update(Resize{80, 50}).Update(Observed{Fleet: Observe(o), Prices: evil, Link: link}), keys...)
		checkFits(t, m, 80, 50)
		for _, r := range ansi.Strip(strings.ReplaceAll(m.View(), "\n", "")) {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u202e' || r == '\u200b' || r == '\u200d' {
				t.Fatalf("%v: the screen has the rune %U", keys, r)
			}
		}
		if styles := strings.Count(m.View(), "\x1b") - strings.Count(m.View(), "\x1b["); styles != 0 || strings.Contains(m.View(), "\x1b[2J") {
			t.Fatalf("%v: the screen has a control sequence that is no style", keys)
		}
	}
	var text bytes.Buffer
	if err := NewReport(Observed{Fleet: Observe(o), Link: link}, nil).Text(&text, 0); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(text.String(), "\x1b\x07\r\u202e") {
		t.Error("the text has control characters")
	}
}

func names(m Model) (out []string) {
	for _, r := range m.list.rows {
		if strings.HasPrefix(r.id, "node ") {
			out = append(out, strings.TrimPrefix(r.id, "node "))
		}
	}
	return out
}

func TestSortGroupAndFilter(t *testing.T) {
	m := press(sampleModel(200, 30), "g", "g", "g") // not grouped
	if got := names(m); got[0] != "bootstrap" || len(got) != 9 {
		t.Errorf("by name: %q", got)
	}
	if got := names(press(m, "s")); !strings.HasPrefix(got[0], "ip-10-0-14-5.") {
		t.Errorf("by price: %q", got)
	}
	if got := names(press(m, "s", "r")); strings.HasPrefix(got[0], "ip-10-0-14-5.") {
		t.Errorf("by price, reversed: %q", got)
	}
	if got := names(press(m, "s", "s", "s")); got[0] != "bootstrap" {
		t.Errorf("by age, the oldest first: %q", got)
	}
	for filter, want := range map[string]int{
		"": 9, "spot": 6, "pool:batch": 2, "pool:general !spot": 2, "state:drifted": 1, "state:notready": 1, "zone:eu-west-1b": 2,
		"type:c7i state:planned": 1, "nothing": 0, "C7I": 3, "capacity:on-demand": 2, "state:blocked": 2,
	} {
		typed := []string{"/"}
		for _, r := range filter {
			key := string(r)
			if r == ' ' {
				key = "space"
			}
			typed = append(typed, key)
		}
		if got := names(press(m, append(typed, "enter")...)); len(got) != want {
			t.Errorf("filter %q shows %d nodes, want %d: %q", filter, len(got), want, got)
		}
	}
	if got := names(press(m, "/", "x", "y", "esc")); len(got) != 9 {
		t.Error("escape does not undo the filter")
	}
}

// A row stays selected while others come, go and change places.
func TestTheSelectionFollowsItsRow(t *testing.T) {
	m := press(sampleModel(80, 24), "down", "down")
	selected := m.cursors[m.page()].id
	m = press(m, "s", "g")
	if got := m.cursors[m.page()].id; got != selected {
		t.Errorf("selected %q, was %q", got, selected)
	}
	o := sampleObjects()
	o.Nodes, o.Claims = o.Nodes[1:], o.Claims[1:]
	if got := m.Update(Observed{Fleet: Observe(o)}); got.cursors[got.page()].id != selected {
		t.Errorf("after a node is gone: %q, was %q", got.cursors[got.page()].id, selected)
	}
	empty := m.Update(Observed{Fleet: Observe(Objects{Now: now})})
	if got := press(empty, "down", "up", "enter", "end", "pgup"); len(got.open) > 0 {
		t.Error("something opens in an empty list")
	}
}

func TestDrillIntoAPodAndBack(t *testing.T) {
	m := press(sampleModel(100, 40), "enter")
	if s := screenOf(m); !strings.Contains(s, "Labels") || !strings.Contains(s, "shop/web-50") {
		t.Fatalf("the node has no pods or labels:\n%s", s)
	}
	m = press(m, "enter")
	if s := screenOf(m); !strings.Contains(s, "dovetail explain pod shop/web-5") {
		t.Fatalf("the pod is not open:\n%s", s)
	}
	m = press(m, "esc", "esc")
	if len(m.open) != 0 || m.Done {
		t.Error("escape does not lead back to the list")
	}
	gone := press(sampleModel(80, 24), "enter").Update(Observed{Fleet: Observe(Objects{Now: now})})
	if s := screenOf(gone); !strings.Contains(s, "is gone") {
		t.Errorf("an open node that is deleted:\n%s", s)
	}
}

func TestReportHasNoNullLists(t *testing.T) {
	var out bytes.Buffer
	if err := NewReport(Observed{Fleet: Observe(Objects{Now: now})}, nil).JSON(&out); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(out.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"nodes", "pending", "missing"} {
		if fields[list] == nil {
			t.Errorf("%s is null", list)
		}
	}
	var text bytes.Buffer
	if err := NewReport(sampleObserved(), sampleForecast()).Text(&text, 0); err != nil {
		t.Fatal(err)
	}
	golden(t, "once.txt", text.String())
}

// The picture of docs/top.md is what the screen shows.
func TestPicture(t *testing.T) {
	p := terminalpicture.Picture{
		Command: "dovetail top", Columns: 104, Screen: sampleModel(104, 20).View(),
		Description: "A screen of dovetail top: the use and the price of all nodes, then the nodes by NodePool with bars of what pods " +
			"request, price, age and state.",
	}
	golden(t, "../../../docs/pictures/top.svg", string(p.SVG()))
}

// With the width of a terminal, no line is wider.
func TestTheStateOnceFitsANarrowTerminal(t *testing.T) {
	report := NewReport(sampleObserved(), sampleForecast())
	report.Pending[0].Why = "NodePool general has no instance type with nvidia.com/gpu: it allows only instance category in (c, m, r)"
	var text bytes.Buffer
	if err := report.Text(&text, 80); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if columns := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); columns > 80 {
			t.Errorf("%d columns: %s", columns, line)
		}
	}
}

// Prices that fall back are a line on the screen, and so is what decisions have saved.
func TestTheScreenHasABannerForPricesAndSavings(t *testing.T) {
	m := sampleModel(100, 24)
	if got := screenOf(m); strings.Contains(got, "cannot be read") || strings.Contains(got, "saved by decisions") {
		t.Fatalf("before:\n%s", got)
	}
	o := sampleObserved()
	o.PricesProblem = "prices of the account cannot be read: no credentials"
	m = m.Update(o).Update(Realized{Until: now, HourlySavings: 1.5, TotalSavings: 12.25})
	got := screenOf(m)
	for _, want := range []string{" ! prices of the account cannot be read: no credentials\n", ": $12.25, and $1.5000/h now\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the screen lacks %q:\n%s", want, got)
		}
	}
}
