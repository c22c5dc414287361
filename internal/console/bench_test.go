package console

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/top"
)

// fleetConsole is the console of a generated fleet.
func fleetConsole(tb testing.TB, nodes int) *Console {
	view := fleetView(tb, nodes)
	w := newWorld(tb)
	w.Sources.View = func(context.Context) (*inspect.View, error) { return view, nil }
	return New(w.Sources)
}

// BenchmarkWhatIf is an edit that drifts all nodes of the largest pool, compared with a cluster that is known: 20 pods run on each node.
func BenchmarkWhatIf(b *testing.B) {
	for _, nodes := range []int{100, 300, 1000, 3000} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			c := fleetConsole(b, nodes)
			text := manifestOf(b, c, "general")
			for name, edit := range map[string]string{
				"drift": strings.Replace(text, "arm64", "amd64", 1), "budgets": strings.Replace(text, "nodes: 10%", "nodes: 5%", 1),
				"limits": strings.Replace(text, "spec:", "spec:\n  limits: {cpu: 100000}", 1),
			} {
				b.Run(name, func(b *testing.B) {
					ask := func() {
						answer := post(c, whatIfPath, edited("general", edit))
						if answer.Code != 200 || !strings.Contains(answer.Body.String(), `"faults":[]`) {
							b.Fatal(answer.Code, answer.Body)
						}
					}
					ask()
					b.ReportAllocs()
					before := cpuTime(b)
					for b.Loop() {
						ask()
					}
					b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
				})
			}
		})
	}
}

// cpuTime returns what this process has used, over all cores.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkWhatIfFirst is the first edit after a minute: where the cluster goes by itself is computed, too.
func BenchmarkWhatIfFirst(b *testing.B) {
	c := fleetConsole(b, 1000)
	text := manifestOf(b, c, "general")
	for name, edit := range map[string]string{"none": text, "drift": strings.Replace(text, "arm64", "amd64", 1)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				c.whatIfs.forget()
				if answer := post(c, whatIfPath, edited("general", edit)); answer.Code != 200 {
					b.Fatal(answer.Code, answer.Body)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

// BenchmarkNodePage is the explanation of a node after a first one, and BenchmarkFirstNodePage that first one.
func BenchmarkNodePage(b *testing.B) {
	for _, nodes := range []int{1000, 5000} {
		c := fleetConsole(b, nodes)
		view, err := c.views.current(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		next := 0
		ask := func(b *testing.B) {
			next++
			name := view.Nodes[next%len(view.Nodes)].Name
			if answer := get(c, apiRoot+"/nodes/"+name+"/explain"); answer.Code != 200 {
				b.Fatal(answer.Code, answer.Body)
			}
		}
		b.Run(fmt.Sprint("first/nodes=", nodes), func(b *testing.B) {
			for b.Loop() {
				c.views.forget()
				ask(b)
			}
		})
		b.Run(fmt.Sprint("next/nodes=", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask(b)
			}
		})
	}
}

// BenchmarkFirstNodePoolPage is the explanation of a NodePool of a cluster that nothing has been explained of.
func BenchmarkFirstNodePoolPage(b *testing.B) {
	for _, own := range []bool{false, true} {
		for _, pools := range []int{3, 25, 100, 200} {
			view := fleetOf(b, 1000, teamPools(pools, own))
			b.Run(fmt.Sprintf("own=%t/pools=%d", own, pools), func(b *testing.B) {
				c := newWorld(b)
				c.Sources.View = func(context.Context) (*inspect.View, error) { return view, nil }
				console := New(c.Sources)
				b.ReportAllocs()
				before := cpuTime(b)
				for b.Loop() {
					console.views.forget()
					if answer := get(console, apiRoot+"/nodepools/team-1/explain"); answer.Code != 200 {
						b.Fatal(answer.Code, answer.Body)
					}
				}
				b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// BenchmarkCosts adds up what the pods of a fleet cost, by namespace and by a label: what an open page takes each ten seconds.
func BenchmarkCosts(b *testing.B) {
	for _, nodes := range []int{300, 5000} {
		view := fleetView(b, nodes)
		s := newState(1, top.Observed{Fleet: top.Observe(top.Objects{
			Now: view.Now, Nodes: view.Nodes, Claims: view.NodeClaims, Pods: top.PodsOf(view.Pods), Prices: view.PriceList(),
		}), Prices: "a test"}, nil)
		for _, label := range []string{"", "app"} {
			b.Run(fmt.Sprintf("nodes=%d/label=%s", nodes, label), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if got := s.costs(label); len(got.Rows) == 0 {
						b.Fatal("no rows")
					}
				}
			})
		}
	}
}
