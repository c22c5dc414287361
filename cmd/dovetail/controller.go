package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/dovetail-k8s/dovetail/internal/operator"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dovetail-k8s/dovetail/internal/settings"
)

func controllerCommand() *cobra.Command {
	var s settings.Settings
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Run the autoscaler against a cluster",
		Long: `Runs the autoscaler: it launches nodes for pending pods, and consolidates nodes that are empty, underused or drifted.

The cluster is that of KUBECONFIG, or the one that this pod runs in. AWS credentials and
region come from the usual places of the AWS SDK. Each flag can also be set by the
environment variable with its name in capitals, such as CLUSTER_NAME; the flag wins.

With --shadow it runs beside the controller that acts, changes nothing, and reports what it would have done.`,
		Example: `  dovetail controller --cluster-name shop
  CLUSTER_NAME=shop KUBECONFIG=~/.kube/config dovetail controller --leader-election-namespace kube-system`,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{handlesInterrupt: "the lease of the leader is released"},
	}
	unreadable := s.Bind(cmd.Flags(), os.Getenv)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.Validate(); err != nil {
			return misused(cmd, err)
		}
		if name := "SHADOW"; slices.Contains(unreadable, name) {
			// With the default, false, the controller would act where somebody wants it not to.
			return misused(cmd, fmt.Errorf("%s=%q is neither true nor false", name, os.Getenv(name)))
		}
		logs, err := operator.OpenLogs(cmd.OutOrStdout(), cmd.ErrOrStderr(), s)
		if err != nil {
			return err
		}
		defer logs.Close() // whatever stops the controller was logged before
		log := operator.NewLogger(logs, s.LogLevel)
		for _, name := range unreadable {
			log.Error("environment variable cannot be read; its default is used", "name", name, "value", os.Getenv(name))
		}
		for _, warning := range s.GateWarnings() {
			log.Warn("feature gate without effect", "why", warning)
		}
		err = operator.Run(cmd.Context(), operator.Config{
			Settings: s, Cluster: func() (*rest.Config, error) { return clusterConfig(os.Getenv) },
			Build: operator.Build{Version: version, Commit: commit}, Log: log,
		})
		if errors.Is(err, context.Canceled) && cmd.Context().Err() != nil {
			return nil // a signal has stopped it
		}
		return err
	}
	return cmd
}

// clusterConfig is that of KUBECONFIG, or of the pod. If all files of KUBECONFIG are missing, the error names them: client-go would
// continue as if it were not set.
func clusterConfig(getenv func(string) string) (*rest.Config, error) {
	if err := missingFiles(getenv("KUBECONFIG")); err != nil {
		return nil, fmt.Errorf("KUBECONFIG: %w", err)
	}
	return ctrl.GetConfig()
}
