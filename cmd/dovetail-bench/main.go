// Command dovetail-bench measures dovetail plan with the workloads of docs/performance.md, and prints the table of that
// page.
//
// Each figure is the lowest of several runs of the whole process. Seconds are CPU time, user and system: unlike wall
// time it hardly depends on what else runs on the host.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

func main() {
	b := bench{}
	page := flag.String("page", "", "page to replace the table of")
	flag.StringVar(&b.commit, "commit", "unknown", "commit of the binary, for the text above the table")
	flag.StringVar(&b.binary, "binary", "bin/dovetail", "the dovetail to measure")
	flag.IntVar(&b.runs, "runs", 5, "runs of each workload; the lowest counts")
	flag.StringVar(&b.pool, "pool", "general", "pool of the workloads: open, general or ondemand")
	flag.Uint64Var(&b.seed, "seed", 7, "seed of the workloads")
	flag.StringVar(&b.write, "write", "", "directory to write the workloads and the catalog to, instead of measuring")
	only := flag.String("only", "", "workloads to measure, such as diverse-1000,batch-5000 (default: all of the page)")
	flag.Parse()
	if *only != "" {
		b.workloads = strings.Split(*only, ",")
	} else {
		b.workloads = published()
	}
	var text strings.Builder
	err := b.run(io.MultiWriter(&text, os.Stdout))
	if err == nil && *page != "" {
		err = replaceTable(*page, text.String())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// published are the workloads of docs/performance.md.
func published() []string {
	return []string{
		"diverse-1000", "diverse-5000", "diverse-20000", "diverse-50000", "diverse-100000", "diverse-200000", "replicas-5000",
		"batch-5000", "prefs-4000", "volumes-5000",
	}
}

// instanceTypes is the size of the catalog: as many as planners of this field are measured with.
const instanceTypes = 400

// bench is what is measured.
type bench struct {
	binary, pool, write, commit string
	workloads                   []string
	seed                        uint64
	runs                        int
}

// run writes the inputs and measures each workload.
func (b bench) run(out io.Writer) error {
	dir := b.write
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "dovetail-bench-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	catalog := filepath.Join(dir, "catalog.json")
	if err := writeJSON(catalog, workload.LinearCatalog(instanceTypes)); err != nil {
		return err
	}
	t := table{out: out}
	if b.write == "" {
		t.printf("Commit %s on %s. The lowest of %d runs.\n\n", b.commit, host(), b.runs)
	}
	for _, name := range b.workloads {
		benchmark, err := b.benchmark(name)
		if err != nil {
			return err
		}
		list, err := benchmark.Manifests()
		if err != nil {
			return err
		}
		file := filepath.Join(dir, name+".json")
		if err := writeJSON(file, list); err != nil {
			return err
		}
		if b.write != "" {
			continue
		}
		best, err := b.measure(file, catalog)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		t.row(benchmark, best)
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return t.err
}

// benchmark reads the name of a workload: KIND-PODS.
func (b bench) benchmark(name string) (workload.Benchmark, error) {
	kind, count, _ := strings.Cut(name, "-")
	pods, err := strconv.Atoi(count)
	if err != nil || pods <= 0 {
		return workload.Benchmark{}, fmt.Errorf("workload %q: want KIND-PODS, such as diverse-1000", name)
	}
	r := workload.Benchmark{Kind: kind, Pods: pods, Pool: b.pool, Seed: b.seed}
	if kind == "multipool" {
		r.Pool = ""
	}
	return r, nil
}

func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", " ") // as kubectl, which indents more
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// figures are the results of one workload.
type figures struct {
	// Read, Compile, Solve and Print are wall seconds that the plan reports, process its CPU seconds.
	Read    float64 `json:"readSeconds"`
	Compile float64 `json:"compileSeconds"`
	Solve   float64 `json:"solveSeconds"`
	Print   float64 `json:"printSeconds"`
	process float64
	Memory  int64   `json:"peakRSSBytes"`
	Cost    float64 `json:"hourlyCost"`
	Bound   float64 `json:"lowerBound"`
	// rejected counts the pods without a node.
	rejected int
}

// exitIncomplete is the exit code of a plan that leaves pods without a node.
const exitIncomplete = 3

// measure runs a plan several times.
func (b bench) measure(file, catalog string) (best figures, _ error) {
	for i := range b.runs {
		cmd := exec.Command(b.binary, "plan", "-f", file, "--catalog", catalog, "-o", "json")
		out, err := cmd.Output()
		exit := (*exec.ExitError)(nil)
		if errors.As(err, &exit) && exit.ExitCode() != exitIncomplete {
			return figures{}, fmt.Errorf("%w: %s", err, exit.Stderr)
		} else if err != nil && exit == nil {
			return figures{}, err
		}
		var plan struct {
			Unschedulable []json.RawMessage `json:"unschedulable"`
			Stats         figures           `json:"stats"`
		}
		if err := json.Unmarshal(out, &plan); err != nil {
			return figures{}, fmt.Errorf("read the plan: %w", err)
		}
		now := plan.Stats
		now.rejected = len(plan.Unschedulable)
		now.process = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
		if i == 0 {
			best = now
			continue
		}
		best.Read, best.Compile = min(best.Read, now.Read), min(best.Compile, now.Compile)
		best.Solve, best.Print = min(best.Solve, now.Solve), min(best.Print, now.Print)
		best.process, best.Memory = min(best.process, now.process), min(best.Memory, now.Memory)
	}
	return best, nil
}
