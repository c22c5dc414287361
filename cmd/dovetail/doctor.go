package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/operator"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/clusters"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/doctor/gather"
)

// doctorFlags are the flags of the doctor command.
type doctorFlags struct {
	accountFlags
	files          []string
	output         choice
	failOn         choice
	all, manifests bool
}

func doctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a cluster for what will fail, may fail, or costs money",
		Long: `Checks the cluster and, with --cluster-name, its AWS account, and prints what is wrong, why it matters, and the command or
manifest that fixes it. It only reads. Exit code 1 also means that there are errors or warnings. A check that
lacks a permission or a setting is skipped: one line names what is missing, and the exit code is 3, since a cluster that was not
checked is not a healthy one.

The cluster is that of KUBECONFIG, or of --kubeconfig and --context; AWS credentials come from the usual places of the
AWS SDK, and so does the region without --region. The controller makes the same checks when it starts and every ten
minutes, and counts the findings in the metric dovetail_doctor_findings.

With -f it checks a cluster in files, such as one that dovetail snapshot has written, without what is in AWS.

With several --context or --all-contexts, it prints one table over these clusters. The name and region of each EKS cluster are those
of its ARN, as aws eks update-kubeconfig writes it.`,
		Example: `  dovetail doctor --cluster-name shop
  dovetail doctor --cluster-name shop --region eu-west-1 --context production -o wide
  dovetail doctor --cluster-name shop -o json --output-file findings.json
  dovetail doctor --cluster-name shop --fix-manifests > fix.yaml
  dovetail doctor --all-contexts
  dovetail snapshot --output-file shop.json && dovetail doctor -f shop.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(f.files) > 0 {
				return f.runFiles(cmd)
			}
			several, err := f.kube.choose()
			if err == nil && several != nil {
				err = namesOneCluster(cmd, "cluster-name", "region", "fix-manifests")
			}
			if err != nil {
				return misused(cmd, err)
			}
			if several != nil {
				return f.runSeveral(cmd, several)
			}
			report, err := f.inspect(cmd.Context(), slog.New(slog.DiscardHandler))
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "error: nothing was checked:", err)
				return exitIncomplete
			}
			return f.print(report, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.kube.bindContexts(cmd)
	f.bindAccount(cmd, "name of the EKS cluster; without it, checks that need AWS are skipped")
	cmd.Flags().StringArrayVarP(&f.files, "filename", "f", nil,
		"file, directory, or - for stdin with a snapshot of a cluster (see dovetail snapshot),\ninstead of a live cluster; can be repeated")
	bindOutput(cmd, &f.output, "table", "wide", "json", "yaml")
	withOutputFile(cmd)
	f.failOn = choice{string(doctor.Warning), []string{string(doctor.Warning), string(doctor.Error)}}
	cmd.Flags().Var(&f.failOn, "fail-on", "exit with code 1 for findings of this `severity` or worse: warning, error")
	complete(cmd, "fail-on", func(*cobra.Command) []string { return f.failOn.known })
	cmd.Flags().BoolVar(&f.all, "all", false, "also show findings of severity info")
	cmd.Flags().BoolVar(&f.manifests, "fix-manifests", false, "print only the remedies that are manifests, as one YAML file")
	return cmd
}

// inspect gathers facts and makes all checks. An error means that the cluster cannot be read.
func (f *doctorFlags) inspect(ctx context.Context, log *slog.Logger) (doctor.Report, error) {
	kube, config, err := f.kube.client()
	if err != nil {
		return doctor.Report{}, err
	}
	if err := f.kube.reach(ctx, config); err != nil {
		return doctor.Report{}, err
	}
	sources := gather.Sources{Kubernetes: kube, ClusterName: f.clusterName, Now: time.Now()}
	if missing := f.missing(ctx, log); missing != "" {
		sources.NoCloud = missing
		return doctor.Run(gather.Facts(ctx, sources)), nil
	}
	account, _, err := openAccount(ctx, f.accountFlags, log)
	mismatch := (*ekscluster.IdentityMismatchError)(nil)
	switch {
	case errors.As(err, &mismatch):
		sources.Mismatch, sources.NoCloud = mismatch.Error(), "the API server is not that of the named cluster"
	case err != nil:
		sources.NoCloud = err.Error()
	default:
		sources.Cloud, sources.Unproven = operator.NewDoctorAccount(account), account.Cluster.Unproven()
	}
	return doctor.Run(gather.Facts(ctx, sources)), nil
}

// credentialsTimeout sets how long region and credentials are searched for: outside EC2 there is no instance metadata service, and the
// SDK would wait for it much longer.
const credentialsTimeout = 5 * time.Second

// missing names everything that must be set before AWS can be read; empty if nothing is missing.
func (f *doctorFlags) missing(ctx context.Context, log *slog.Logger) string {
	var out []string
	if f.clusterName == "" {
		out = append(out, "--cluster-name (or CLUSTER_NAME)")
	}
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	sdk, err := operator.LoadSDK(ctx, version, f.region, log)
	if err != nil || sdk.Region == "" {
		out = append(out, "--region (or AWS_REGION)")
	}
	if session.Authenticate(ctx, sdk, os.Getenv) != nil {
		out = append(out, "AWS credentials (such as AWS_PROFILE)")
	}
	if len(out) == 0 {
		return ""
	}
	return "AWS cannot be read: set " + strings.Join(out, ", ")
}

// runSeveral examines clusters, and prints one table. Its error is the exit code of the worst one.
func (f *doctorFlags) runSeveral(cmd *cobra.Command, contexts []string) error {
	results := clusters.Each(cmd.Context(), contexts, clustersAtOnce, func(ctx context.Context, name string) (*doctor.Report, error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		one := *f
		one.kube = f.kube.of(name)
		one.clusterName, one.region = f.kube.eksCluster(name)
		report, err := one.inspect(ctx, slog.New(slog.DiscardHandler))
		return &report, err
	})
	worst := incomplete(results)
	for _, r := range results {
		if r.Report == nil {
			continue
		}
		if code := f.exit(*r.Report); worst == nil || code == exitError {
			worst = code
		}
		*r.Report = f.shown(*r.Report)
	}
	list := clusters.List[doctor.Report]{Kind: "Findings", Clusters: results}
	if err := printClusters(cmd.OutOrStdout(), f.output.value, list, clusters.Doctor); err != nil {
		return err
	}
	return worst
}

// exit is the exit code of a report, as an error: something is wrong, or not known; nil if all is well.
func (f *doctorFlags) exit(report doctor.Report) error {
	switch {
	case len(report.At(cmp.Or(doctor.Severity(f.failOn.value), doctor.Warning)).Findings) > 0:
		return exitError
	case len(report.NotChecked) > 0:
		return exitIncomplete
	}
	return nil
}

// shown returns what is printed of a report.
func (f *doctorFlags) shown(report doctor.Report) doctor.Report {
	if f.all {
		return report
	}
	return report.At(doctor.Warning)
}

// print writes the report in the format of the flags. Its error is the exit code.
func (f *doctorFlags) print(report doctor.Report, out, notes io.Writer) error {
	exit := f.exit(report)
	report = f.shown(report)
	table := forTerminal(func(w io.Writer) error { return report.Table(w, columnsOf(out)) })
	printed := map[string]func(io.Writer) error{
		"": table, "table": table, "wide": forTerminal(report.WideTable),
		"json": report.JSON, "yaml": asYAML(report.JSON),
	}[f.output.value]
	if f.manifests {
		printed = report.Manifests
		for _, line := range report.Unchecked() {
			fmt.Fprintln(notes, line)
		}
	}
	if err := printed(out); err != nil {
		return err
	}
	return exit
}
