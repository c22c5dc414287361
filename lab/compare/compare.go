// Package compare measures two node autoscalers of Karpenter's API with the same workloads in the lab: each begins every workload in a
// fresh world, one after the other.
//
// Dovetail runs as in every scenario. The other one is any binary that takes the environment of Karpenter's chart, and does all that it
// does by the API server and AWS; nothing of it is in this repository.
package compare

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/process"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Dovetail is the name of the product in results.
const Dovetail = "dovetail"

// Config is what is compared.
type Config struct {
	// Dir is the directory for a subdirectory per run. Dovetail is the product's binary.
	Dir, Dovetail string
	// Other is the other autoscaler, with the name that results give it.
	Other     world.Program
	OtherName string
	Workloads []Workload
	// Timeout is how long a workload may take with one autoscaler, without the boot of its world.
	Timeout time.Duration
	// Progress is called with what begins and what has finished.
	Progress func(text string)
}

// Result is what one autoscaler did with one workload.
type Result struct {
	Workload   string `json:"workload"`
	Controller string `json:"controller"`
	// HourlyCost is that of the instances at the end, in dollars per hour. Nodes is their number.
	HourlyCost float64 `json:"hourlyCost"`
	Nodes      int     `json:"nodes"`
	// Evictions is how many pods were evicted.
	Evictions int `json:"evictions"`
	// PendingP50 and PendingP95 are from when a pod is created until it runs, over all pods of the workload, in seconds.
	PendingP50 float64 `json:"pendingP50Seconds"`
	PendingP95 float64 `json:"pendingP95Seconds"`
	// CPUSeconds and PeakMiB are of the controller's process, from its start to the end.
	CPUSeconds  float64 `json:"cpuSeconds"`
	PeakMiB     float64 `json:"peakMiB"`
	TookSeconds float64 `json:"tookSeconds"`
	// Failed is why the workload has not come to its end; the figures are then those of that moment.
	Failed string `json:"failed,omitempty"`
}

// Report is a comparison.
type Report struct {
	Machine string `json:"machine"`
	// Results have both autoscalers for each workload, in the order of Config.Workloads, Dovetail first.
	Results []Result `json:"results"`
}

// Failures are the runs that have not come to their end.
func (r Report) Failures() (out []string) {
	for _, one := range r.Results {
		if one.Failed != "" {
			out = append(out, one.Workload+" with "+one.Controller+": "+one.Failed)
		}
	}
	return out
}

// Run runs each workload with both autoscalers. An error is of the lab; what an autoscaler fails to do is in its result. With an error,
// the report has the runs before.
func Run(ctx context.Context, cfg Config) (Report, error) {
	out := Report{Machine: fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())}
	for _, w := range cfg.Workloads {
		for _, name := range []string{Dovetail, cfg.OtherName} {
			cfg.Progress(w.Name + " with " + name)
			result, err := cfg.run(ctx, w, name)
			if err != nil {
				return out, fmt.Errorf("workload %s with %s: %w", w.Name, name, err)
			}
			out.Results = append(out.Results, result)
			cfg.Progress(result.line())
		}
	}
	return out, nil
}

// line is a result in short.
func (r Result) line() string {
	text := fmt.Sprintf("%s with %s: $%.3f/h, %d nodes, %d evictions, pending %.1f and %.1f s, CPU %.1f s, %.0f MiB, took %.0f s", r.Workload,
		r.Controller, r.HourlyCost, r.Nodes, r.Evictions, r.PendingP50, r.PendingP95, r.CPUSeconds, r.PeakMiB, r.TookSeconds)
	if r.Failed != "" {
		text += ", failed: " + r.Failed
	}
	return text
}

// run runs a workload in a world of its own.
func (cfg Config) run(ctx context.Context, load Workload, name string) (result Result, err error) {
	w, err := world.Start(ctx, world.Config{
		Dir: filepath.Join(cfg.Dir, load.Name+"-"+name), Dovetail: cfg.Dovetail, Unrestricted: name != Dovetail,
	})
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, w.Close(context.WithoutCancel(ctx))) }()
	for _, c := range w.Clusters {
		// There is one process. A busy computer must not end it, because a renewal took too long.
		c.SetEnv("DISABLE_LEADER_ELECTION", "true")
	}
	r := &run{World: w, Cluster: w.Clusters[0], evicted: map[types.UID]bool{}}
	defer r.History.Watch(r.see)()
	if err := r.prepare(ctx); err != nil {
		return Result{}, err
	}
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	failed := cfg.work(limited, r, load, name)
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	result, err = r.measure(ctx)
	result.Workload, result.Controller, result.TookSeconds = load.Name, name, time.Since(begin).Seconds()
	if failed != nil {
		result.Failed = failed.Error()
		return result, nil // a process that has exited cannot be measured
	}
	return result, err
}

// work starts the autoscaler, and takes the workload to its end. It fails when the process exits before.
func (cfg Config) work(ctx context.Context, r *run, load Workload, name string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := r.StartController
	if name != Dovetail {
		start = func(ctx context.Context) error { return r.StartOther(ctx, cfg.Other) }
	}
	if err := start(ctx); err != nil {
		return err
	}
	go func() {
		if err := r.AwaitFailure(ctx); err != nil {
			cancel(err)
		}
	}()
	return load.Run(ctx, r)
}

// run is a workload with one autoscaler.
type run struct {
	*world.World
	*world.Cluster

	mu      sync.Mutex
	evicted map[types.UID]bool
}

// prepare creates what every workload needs.
func (r *run) prepare(ctx context.Context) error {
	if err := r.EnableInterruptionQueue(); err != nil {
		return err
	}
	text, err := manifests.Render(manifests.Storage, map[string]string{"TOLERATIONS": `[{"operator":"Exists"}]`})
	if err != nil {
		return err
	}
	return r.Apply(ctx, text)
}

// see counts evictions: the API server marks a pod before it deletes it.
func (r *run) see(o client.Object, _ bool) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	if slices.ContainsFunc(pod.Status.Conditions, evictedByAPI) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.evicted[pod.UID] = true
	}
}

func evictedByAPI(c corev1.PodCondition) bool {
	return c.Type == corev1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI"
}

// measure reads what the autoscaler has done and used so far.
func (r *run) measure(ctx context.Context) (out Result, err error) {
	if out.HourlyCost, err = r.Cost(ctx); err != nil {
		return out, err
	}
	r.mu.Lock()
	out.Nodes, out.Evictions = len(r.Running()), len(r.evicted)
	r.mu.Unlock()
	var pending []time.Duration
	for _, p := range r.History.Pods() {
		if p.Namespace == corev1.NamespaceDefault && !p.Running.IsZero() {
			pending = append(pending, p.Running.Sub(p.Seen))
		}
	}
	out.PendingP50, out.PendingP95 = quantile(pending, 0.5).Seconds(), quantile(pending, 0.95).Seconds()
	pid, err := r.ControllerPID()
	if err != nil {
		return out, err
	}
	use, err := process.UsageOf(pid)
	out.CPUSeconds, out.PeakMiB = use.CPU.Seconds(), float64(use.PeakRSS)/(1<<20)
	return out, err
}

// quantile is the smallest value that at least this share of all does not exceed; 0 of none.
func quantile(of []time.Duration, share float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	of = slices.Sorted(slices.Values(of))
	return of[int(math.Ceil(share*float64(len(of))))-1]
}
