package main

import (
	"flag"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/tools/monitoring/alerting"
	"github.com/dovetail-k8s/dovetail/tools/monitoring/series"
)

var update = flag.Bool("update", false, "write the expected alerts of testdata/alerts.yaml anew; commit only what you understand")

// alertTests is a file in the format of `promtool test rules`, as far as it is used.
type alertTests struct {
	RuleFiles          []string       `json:"rule_files"`
	EvaluationInterval model.Duration `json:"evaluation_interval"`
	Tests              []*alertTest   `json:"tests"`
}

type alertTest struct {
	Name        string         `json:"name"`
	Interval    model.Duration `json:"interval"`
	InputSeries []struct {
		Series string `json:"series"`
		Values string `json:"values"`
	} `json:"input_series"`
	AlertRuleTest []struct {
		EvalTime  model.Duration  `json:"eval_time"`
		Alertname string          `json:"alertname"`
		ExpAlerts []expectedAlert `json:"exp_alerts"`
	} `json:"alert_rule_test"`
}

type expectedAlert struct {
	Labels      map[string]string `json:"exp_labels"`
	Annotations map[string]string `json:"exp_annotations"`
}

// rules are the rules that we ship, by the names of their alerts.
func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, err := alerting.Parse(filepath.Join(chart, "rules", "dovetail.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]rulefmt.Rule{}
	for _, g := range groups {
		for _, r := range g.Rules {
			if _, twice := out[r.Alert]; twice {
				t.Errorf("two rules have the name %s", r.Alert)
			}
			out[r.Alert] = r
		}
	}
	return out
}

// Each case fires or is silent as its name states, and an alert that fires has the expected labels and texts.
func TestAlerts(t *testing.T) {
	const file = "testdata/alerts.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var tests alertTests
	if err := yaml.UnmarshalStrict(text, &tests); err != nil {
		t.Fatal(err)
	}
	shipped := rules(t)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, tc := range tests.Tests {
		t.Run(tc.Name, func(t *testing.T) {
			data := tc.store(t)
			for i := range tc.AlertRuleTest {
				want := &tc.AlertRuleTest[i]
				rule, known := shipped[want.Alertname]
				if !known {
					t.Fatalf("no rule has the name %s", want.Alertname)
				}
				got := firing(t, data, rule, time.Duration(tests.EvaluationInterval), time.Duration(want.EvalTime))
				if *update {
					want.ExpAlerts = got
				}
				if diff := cmp.Diff(want.ExpAlerts, got); diff != "" {
					t.Errorf("after %v (-want +got)\n%s", want.EvalTime, diff)
				}
				switch {
				case strings.HasPrefix(tc.Name, want.Alertname+" fires: ") && len(got) > 0:
					fires[want.Alertname] = true
				case strings.HasPrefix(tc.Name, want.Alertname+" is silent: ") && len(got) == 0:
					silent[want.Alertname] = true
				default:
					t.Errorf("%d alerts, which is not what the name of the case states", len(got))
				}
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(shipped)) {
		if !fires[name] || !silent[name] {
			t.Errorf("%s needs a case in which it fires and one in which it is silent", name)
		}
	}
	if *update {
		if text, err = yaml.Marshal(tests); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// store has the input of a test from the time 0, as promtool does.
func (tc *alertTest) store(t *testing.T) *series.Store {
	t.Helper()
	var out series.Store
	for _, in := range tc.InputSeries {
		of, values, err := series.Parser().ParseSeriesDesc(in.Series + " " + in.Values)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range values {
			if v.Omitted {
				continue
			}
			if err := out.Add(of, time.Unix(0, 0).Add(time.Duration(i)*time.Duration(tc.Interval)), v.Value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &out
}

// firing evaluates a rule from the time 0 to a time, and returns the alerts that fire then, in the order of their labels.
func firing(t *testing.T, data *series.Store, rule rulefmt.Rule, every, until time.Duration) []expectedAlert {
	t.Helper()
	state := alerting.NewState(rule)
	var now []alerting.Alert
	for at := time.Duration(0); at <= until; at += every {
		var err error
		if now, err = state.Evaluate(t.Context(), data, time.Unix(0, 0).Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	out := []expectedAlert{}
	for _, a := range now {
		if a.Firing {
			delete(a.Labels, "alertname") // promtool adds it
			out = append(out, expectedAlert{a.Labels, a.Annotations})
		}
	}
	slices.SortFunc(out, func(a, b expectedAlert) int { return strings.Compare(key(a.Labels), key(b.Labels)) })
	return out
}

// key orders sets of labels.
func key(labels map[string]string) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out.WriteString(name + "=" + labels[name] + ",")
	}
	return out.String()
}

// Anyone who is woken by an alert learns what it is about, what to do next, and where to read more.
func TestAlertsLeadToARemedy(t *testing.T) {
	known := troubleshooting(t)
	for name, r := range rules(t) {
		if !strings.HasPrefix(name, "Dovetail") {
			t.Errorf("%s does not begin with Dovetail", name)
		}
		if s := r.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, s) {
			t.Errorf("%s has the severity %q", name, s)
		}
		if s := r.Annotations["summary"]; s == "" || !strings.HasSuffix(s, ".") || strings.Contains(s, "{{") {
			t.Errorf("%s: the summary %q is not a sentence of its own", name, s)
		}
		if d := r.Annotations["description"]; !strings.Contains(d, "kubectl") && !strings.Contains(d, "dovetail ") {
			t.Errorf("%s: the description names no command to run", name)
		}
		link, err := url.Parse(strings.ReplaceAll(r.Annotations["runbook_url"], "{{ $labels.check }}", "nodes-late"))
		if err != nil || !strings.HasSuffix(link.Path, "/docs/troubleshooting.md") || !known[link.Fragment] {
			t.Errorf("%s: runbook_url %q leads to no section of docs/troubleshooting.md", name, r.Annotations["runbook_url"])
		}
	}
}

// troubleshooting are the anchors of the headings of docs/troubleshooting.md.
func troubleshooting(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		letters := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		out[strings.ReplaceAll(letters, " ", "-")] = true
	}
	return out
}
