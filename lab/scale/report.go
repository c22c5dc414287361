package scale

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// nextPage marks calls for a further page of a list.
const nextPage = " (next page)"

// Report is what was measured. Memory is the RSS of the controller in MiB.
type Report struct {
	Size    Size   `json:"size"`
	Machine string `json:"machine"`
	// WriteSeconds is how long it took to launch the instances and to write the objects.
	WriteSeconds float64 `json:"writeSeconds"`
	Start        Start   `json:"start"`
	Rest         Load    `json:"rest"`
	Churn        Load    `json:"churn"`
	Scrape       Scrape  `json:"scrape"`
	Burst        Burst   `json:"burst"`
	Restart      Start   `json:"restart"`
	// Lost is how many nodes, claims or instances were gone at the end.
	Lost int     `json:"lost"`
	Took float64 `json:"tookSeconds"`
}

// Start is a start of the controller with cold caches.
type Start struct {
	ReadySeconds float64 `json:"readySeconds"`
	PeakMiB      float64 `json:"peakMiB"`
	// SettleSeconds and SettleMiB are from ready until the controller is at rest.
	SettleSeconds float64 `json:"settleSeconds"`
	SettleMiB     float64 `json:"settleMiB"`
}

// Load is what the controller takes for a window.
type Load struct {
	CorePercent       float64            `json:"corePercent"`
	PeakMiB           float64            `json:"peakMiB"`
	EndMiB            float64            `json:"endMiB,omitempty"`
	AllocMiBPerSecond float64            `json:"allocMiBPerSecond"`
	EC2CallsPerMinute map[string]float64 `json:"ec2CallsPerMinute"`
}

// Scrape is one scrape of /metrics.
type Scrape struct {
	CPUSeconds float64 `json:"cpuSeconds"`
	PeakMiB    float64 `json:"peakMiB"`
	MiB        float64 `json:"mib"` // of text
}

// Burst is how pods get nodes that become pending at once. Times are since the last pod was written, which took WriteSeconds.
type Burst struct {
	WriteSeconds                   float64 `json:"writeSeconds"`
	Claims                         int     `json:"claims"`
	CreateFleets                   int     `json:"createFleets"`
	FirstFleetSeconds              float64 `json:"firstFleetSeconds"`
	FirstFleetAfterFirstPodSeconds float64 `json:"firstFleetAfterFirstPodSeconds"`
	LastFleetSeconds               float64 `json:"lastFleetSeconds"`
	PeakMiB                        float64 `json:"peakMiB"`
}

// The bars, for DefaultSize.
const (
	readyBar     = 30.0 // seconds
	memoryBar    = 700  // MiB
	restBar      = 5.0  // percent of a core
	firstBar     = 2.0  // seconds
	callsBar     = 60.0 // EC2 calls a minute, without further pages: none of them is for a single node
	durationsBar = 15 * 60
)

// Row is a line of the table. A row without a bar only informs.
type Row struct {
	Measure string  `json:"measure"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	// Bar is what Value must stay below; zero if there is none.
	Bar float64 `json:"bar,omitempty"`
}

// Met reports whether the value meets its bar.
func (r Row) Met() bool { return r.Bar == 0 || r.Value < r.Bar }

// Rows is the table of a report.
func (r Report) Rows() []Row {
	rows := []Row{
		{"write nodes and pods", r.WriteSeconds, "s", 0},
		{"start: ready", r.Start.ReadySeconds, "s", readyBar},
		{"start: peak memory until ready", r.Start.PeakMiB, "MiB", memoryBar},
		{"start: from ready to rest", r.Start.SettleSeconds, "s", 0},
		{"start: peak memory until rest", r.Start.SettleMiB, "MiB", memoryBar},
		{"rest: CPU", r.Rest.CorePercent, "% of a core", restBar},
		{"rest: memory", r.Rest.EndMiB, "MiB", memoryBar},
		{"rest: peak memory", r.Rest.PeakMiB, "MiB", memoryBar},
		{"rest: allocations", r.Rest.AllocMiBPerSecond, "MiB/s", 0},
		{"rest: EC2 calls", r.Rest.firstPages(), "/min", callsBar},
		{"rest: further pages of lists", r.Rest.calls() - r.Rest.firstPages(), "/min", 0},
		{fmt.Sprintf("%d pods/s replaced: CPU", r.Size.Churn), r.Churn.CorePercent, "% of a core", 0},
		{fmt.Sprintf("%d pods/s replaced: peak memory", r.Size.Churn), r.Churn.PeakMiB, "MiB", memoryBar},
		{fmt.Sprintf("%d pods/s replaced: allocations", r.Size.Churn), r.Churn.AllocMiBPerSecond, "MiB/s", 0},
		{"scrape of /metrics: CPU", r.Scrape.CPUSeconds, "s", 0},
		{"scrape of /metrics: peak memory", r.Scrape.PeakMiB, "MiB", memoryBar},
		{fmt.Sprintf("%d pods pending: written in", r.Size.Pending), r.Burst.WriteSeconds, "s", 0},
		{fmt.Sprintf("%d pods pending: first CreateFleet after the last pod", r.Size.Pending), r.Burst.FirstFleetSeconds, "s", firstBar},
		{fmt.Sprintf("%d pods pending: first CreateFleet after the first pod", r.Size.Pending), r.Burst.FirstFleetAfterFirstPodSeconds, "s", 0},
		{fmt.Sprintf("%d pods pending: last CreateFleet", r.Size.Pending), r.Burst.LastFleetSeconds, "s", 0},
		{fmt.Sprintf("%d pods pending: nodes", r.Size.Pending), float64(r.Burst.Claims), "", 0},
		{fmt.Sprintf("%d pods pending: peak memory", r.Size.Pending), r.Burst.PeakMiB, "MiB", memoryBar},
		{"after kill -9: ready", r.Restart.ReadySeconds, "s", readyBar},
		{"after kill -9: peak memory until rest", max(r.Restart.PeakMiB, r.Restart.SettleMiB), "MiB", memoryBar},
		{"all of it", r.Took, "s", durationsBar},
	}
	return rows
}

func (l Load) calls() (sum float64) {
	for _, n := range l.EC2CallsPerMinute {
		sum += n
	}
	return sum
}

// firstPages counts each list once.
func (l Load) firstPages() (sum float64) {
	for action, n := range l.EC2CallsPerMinute {
		if !strings.HasSuffix(action, nextPage) {
			sum += n
		}
	}
	return sum
}

// Missed are the measures that do not meet their bar.
func (r Report) Missed() []string {
	var out []string
	for _, row := range r.Rows() {
		if !row.Met() {
			out = append(out, row.Measure)
		}
	}
	return out
}

// Print prints the table.
func (r Report) Print(out io.Writer) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%d nodes, %d pods; %s\n\n", r.Size.Nodes, r.Size.Pods, r.Machine)
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range r.Rows() {
		bar, verdict := "", ""
		if row.Bar != 0 {
			bar, verdict = fmt.Sprintf("< %g", row.Bar), "met"
			if !row.Met() {
				verdict = "MISSED"
			}
		}
		fmt.Fprintf(table, "%s\t%.1f %s\t%s\t%s\n", row.Measure, row.Value, row.Unit, bar, verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&text, "\nEC2 calls per minute at rest:")
	for _, action := range slices.Sorted(maps.Keys(r.Rest.EC2CallsPerMinute)) {
		fmt.Fprintf(&text, " %s %.1f", action, r.Rest.EC2CallsPerMinute[action])
	}
	fmt.Fprintln(&text)
	_, err := out.Write(text.Bytes())
	return err
}

// machine is the processors of this host.
func machine() string {
	model := "unknown"
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d × %s, %s", runtime.NumCPU(), model, runtime.Version())
}
