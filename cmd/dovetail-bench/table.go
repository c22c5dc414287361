package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/engine/workload"
)

// earlier are figures of an earlier commit: seconds to solve, with compiling, and wall seconds of the whole process.
type earlier struct{ solve, process float64 }

// at ac0b20c, with pool general, on 2 cores.
func earlierFigures() map[string]earlier {
	return map[string]earlier{
		"diverse-1000": {0.152, 0.33}, "diverse-5000": {0.250, 0.55}, "diverse-20000": {0.69, 1.9}, "diverse-100000": {11.9, 22},
		"diverse-200000": {27, 45}, "replicas-5000": {0.065, 0.34}, "batch-5000": {0.19, 0.45}, "prefs-4000": {0.50, 0.88},
		"volumes-5000": {0.36, 0.64},
	}
}

// table prints the results as they come, in Markdown.
type table struct {
	out io.Writer
	err error
	// first is the time per pod of the smallest workload of each kind, which growth is measured against.
	first map[string]float64
}

func (t *table) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(t.out, format, args...); t.err == nil {
		t.err = err
	}
}

// row prints a workload.
func (t *table) row(r workload.Benchmark, f figures) {
	if t.first == nil {
		t.first = map[string]float64{}
		t.printf("| Workload | solve at ac0b20c | compile | solve | process at ac0b20c | process | read | print | MiB | $/h | over the bound | "+
			"without a node | µs/pod | growth |\n|---%s|\n", strings.Repeat("|--:", 13))
	}
	name := fmt.Sprintf("%s-%d", r.Kind, r.Pods)
	solve, process, over := "–", "–", "–"
	if before, known := earlierFigures()[name]; known {
		solve, process = fmt.Sprint(before.solve), fmt.Sprint(before.process)
	}
	if f.Bound > 0 {
		over = fmt.Sprintf("%.1f %%", 100*(f.Cost/f.Bound-1))
	}
	perPod := (f.Compile + f.Solve) / float64(r.Pods) * 1e6
	t.first[r.Kind] = cmp.Or(t.first[r.Kind], perPod)
	t.printf("| %s | %s | %.3f | %.3f | %s | %.2f | %.3f | %.3f | %d | %.2f | %s | %d | %.1f | %.2f × |\n", name, solve, f.Compile, f.Solve,
		process, f.process, f.Read, f.Print, f.Memory>>20, f.Cost, over, f.rejected, perPod, perPod/t.first[r.Kind])
}

// host describes the host that measures.
func host() string {
	processor := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
				processor = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d × %s, %s", runtime.NumCPU(), processor, runtime.Version())
}

// The table of a page is between these lines.
const tableBegins, tableEnds = "<!-- make bench-page writes from here -->\n", "<!-- to here -->\n"

// replaceTable replaces the table of a page.
func replaceTable(page, text string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, begins := bytes.Cut(old, []byte(tableBegins))
	_, tail, ends := bytes.Cut(rest, []byte(tableEnds))
	if !begins || !ends {
		return fmt.Errorf("%s has no table between %q and %q", page, tableBegins, tableEnds)
	}
	out := string(head) + tableBegins + "\n" + text + "\n" + tableEnds + string(tail)
	return os.WriteFile(page, []byte(out), 0o600)
}
