package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/dovetail-k8s/dovetail/internal/assess"
)

// podMetricsTimeout bounds what is optional: metrics-server answers within a second, also with 30,000 pods.
const podMetricsTimeout = 10 * time.Second

// podMetrics is the part of a PodMetricsList that is read.
type podMetrics struct {
	Items []struct {
		Metadata   struct{ Namespace, Name string }
		Containers []struct {
			Usage struct{ CPU, Memory string }
		}
	}
}

// readPodMetrics reads what pods use from metrics-server, with one list. A cluster without one answers with an error.
func readPodMetrics(ctx context.Context, config *rest.Config) (map[types.NamespacedName]assess.PodUse, error) {
	ctx, cancel := context.WithTimeout(ctx, podMetricsTimeout)
	defer cancel()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	at := strings.TrimSuffix(base.String(), "/") + "/apis/metrics.k8s.io/v1beta1/pods"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() // it was only read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read what pods use: %s", response.Status)
	}
	var list podMetrics
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("read what pods use: %w", err)
	}
	return podUses(list), nil
}

// podUses adds up the containers of pods. An amount that is no quantity counts as nothing.
func podUses(list podMetrics) map[types.NamespacedName]assess.PodUse {
	out := make(map[types.NamespacedName]assess.PodUse, len(list.Items))
	amount := func(text string) float64 {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return 0
		}
		return q.AsApproximateFloat64()
	}
	for _, pod := range list.Items {
		var use assess.PodUse
		for _, c := range pod.Containers {
			use.CPU, use.Memory = use.CPU+amount(c.Usage.CPU), use.Memory+amount(c.Usage.Memory)
		}
		out[types.NamespacedName{Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name}] = use
	}
	return out
}
