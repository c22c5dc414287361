package world

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/process"
)

// Program is another node autoscaler that runs as the cluster's.
type Program struct {
	// Path of the binary, and its arguments.
	Path string
	Args []string
}

// StartOther starts another node autoscaler with the environment that Karpenter's chart gives its Deployment, and returns when it is ready.
// It is the administrator of the cluster. Its role may do everything only in an unrestricted world.
func (c *Cluster) StartOther(ctx context.Context, other Program) error {
	metrics, health, err := freePorts()
	if err != nil {
		return err
	}
	own, err := c.Environment()
	if err != nil {
		return err
	}
	own = append(own, c.controllerVariables(c.Kubeconfig(), metrics, health)...)
	own = append(own, chartVariables()...)
	c.mu.Lock()
	own = append(own, c.environment...)
	c.mu.Unlock()
	p, err := process.Start(process.Command{
		Name: filepath.Base(other.Path), Path: other.Path, Args: other.Args, Env: withHostEnvironment(own), Log: c.ControllerLog(),
	})
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/readyz", health)
	c.mu.Lock()
	c.controller, c.health, c.metrics = p, url, "http://127.0.0.1:"+strconv.Itoa(metrics)+"/metrics"
	c.started++
	c.startedAt = time.Now()
	c.mu.Unlock()
	return c.controllerReady(ctx, p, url)
}

// chartVariables is what Karpenter's chart gives its Deployment beside the settings of the cluster, with the chart's defaults.
func chartVariables() []Variable {
	return []Variable{
		{"KUBERNETES_MIN_VERSION", "1.19.0-0"},
		{"KARPENTER_SERVICE", "karpenter"},
		{"SYSTEM_NAMESPACE", metav1.NamespaceSystem},
		{"LOG_LEVEL", "info"},
		{"LOG_OUTPUT_PATHS", "stdout"},
		{"LOG_ERROR_OUTPUT_PATHS", "stderr"},
		{"FEATURE_GATES", "ReservedCapacity=true,SpotToSpotConsolidation=false,NodeRepair=false,NodeOverlay=false,StaticCapacity=false"},
		{"BATCH_MAX_DURATION", "10s"},
		{"BATCH_IDLE_DURATION", "1s"},
		{"PREFERENCE_POLICY", "Respect"},
		{"MIN_VALUES_POLICY", "Strict"},
		{"VM_MEMORY_OVERHEAD_PERCENT", "0.075"},
		{"RESERVED_ENIS", "0"},
	}
}
