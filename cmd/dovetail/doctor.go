package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientconfig "sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/dovetail-k8s/dovetail/internal/aws"
	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/doctor/gather"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

// Exit codes of the doctor command, beside 0 for a clean cluster.
const (
	exitFindings exitCode = 1
	exitBlind    exitCode = 2
)

// doctorFlags are the flags of the doctor command.
type doctorFlags struct {
	clusterName, kubeContext, output string
	all, manifests                   bool
}

func doctorCommand() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look a cluster over for what will fail, may fail, or costs money",
		Long: `Looks at the cluster and, with --cluster-name, at its AWS account, and prints what is wrong, why it matters, and
the command or manifest that mends it. It only reads. What it may not read is listed as not checked.

The cluster is that of KUBECONFIG; AWS credentials and region come from the usual places of the AWS SDK. The
controller makes the same checks at its start and every ten minutes: metric dovetail_doctor_findings.

Exit codes: 0 when nothing is wrong, 1 when there are errors or warnings, 2 when the cluster cannot be looked at.`,
		Example: `  dovetail doctor --cluster-name shop
  dovetail doctor --cluster-name shop -o json
  dovetail doctor --cluster-name shop --fix-manifests > fix.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.output != "" && f.output != "json" {
				return fmt.Errorf("-o %q: only json is known", f.output)
			}
			report, err := f.look(cmd.Context(), slog.New(slog.DiscardHandler))
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "error:", err)
				return exitBlind
			}
			return f.print(report, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&f.clusterName, "cluster-name", os.Getenv("CLUSTER_NAME"), "name of the EKS cluster; without it, AWS is not looked at")
	cmd.Flags().StringVar(&f.kubeContext, "context", "", "context of KUBECONFIG; the current one if not set")
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "json, or nothing for a table")
	cmd.Flags().BoolVar(&f.all, "all", false, "show what is worth knowing, too (severity info)")
	cmd.Flags().BoolVar(&f.manifests, "fix-manifests", false, "print only the remedies that are manifests, as one YAML file")
	return cmd
}

// look gathers facts and makes all checks. The error says why the cluster cannot be looked at.
func (f doctorFlags) look(ctx context.Context, log *slog.Logger) (doctor.Report, error) {
	config, err := clientconfig.GetConfigWithContext(f.kubeContext)
	if err != nil {
		return doctor.Report{}, fmt.Errorf("find the cluster: %w (set KUBECONFIG)", err)
	}
	config.UserAgent = "dovetail/" + version
	if err := reach(config, settings.Settings{}); err != nil {
		return doctor.Report{}, err
	}
	scheme, err := newScheme()
	if err != nil {
		return doctor.Report{}, err
	}
	kube, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return doctor.Report{}, fmt.Errorf("reach the cluster: %w", err)
	}
	sources := gather.Sources{Kubernetes: kube, ClusterName: f.clusterName, Now: time.Now(), NoCloud: "--cluster-name is not set"}
	if f.clusterName != "" {
		account, _, err := openAccount(ctx, adoptFlags{clusterName: f.clusterName, kubeContext: f.kubeContext}, log)
		mismatch := (*aws.IdentityMismatchError)(nil)
		switch {
		case errors.As(err, &mismatch):
			sources.Mismatch, sources.NoCloud = mismatch.Error(), "the API server is not that of the named cluster"
		case err != nil:
			sources.NoCloud = err.Error()
		default:
			sources.Cloud = account
		}
	}
	return doctor.Run(gather.Facts(ctx, sources)), nil
}

// print writes the report as asked, and says by its error whether anything is wrong.
func (f doctorFlags) print(report doctor.Report, out io.Writer) error {
	wrong := len(report.At(doctor.Warning).Findings) > 0
	if !f.all {
		report = report.At(doctor.Warning)
	}
	printed := report.Table
	switch {
	case f.manifests:
		printed = report.Manifests
	case f.output == "json":
		printed = report.JSON
	}
	if err := printed(out); err != nil {
		return err
	}
	if wrong {
		return exitFindings
	}
	return nil
}
