package scenario_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/lab/labtest"
)

// expectedAlerts are the alerts that fire over the metrics of a scenario. Any other alert is a false one.
type expectedAlerts struct {
	must []string
	// may are those that depend on the speed of the host.
	may []string
	// still means that nothing fires either if the end of the scenario is held for an hour.
	still bool
}

// alertsOf are the scenarios of the five failures, and some that are healthy.
var alertsOf = map[string]expectedAlerts{
	"two-clusters-one-name":          {must: []string{"DovetailClusterNameShared"}},
	"role-not-mapped":                {must: []string{"DovetailNodeNotJoining", "DovetailLaunchesHeldBack"}},
	"controller-role-mapped-instead": {must: []string{"DovetailLaunchesHeldBack"}},
	"volume-detach-on-disruption":    {must: []string{"DovetailVolumesNotDetached"}},
	// The taint makes the pod get a second node, so it is the scenario of two nodes for one pod, too.
	"uninitialized-taint": {
		must: []string{"DovetailStartupTaintStuck", "DovetailSurplusLaunches"}, may: []string{"DovetailLaunchesHeldBack"},
	},
	"node-never-ready": {
		must: []string{"DovetailStartupTaintStuck", "DovetailLaunchesHeldBack"}, may: []string{"DovetailSurplusLaunches"},
	},
	"refused-nodes":     {must: []string{"DovetailPodsRefused"}, may: []string{"DovetailSurplusLaunches"}},
	"first-node":        {still: true},
	"immediate-volume":  {},
	"spot-interruption": {still: true},
}

// alsoRecorded are scenarios with metrics of Karpenter that the others lack.
var alsoRecorded = []string{"nodepool-limit", "repair", "reboot-for-repair", "static-pool", "terminate-first", "deletion-cost"}

// everythingOf is the scenario that is recorded with the metrics of all instance types, which are most of a scrape.
const everythingOf = "first-node"

// recordings are the metrics of scenarios, recorded while TestScenarios runs them.
type recordings struct {
	dir string
	// monitoring is the program that evaluates alert rules, built once.
	monitoring func() (string, error)
}

func newRecordings(t *testing.T) *recordings {
	t.Helper()
	r := &recordings{dir: t.TempDir()}
	r.monitoring = sync.OnceValues(func() (string, error) {
		path := filepath.Join(r.dir, "monitoring")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
		build.Dir, build.Env = filepath.Join(labtest.Root, "tools", "monitoring"), append(os.Environ(), "GOWORK=off")
		build.Stderr = os.Stderr
		return path, build.Run()
	})
	return r
}

func (r *recordings) path(scenario string) string { return filepath.Join(r.dir, scenario+".om.gz") }

// flags make the lab record a scenario, if a test reads it.
func (r *recordings) flags(t *testing.T, scenario string) []string {
	t.Helper()
	_, alerts := alertsOf[scenario]
	if !alerts && !slices.Contains(alsoRecorded, scenario) {
		return nil
	}
	flags := []string{"--metrics-out", r.path(scenario)}
	if scenario == everythingOf {
		return flags
	}
	match := []string{"dovetail_.*"}
	for _, name := range slices.Sorted(maps.Keys(karpentersMetrics(t))) {
		if !strings.HasPrefix(name, "karpenter_cloudprovider_instance_type_") {
			match = append(match, name)
		}
	}
	return append(flags, "--metrics-match", strings.Join(match, "|"))
}

// checkAlerts evaluates the rules that we ship over the metrics of a scenario, at each scrape.
func (r *recordings) checkAlerts(t *testing.T, scenario string) {
	t.Helper()
	want, checked := alertsOf[scenario]
	if !checked {
		return
	}
	program, err := r.monitoring()
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), program, "-alerts", r.path(scenario))
	run.Dir, run.Stderr = filepath.Join(labtest.Root, "tools", "monitoring"), os.Stderr
	out, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	var fired map[string]struct{ During, After []map[string]string }
	if err := json.Unmarshal(out, &fired); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	names := map[string]bool{}
	for _, alert := range fired[r.path(scenario)].During {
		name := alert["alertname"]
		names[name] = true
		if !slices.Contains(slices.Concat(want.must, want.may), name) {
			t.Errorf("an alert fires that should not: %v", alert)
		}
	}
	for _, name := range want.must {
		if !names[name] {
			t.Errorf("%s does not fire, only %v", name, slices.Sorted(maps.Keys(names)))
		}
	}
	if after := fired[r.path(scenario)].After; want.still && len(after) > 0 {
		t.Errorf("alerts would fire if the end of the scenario lasted: %v", after)
	}
}

// mayBeSilent are metrics that no recording need have series of, and why. docs/metrics.md has them, too.
var mayBeSilent = map[string]string{
	"karpenter_cloudprovider_instance_launch_failures_total":      "EC2 has to refuse a launch",
	"karpenter_cloudprovider_instance_termination_failures_total": "EC2 has to refuse a termination",
	"karpenter_consolidation_score":                               "a pool has to have the policy Balanced",
	"karpenter_consolidation_moves_total":                         "consolidation has to find something to replace",
	"karpenter_nodepools_cost_tracker_errors_total":               "a node has to have no known price",
	"karpenter_scheduler_queue_depth":                             "exists only while a plan is computed",
	"karpenter_scheduler_unfinished_work_seconds":                 "exists only while a plan is computed",
	"operator_capacitybuffer_termination_current_time_seconds":    "a CapacityBuffer is gone at once, without a finalizer",
	"operator_capacitybuffer_termination_duration_seconds":        "a CapacityBuffer is gone at once, without a finalizer",
	"operator_nodepool_termination_current_time_seconds":          "a NodePool is gone at once, without a finalizer",
	"operator_nodepool_termination_duration_seconds":              "a NodePool is gone at once, without a finalizer",
	"karpenter_nodes_reboot_duration_seconds":                     "a node has to have been rebooted when the scenario ends",
}

// checkNames checks that each metric of Karpenter's pages was scraped from a controller with its type, and that its series had exactly
// its labels. If not all scenarios ran, some have no series.
func (r *recordings) checkNames(t *testing.T, all bool) {
	scraped := map[string]*scrapedFamily{}
	for _, scenario := range slices.Concat(slices.Sorted(maps.Keys(alertsOf)), alsoRecorded) {
		if _, err := os.Stat(r.path(scenario)); err != nil && !all {
			continue
		}
		readRecording(t, r.path(scenario), scraped)
	}
	expected := karpentersMetrics(t)
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		want, got := expected[name], scraped[name]
		if got == nil || got.kind != want.Type {
			t.Errorf("%s: scraped %+v, want a %s", name, got, want.Type)
			continue
		}
		if _, may := mayBeSilent[name]; len(got.labels) == 0 && !may && all {
			t.Errorf("%s has no series in any scenario: initialize it, or add why to mayBeSilent", name)
		}
		for labels := range got.labels {
			if labels != joined(want.Labels) {
				t.Errorf("%s: a series has the labels %s, want %s", name, labels, joined(want.Labels))
			}
		}
	}
	for name := range mayBeSilent {
		if _, exists := expected[name]; !exists {
			t.Errorf("mayBeSilent has %s, which Karpenter does not have", name)
		}
	}
}

type karpentersMetric struct {
	Type   string
	Labels []string
}

// karpentersMetrics are the metrics of Karpenter's pages and of its libraries, by name.
func karpentersMetrics(t *testing.T) map[string]karpentersMetric {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(labtest.Root, "cmd/dovetail/testdata/karpenter-1.15.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var k struct{ Metrics, LibraryMetrics map[string]karpentersMetric }
	if err := yaml.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	maps.Copy(k.Metrics, k.LibraryMetrics)
	for name, m := range k.Metrics {
		if i := slices.Index(m.Labels, "NODE"); i >= 0 {
			m.Labels = slices.Concat(m.Labels[:i], nodeLabels(), m.Labels[i+1:])
			k.Metrics[name] = m
		}
	}
	return k.Metrics
}

// nodeLabels are the well-known labels of nodes, as metrics name them, and what Karpenter adds.
func nodeLabels() []string {
	out := []string{"node_name", "phase", "managed"}
	for key := range awsv1.Vocabulary().WellKnown {
		out = append(out, strings.NewReplacer("-", "_", ".", "_").Replace(key[strings.LastIndexByte(key, '/')+1:]))
	}
	return out
}

func joined(labels []string) string { return strings.Join(slices.Sorted(slices.Values(labels)), ",") }

// scrapedFamily is a metric of recordings.
type scrapedFamily struct {
	kind string
	// labels are the sets of label names that its series have, joined.
	labels map[string]bool
}

var labelName = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*)="(?:[^"\\]|\\.)*"`)

// readRecording adds the families of a recording. In OpenMetrics, the name of a counter's family lacks _total.
func readRecording(t *testing.T, path string, to map[string]*scrapedFamily) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatalf("%v: recorded while TestScenarios runs the scenario, so run all of it", err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	var current *scrapedFamily
	for line := range strings.Lines(string(text)) {
		if declared, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(strings.TrimSpace(declared), " ")
			if kind == "counter" {
				name += "_total"
			}
			if to[name] == nil {
				to[name] = &scrapedFamily{kind: kind, labels: map[string]bool{}}
			}
			current = to[name]
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		var labels []string
		for _, m := range labelName.FindAllStringSubmatch(line, -1) {
			if !slices.Contains([]string{"le", "quantile", "job", "instance"}, m[1]) {
				labels = append(labels, m[1])
			}
		}
		current.labels[joined(labels)] = true
	}
}
