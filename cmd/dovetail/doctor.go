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

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/doctor/gather"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// doctorFlags are the flags of the doctor command.
type doctorFlags struct {
	accountFlags
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
manifest that fixes it. It only reads. A check that lacks a permission or a setting is skipped: one line names what is
missing, and the exit code is 3, since a cluster that was not checked is not a healthy one.

The cluster is that of KUBECONFIG, or of --kubeconfig and --context; AWS credentials come from the usual places of the
AWS SDK, and so does the region without --region. The controller makes the same checks when it starts and every ten
minutes, and counts the findings in the metric dovetail_doctor_findings.`,
		Example: `  dovetail doctor --cluster-name shop
  dovetail doctor --cluster-name shop --region eu-west-1 --context production -o wide
  dovetail doctor --cluster-name shop -o json --output-file findings.json
  dovetail doctor --cluster-name shop --fix-manifests > fix.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := f.inspect(cmd.Context(), slog.New(slog.DiscardHandler))
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "error: nothing was checked:", err)
				return exitIncomplete
			}
			return f.print(report, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.bind(cmd, "name of the EKS cluster; without it, checks that need AWS are skipped")
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
	if err := reach(config, settings.Settings{}); err != nil {
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
		sources.Cloud = newDoctorAccount(account)
	}
	return doctor.Run(gather.Facts(ctx, sources)), nil
}

// credentialsTimeout is how long region and credentials are searched for: outside EC2 there is no instance metadata service, and the
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
	sdk, err := loadSDKIn(ctx, f.region, log)
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

// print writes the report in the format of the flags. Its error is the exit code: something is wrong, or not known.
func (f *doctorFlags) print(report doctor.Report, out, notes io.Writer) error {
	wrong := len(report.At(cmp.Or(doctor.Severity(f.failOn.value), doctor.Warning)).Findings) > 0
	if !f.all {
		report = report.At(doctor.Warning)
	}
	printed := map[string]func(io.Writer) error{
		"": report.Table, "table": report.Table, "wide": report.WideTable, "json": report.JSON, "yaml": asYAML(report.JSON),
	}[f.output.value]
	if f.manifests {
		printed = report.Manifests
		for _, line := range report.Unchecked() {
			fmt.Fprintln(notes, line)
		}
	}
	switch err := printed(out); {
	case err != nil:
		return err
	case wrong:
		return exitError
	case len(report.NotChecked) > 0:
		return exitIncomplete
	}
	return nil
}
