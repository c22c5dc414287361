package scenario

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// firstNode is the shortest complete scenario: a pod gets a node, and both are deleted.
func firstNode() Scenario {
	const app = "sample"
	return Scenario{
		Name:    "first-node",
		Summary: "a pending pod gets a node and runs; after it is deleted, no resource is left",
		Steps: []Step{
			startController(),
			installPool(manifests.Default, nil),
			{
				Name: "create a pod: a node is launched for it, and it runs", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.Sample, map[string]string{"REPLICAS": "1"}); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, app, 1); err != nil {
						return err
					}
					pod := w.History.Pods()[0]
					w.Note("from pod created to pod running: %.1f s", pod.Running.Sub(pod.Seen).Seconds())
					return noteCost(ctx, w)
				},
			},
			{
				Name: "there is one NodeClaim, and the only instance is its own", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if claims, instances := len(w.History.Claims()), len(w.Instances()); claims != 1 || instances != 1 {
						return fmt.Errorf("%d NodeClaims were created and %d instances launched, want one of each", claims, instances)
					}
					return awaitPaired(ctx, w)
				},
			},
			{
				Name: "the metric, top and assess have the price of the instance", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error { return onePrice(ctx, w, "default") },
			},
			{
				Name: "delete the workload: the node and the instance terminate", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					text, err := render(w, manifests.Sample, map[string]string{"REPLICAS": "1"})
					if err != nil {
						return err
					}
					if err := w.Delete(ctx, text); err != nil {
						return err
					}
					return awaitEmpty(ctx, w, app)
				},
			},
			removePool(manifests.Default, nil),
			{
				Name: "no gauge of the controller has a series of a deleted object", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					return world.Until(ctx, func() error {
						text, err := w.Metrics(ctx)
						if err != nil {
							return err
						}
						left, err := seriesOfObjects(text)
						if err != nil || len(left) == 0 {
							return err
						}
						return fmt.Errorf("series of deleted objects are left: %s", strings.Join(left, ", "))
					})
				},
			},
		},
	}
}

// objectLabels are the labels of metrics that have the name of a NodePool, NodeClaim, Node or EC2NodeClass.
var objectLabels = []string{
	"name", "node", "node_name", "nodepool", "nodeclass", "karpenter_sh_nodepool", "karpenter_k8s_aws_ec2nodeclass",
}

// ofDovetail are the names of metrics that its libraries do not have.
var ofDovetail = regexp.MustCompile("^(karpenter|operator|dovetail)_")

// seriesOfObjects are the gauges of Dovetail in the text of /metrics with the name of an object, in a cluster in which no pod waits and
// all nodes are Dovetail's. Counters and histograms stay: what they count has happened.
func seriesOfObjects(text string) ([]string, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if families[name].GetType() != dto.MetricType_GAUGE || !ofDovetail.MatchString(name) {
			continue
		}
		for _, m := range families[name].Metric {
			for _, l := range m.Label {
				if slices.Contains(objectLabels, l.GetName()) && l.GetValue() != "" {
					out = append(out, fmt.Sprintf("%s{%s=%q}", name, l.GetName(), l.GetValue()))
				}
			}
		}
	}
	return slices.Compact(out), nil
}

// installPool is the step that creates a NodePool and an EC2NodeClass.
func installPool(manifest string, variables map[string]string) Step {
	return Step{
		Name: "create NodePool and EC2NodeClass: both become Ready", Timeout: 20 * time.Second,
		Run: func(ctx context.Context, w *World) error {
			if err := apply(ctx, w, manifest, variables); err != nil {
				return err
			}
			return awaitPoolReady(ctx, w)
		},
	}
}
