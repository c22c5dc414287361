package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/dovetail-k8s/dovetail/lab/process"
)

// Use is what a cluster has used so far.
type Use struct {
	// CPUSeconds of each process that runs, by name. "lab" is this process: AWS, instances, what else EKS runs, and the checks of all
	// clusters.
	CPUSeconds map[string]float64
	// Requests that the API server has answered, without watches, by verb and resource, as in "PATCH nodes/status".
	Requests map[string]int
}

// Use reads the usage of the cluster's processes, and what the API server has answered.
func (c *Cluster) Use(ctx context.Context) (Use, error) {
	pids := c.controlPlane.PIDs()
	pids["lab"] = os.Getpid()
	switch pid, err := c.ControllerPID(); {
	case err == nil:
		pids["controller"] = pid
	case !errors.Is(err, ErrNoController):
		return Use{}, err
	}
	use := Use{CPUSeconds: map[string]float64{}}
	for name, pid := range pids {
		u, err := process.UsageOf(pid)
		if err != nil {
			return Use{}, fmt.Errorf("usage of %s: %w", name, err)
		}
		use.CPUSeconds[name] = u.CPU.Seconds()
	}
	text, err := c.clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return Use{}, fmt.Errorf("metrics of the API server: %w", err)
	}
	use.Requests, err = requests(string(text))
	return use, err
}

// requests counts the answered requests in the metrics of an API server.
func requests(text string) (map[string]int, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("metrics of the API server: %w", err)
	}
	out := map[string]int{}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		verb, resource := label(m, "verb"), label(m, "resource")
		if resource == "" || verb == "WATCH" {
			continue
		}
		if sub := label(m, "subresource"); sub != "" {
			resource += "/" + sub
		}
		out[verb+" "+resource] += int(m.GetCounter().GetValue())
	}
	return out, nil
}

func label(m *dto.Metric, name string) string {
	i := slices.IndexFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == name })
	if i < 0 {
		return ""
	}
	return m.Label[i].GetValue()
}
