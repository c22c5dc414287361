package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/operator"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclaim"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclass"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	doctorgather "github.com/dovetail-k8s/dovetail/internal/doctor/gather"
	"github.com/dovetail-k8s/dovetail/internal/migrate"
	"github.com/dovetail-k8s/dovetail/internal/migrate/gather"
	"github.com/dovetail-k8s/dovetail/internal/settings"
)

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Check whether Dovetail can take over a cluster from Karpenter, and print the commands for it",
		Long: `Looks at a live cluster that Karpenter runs. These commands only read: check lists what has to change before a takeover,
plan prints the commands for this cluster, each with its undo.`,
		Example: `  dovetail migrate check
  dovetail migrate plan`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(migrateCheckCommand(), migratePlanCommand())
	for _, sub := range cmd.Commands() {
		checkArgs(sub)
		interruptible(sub)
		intoOutputFile(sub)
	}
	return cmd
}

// migrateFlags are the flags of the commands that look at a cluster of Karpenter.
type migrateFlags struct {
	accountFlags
	// deployment is NAMESPACE/NAME, role an ARN; empty to find them.
	deployment, role string
	output           choice
}

func (f *migrateFlags) bind(cmd *cobra.Command) {
	f.accountFlags.bind(cmd, "name of the EKS cluster (default: that of Karpenter)")
	cmd.Flags().StringVar(&f.deployment, "deployment", "", "Deployment that runs Karpenter, as `NAMESPACE/NAME` (default: found by its image)")
	cmd.Flags().StringVar(&f.role, "role", "", "`ARN` of the controller's IAM role (default: that of its ServiceAccount)")
	withOutputFile(cmd)
}

// check validates the flags by themselves.
func (f *migrateFlags) check() error {
	if namespace, name, found := strings.Cut(f.deployment, "/"); f.deployment != "" && (!found || namespace == "" || name == "") {
		return fmt.Errorf("--deployment %q is not NAMESPACE/NAME, such as karpenter/karpenter", f.deployment)
	}
	return nil
}

func migrateCheckCommand() *cobra.Command {
	var f migrateFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "List what has to change before Dovetail can take over a cluster from Karpenter",
		Long: `Checks a live cluster that Karpenter runs, and prints a line for each check: ok, warning or obstacle, with the object, the
field and what to do. It only reads. It checks the version of Karpenter, other controllers, the versions of the API, fields,
settings and feature gates, webhooks, the rights of the controller's role, who owns the instances, what node classes select,
and which nodes would be replaced.

Without AWS credentials, what needs AWS is not checked. The rights of the role are checked by IAM's policy simulator
(iam:SimulatePrincipalPolicy).

Exit code 1 also means that there is an obstacle, 3 that something was not checked.`,
		Example: `  dovetail migrate check
  dovetail migrate check --context production --region eu-west-1 -o json
  dovetail migrate check --deployment kube-system/karpenter --role arn:aws:iam::111122223333:role/karpenter`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return misused(cmd, err)
			}
			facts, err := f.facts(cmd.Context(), slog.New(slog.DiscardHandler))
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "error: nothing was checked:", err)
				if f.output.value != "table" && f.output.value != "" { // a program reads it
					err = writeAs(cmd.OutOrStdout(), f.output.value, checkReport(cmd, migrate.Unreadable(err)))
					return cmp.Or(err, error(exitIncomplete))
				}
				return exitIncomplete
			}
			report := migrate.Run(facts)
			if err := writeAs(cmd.OutOrStdout(), f.output.value, checkReport(cmd, report)); err != nil {
				return err
			}
			switch {
			case report.Count(migrate.Obstacle) > 0:
				return exitError
			case report.Count(migrate.NotChecked) > 0:
				return exitIncomplete
			}
			return nil
		},
	}
	f.bind(cmd)
	bindOutput(cmd, &f.output, "table", "json", "yaml")
	return cmd
}

// checkReport prints a report of checks in the width of the terminal.
func checkReport(cmd *cobra.Command, r migrate.Report) folded {
	return folded{"MigrationCheck", columnsOf(cmd.OutOrStdout()), r}
}

// migrateAccount describes what the checks read of AWS.
type migrateAccount struct {
	*nodeclass.Resolver
	*nodeclaim.DriftDetector
	*offerings.Source
}

// facts reads the cluster, and the account if it can be read. An error means that the cluster cannot be read.
func (f *migrateFlags) facts(ctx context.Context, log *slog.Logger) (*migrate.Facts, error) {
	kube, _, err := f.kube.client()
	if err != nil {
		return nil, err
	}
	facts, err := gather.Kubernetes(ctx, kube, f.deployment)
	if err != nil {
		return nil, err
	}
	facts.RoleARN = f.role
	gather.Configuration(ctx, kube, facts)
	if f.clusterName == "" {
		f.clusterName = facts.ClusterName()
	}
	f.reservedCapacity, f.kubeletExpressions = facts.Gate(settings.GateReservedCapacity), facts.Gate(settings.GateNodeClassCEL)
	sources := gather.Sources{Doctor: doctorgather.Sources{Kubernetes: kube, ClusterName: f.clusterName, Now: time.Now()}}
	f.openCloud(ctx, &sources, log)
	gather.Account(ctx, facts, sources)
	return facts, nil
}

// simulationAttempts sets how often a simulation is tried: with the pauses of the SDK, for about a minute.
const simulationAttempts = 8

// openCloud completes the sources with AWS, or with the reason why it cannot be read.
func (f *migrateFlags) openCloud(ctx context.Context, sources *gather.Sources, log *slog.Logger) {
	reads := doctorFlags{accountFlags: f.accountFlags}
	if sources.Doctor.NoCloud = reads.missing(ctx, log); sources.Doctor.NoCloud != "" {
		return
	}
	account, _, err := openAccount(ctx, f.accountFlags, log)
	mismatch := (*ekscluster.IdentityMismatchError)(nil)
	switch {
	case errors.As(err, &mismatch):
		sources.Doctor.Mismatch, sources.Doctor.NoCloud = mismatch.Error(), "the API server is not that of the named cluster"
		return
	case err != nil:
		sources.Doctor.NoCloud = err.Error()
		return
	}
	sdk, err := operator.LoadSDK(ctx, version, f.region, log)
	if err != nil {
		sources.Doctor.NoCloud = err.Error()
		return
	}
	sources.Doctor.Cloud, sources.Cloud = operator.NewDoctorAccount(account), newMigrateAccount(account)
	sources.Doctor.Unproven = account.Cluster.Unproven()
	// IAM limits simulations to a few in a second, and one that fails leaves all rights unknown.
	patient := func(o *iam.Options) { o.RetryMaxAttempts = simulationAttempts }
	sources.Simulator, sources.PodIdentity, sources.Region = iam.NewFromConfig(sdk, patient), eks.NewFromConfig(sdk), sdk.Region
}

func newMigrateAccount(a *adapter.Adapter) migrateAccount {
	return migrateAccount{a.NodeClasses, a.Drift, a.Offerings}
}

// migratePlanFlags are the flags of the plan command.
type migratePlanFlags struct {
	migrateFlags
	charts string
}

func migratePlanCommand() *cobra.Command {
	var f migratePlanFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print the commands for a takeover from Karpenter, each with its undo, and the values of the chart",
		Long: `Prints the commands by which Dovetail takes over this cluster from Karpenter, in order, each with its undo: names,
namespace and releases are those of the cluster. The values of the chart are translated from Karpenter's Deployment. At the
end are the commands that hand back to Karpenter. It changes nothing, and runs none of the commands.`,
		Example: `  dovetail migrate plan
  dovetail migrate plan --context production --charts oci://ghcr.io/dovetail-k8s/dovetail/charts
  dovetail migrate plan -o values > dovetail-values.yaml
  dovetail migrate plan -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return misused(cmd, err)
			}
			arguments := f.arguments(cmd)
			facts, err := f.facts(cmd.Context(), slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			plan, err := migrate.NewPlan(facts, migrate.Tools{
				Kubeconfig: f.kube.kubeconfig, Context: f.kube.context, Charts: f.charts, Arguments: arguments,
			})
			if err != nil {
				return err
			}
			if f.output.value == "values" {
				return plan.ValuesFile(cmd.OutOrStdout())
			}
			return writeAs(cmd.OutOrStdout(), f.output.value, folded{"MigrationPlan", columnsOf(cmd.OutOrStdout()), plan})
		},
	}
	f.bind(cmd)
	cmd.Flags().StringVar(&f.charts, "charts", "deploy/chart", "directory or OCI `repository` with the charts dovetail and dovetail-crd")
	bindOutput(cmd, &f.output, "table", "json", "yaml", "values")
	return cmd
}

// arguments are the flags that select the cluster, for the commands of the plan.
func (f *migrateFlags) arguments(cmd *cobra.Command) (out []string) {
	for _, name := range []string{"kubeconfig", "context", "cluster-name", "region", "deployment", "role"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed {
			out = append(out, "--"+name, flag.Value.String())
		}
	}
	return out
}
