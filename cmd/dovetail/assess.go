package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/dovetail-k8s/dovetail/internal/gctuning"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/assess"
	"github.com/dovetail-k8s/dovetail/internal/clusters"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// assessFlags are the flags of the assess command.
type assessFlags struct {
	viewFlags
	clusterName string
	html        string
	output      choice
	spotToSpot  bool
	nodeGroups  bool
}

func assessCommand() *cobra.Command {
	var f assessFlags
	cmd := &cobra.Command{
		Use:   "assess",
		Short: "Show what a cluster costs, what the same pods would cost, and what keeps them from it",
		Long: `Computes what the nodes of a cluster cost now, what the same pods cost after consolidation, the moves that lead there in
order, and what budgets, constraints and limits cost. It changes nothing, and needs only the verbs get, list and watch.
It works on a cluster that Karpenter or Dovetail runs; nodes of node groups are counted, and stay as they are.

Consolidation is computed as the controller does it, pass after pass, until a pass saves next to nothing. Nodes are launched as
their cheapest type, and the workload does not change meanwhile.

The cluster is that of KUBECONFIG, or of --kubeconfig and --context, or one of files (-f). With several --context or
--all-contexts, it prints one table over these clusters; exit code 3 means that some could not be read.`,
		Example: `  dovetail assess
  dovetail assess --html report.html
  dovetail assess --context production -o json
  dovetail assess --all-contexts
  dovetail snapshot > now.yaml && dovetail assess -f now.yaml
  dovetail snapshot | dovetail assess -f - -f nodepool.yaml --node-groups`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return misused(cmd, err)
			}
			return f.run(cmd)
		},
	}
	f.bindSeveral(cmd)
	fs := cmd.Flags()
	bindClusterName(cmd, &f.clusterName, "name of the EKS cluster; without it, checks of the doctor that need AWS are skipped")
	fs.StringVar(&f.html, "html", "", "also write a report for a browser to this `file`: one page, without external requests")
	fs.BoolVar(&f.spotToSpot, "spot-to-spot", false,
		"spot nodes may replace spot nodes, as with the feature gate "+settings.GateSpotToSpot)
	fs.BoolVar(&f.nodeGroups, "node-groups", false,
		"also plan new nodes for the pods of node groups, as if NodePools had to run them; other outcomes stay the same")
	bindOutput(cmd, &f.output, "table", "wide", "json", "yaml")
	withOutputFile(cmd)
	return cmd
}

func (f *assessFlags) run(cmd *cobra.Command) error {
	several, err := f.kube.choose()
	if err == nil && several != nil {
		err = namesOneCluster(cmd, "cluster-name", "html")
	}
	if err != nil {
		return misused(cmd, err)
	}
	if several != nil {
		return f.runSeveral(cmd, several)
	}
	if len(f.files) > 0 && !cmd.Flags().Changed("cluster-name") {
		f.clusterName = "" // CLUSTER_NAME names a live cluster, not that of the files
	}
	defer gctuning.Tune(gctuning.SearchGrowth)()
	view, err := f.read(cmd)
	if err != nil {
		return err
	}
	report, err := f.assess(cmd.Context(), view)
	if err != nil {
		return err
	}
	if f.html != "" {
		if err := toFile(f.html, report.HTML); err != nil {
			return err
		}
	}
	printed := map[string]func(io.Writer) error{
		"table": forTerminal(report.Text), "wide": forTerminal(report.WideText), "json": report.JSON, "yaml": asYAML(report.JSON),
	}[f.output.value]
	return printed(cmd.OutOrStdout())
}

// runSeveral assesses clusters one after the other: a search uses the processor and the memory of all.
func (f *assessFlags) runSeveral(cmd *cobra.Command, contexts []string) error {
	defer gctuning.Tune(gctuning.SearchGrowth)()
	f.source.warnings = cmd.ErrOrStderr()
	done := 0
	results := clusters.Each(cmd.Context(), contexts, 1, func(ctx context.Context, name string) (*assess.Report, error) {
		done++
		fmt.Fprintf(cmd.ErrOrStderr(), "reading %s, %d of %d\n", visibleLine(name), done, len(contexts))
		one := *f
		one.kube = f.kube.of(name)
		one.clusterName, _ = f.kube.eksCluster(name)
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		view, err := one.readWithin(reading, nil)
		if err != nil {
			return nil, err
		}
		return one.assess(ctx, view)
	})
	for i := range results {
		results[i].Server = f.kube.server(results[i].Context)
	}
	list := clusters.List[assess.Report]{Kind: "Assessment", Clusters: results}
	if err := printClusters(cmd.OutOrStdout(), f.output.value, list, clusters.Assess); err != nil {
		return err
	}
	return incomplete(results)
}

// assess computes the report of a view.
func (f *assessFlags) assess(ctx context.Context, view *inspect.View) (*assess.Report, error) {
	how := assess.DefaultSettings()
	how.Consolidation.SpotToSpot, how.NodeGroups = f.spotToSpot, f.nodeGroups
	var report *assess.Report
	if err := solved(func() { report = assess.Assess(view, how) }); err != nil {
		return nil, fmt.Errorf("assess: %w", err)
	}
	report.Cluster = f.clusterName
	report.Usage = f.usage(ctx, view)
	report.Doctor = f.findings(ctx)
	return report, nil
}

// usage compares requests with use; nil for files, and where no metrics-server answers.
func (f *assessFlags) usage(ctx context.Context, view *inspect.View) *assess.Usage {
	if len(f.files) > 0 {
		return nil
	}
	config, err := f.kube.config()
	if err != nil {
		return nil
	}
	used, err := readPodMetrics(ctx, config)
	if err != nil || len(used) == 0 {
		return nil
	}
	return assess.UsageOf(view, used)
}

// findings makes the checks of the doctor that can be made.
func (f *assessFlags) findings(ctx context.Context) *assess.Doctor {
	if len(f.files) > 0 {
		return &assess.Doctor{Report: emptyFindings(), NotRun: "it checks live clusters only"}
	}
	found, err := f.diagnose(ctx, f.clusterName)
	if err != nil {
		return &assess.Doctor{Report: emptyFindings(), NotRun: err.Error()}
	}
	return &assess.Doctor{Report: found.At(doctor.Warning)}
}

// emptyFindings is a report without checks.
func emptyFindings() doctor.Report {
	return doctor.Report{Findings: []doctor.Finding{}, NotChecked: []doctor.NotChecked{}}
}

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
