//go:build unix

package recorder

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// reportCPU reports the CPU time of an iteration, all threads and the garbage collection included. It does not depend on what else
// the computer does.
func reportCPU(b *testing.B) (report func()) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	began := used()
	return func() { b.ReportMetric(float64((used()-began).Milliseconds())/float64(b.N), "CPU-ms/op") }
}

// BenchmarkKeyframe records a pass of 2,000 nodes with 20,000 pods completely, as the first one of a process, and waits for it.
func BenchmarkKeyframe(b *testing.B) {
	w, r := newTestWorld(1, 20_000, 2_000), newTestRecorder(b, testConfig(b, 256<<20))
	report := reportCPU(b)
	for b.Loop() {
		r.mu.Lock()
		r.restart = true
		r.mu.Unlock()
		s := &snapshot.Snapshot{Now: w.facts.Now}
		r.Saw(s, &w.objects, &w.facts)
		p := r.Begin(Provisioning, s, s)
		p.Call(CallSolve, SolveInput{}, PlanRecord{})
		p.Commit()
		r.settle()
	}
	report()
	r.Close()
}

// BenchmarkPass records a pass of 2,000 nodes with 20,000 pods, of which 100 pods have changed, all work in the background
// included. A pass comes every 10 s. It reports how much memory the recorder keeps.
func BenchmarkPass(b *testing.B) {
	w := newTestWorld(1, 20_000, 2_000)
	heap := func() float64 {
		runtime.GC()
		runtime.GC() // what the first one has found unused
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	before := heap()
	r := newTestRecorder(b, testConfig(b, 256<<20))
	pass := func() {
		objects, facts := w.objects, w.facts
		s := &snapshot.Snapshot{Now: facts.Now}
		r.Saw(s, &objects, &facts)
		p := r.Begin(Provisioning, s, s)
		p.Call(CallSolve, SolveInput{}, PlanRecord{})
		p.Flush()
		r.settle()
	}
	pass()
	report := reportCPU(b)
	b.ResetTimer()
	for range b.N {
		pods := append([]*corev1.Pod{}, w.objects.Pods...)
		for range 100 {
			at := w.IntN(len(pods))
			p := *pods[at]
			p.ResourceVersion = w.version()
			pods[at] = &p
		}
		w.objects.Pods = pods
		pass()
	}
	b.StopTimer()
	report()
	b.ReportMetric(heap()-before, "MiB")
	runtime.KeepAlive(w)
	r.Close()
}

// BenchmarkTypes records lists of 1,000 instance types of which one is new, or all have been made anew.
func BenchmarkTypes(b *testing.B) {
	const types = 1000
	list := func(price float64) []*catalog.InstanceType {
		out := make([]*catalog.InstanceType, types)
		for i := range out {
			out[i] = enginetest.Type(fmt.Sprintf("m%d.large", i), price, "cpu", "2", "memory", "4Gi")
		}
		return out
	}
	for name, next := range map[string]func(n int, last []*catalog.InstanceType) []*catalog.InstanceType{
		"made-anew": func(int, []*catalog.InstanceType) []*catalog.InstanceType { return list(1) },
		"one-new": func(n int, last []*catalog.InstanceType) []*catalog.InstanceType {
			out := slices.Clone(last)
			out[n%types] = enginetest.Type(out[n%types].Name, float64(2+n), "cpu", "2", "memory", "4Gi")
			return out
		},
		"all-new": func(n int, _ []*catalog.InstanceType) []*catalog.InstanceType { return list(float64(2 + n)) },
	} {
		b.Run(name, func(b *testing.B) {
			e, err := newEncoder()
			if err != nil {
				b.Fatal(err)
			}
			pool := &cluster.Pool{NodePool: enginetest.Pool("p", nil).NodePool, InstanceTypes: list(1)}
			w := &lineWriter{lines: json.NewEncoder(io.Discard)}
			e.writeTypes(w, pool)
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				pool.InstanceTypes = next(n, pool.InstanceTypes)
				b.StartTimer()
				e.writeTypes(w, pool)
			}
			if w.err != nil {
				b.Fatal(w.err)
			}
		})
	}
}
