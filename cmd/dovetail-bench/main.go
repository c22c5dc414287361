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

// bench describes what is measured.
type bench struct {
	binary, pool, write, commit string
	workloads                   []string
	seed                        uint64
	runs                        int
}

// run measures each workload, or writes them all.
//
// Another process makes the inputs: the peak memory that the kernel reports of a process is at least that of the
// process that started it.
func (b bench) run(out io.Writer) error {
	if b.write != "" {
		return b.writeInputs()
	}
	dir, err := os.MkdirTemp("", "dovetail-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t := table{out: out}
	t.printf("Commit %s on %s. The lowest of %d runs.\n\n", b.commit, host(), b.runs)
	for _, name := range b.workloads {
		benchmark, err := b.benchmark(name)
		if err != nil {
			return err
		}
		writer := exec.Command(os.Args[0], "-write", dir, "-only", name, "-pool", b.pool, "-seed", strconv.FormatUint(b.seed, 10))
		writer.Stderr = os.Stderr
		if err := writer.Run(); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		file := filepath.Join(dir, name+".json")
		best, err := b.measure(file, filepath.Join(dir, catalogFile))
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

const catalogFile = "catalog.json"

// writeInputs writes the catalog and the workloads.
func (b bench) writeInputs() error {
	if err := writeJSON(filepath.Join(b.write, catalogFile), workload.LinearCatalog(instanceTypes)); err != nil {
		return err
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
		if err := writeJSON(filepath.Join(b.write, name+".json"), list); err != nil {
			return err
		}
	}
	return nil
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
		now, err := b.plan(file, catalog)
		if err != nil {
			return figures{}, err
		}
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

// plan runs a plan once.
func (b bench) plan(file, catalog string) (figures, error) {
	output, err := os.Create(file + ".plan")
	if err != nil {
		return figures{}, err
	}
	defer func() { _ = errors.Join(output.Close(), os.Remove(output.Name())) }()
	var notes strings.Builder
	cmd := exec.Command(b.binary, "plan", "-f", file, "--catalog", catalog, "-o", "json")
	cmd.Stdout, cmd.Stderr = output, &notes
	exit := (*exec.ExitError)(nil)
	if err := cmd.Run(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitIncomplete) {
		return figures{}, fmt.Errorf("%w: %s", err, notes.String())
	}
	if _, err := output.Seek(0, io.SeekStart); err != nil {
		return figures{}, err
	}
	out, err := readPlan(json.NewDecoder(output))
	if err != nil {
		return figures{}, fmt.Errorf("read the plan: %w", err)
	}
	out.process = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return out, nil
}

// readPlan reads the figures of a plan, one claim at a time: the text of a large plan has some hundred megabytes.
func readPlan(d *json.Decoder) (out figures, err error) {
	if _, err := d.Token(); err != nil { // the brace
		return out, err
	}
	for d.More() {
		member, err := d.Token()
		if err != nil {
			return out, err
		}
		if member == "stats" {
			return out, d.Decode(&out)
		}
		items, err := skip(d)
		if err != nil {
			return out, err
		}
		if member == "unschedulable" {
			out.rejected = items
		}
	}
	return out, errors.New("it has no stats")
}

// skip skips a value, and returns how many items it has if it is a list.
func skip(d *json.Decoder) (items int, err error) {
	begin, err := d.Token()
	if err != nil || begin != json.Delim('[') && begin != json.Delim('{') {
		return 0, err
	}
	for ; d.More(); items++ {
		if begin == json.Delim('{') {
			if _, err := d.Token(); err != nil { // the name
				return 0, err
			}
		}
		if err := d.Decode(new(json.RawMessage)); err != nil {
			return 0, err
		}
	}
	_, err = d.Token() // the end
	return items, err
}
