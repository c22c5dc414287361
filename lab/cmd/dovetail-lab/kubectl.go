package main

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// newKubectl is kubectl itself, so that the lab needs nothing installed.
func newKubectl() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl ARGS...",
		Short: "kubectl, of the same release as the control plane",
		Example: `  eval "$(dovetail-lab env)"
  dovetail-lab kubectl get nodes --watch`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Getenv("KUBECONFIG") == "" && !slices.ContainsFunc(args, namesCluster) {
				return fmt.Errorf("%w: kubectl has no cluster: run %s, or pass --kubeconfig", errUsage, evalEnvironment("dovetail-lab", ""))
			}
			// kubectl handles interrupts itself, or exits on them.
			signal.Reset(exitSignals()...)
			streams := genericiooptions.IOStreams{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), ErrOut: cmd.ErrOrStderr()}
			command := kubectl.NewKubectlCommand(kubectl.KubectlOptions{
				Arguments: append([]string{"kubectl"}, args...), IOStreams: streams,
				ConfigFlags: genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(streams),
			})
			command.SetArgs(args)
			// CheckErr prints errors as kubectl does, and exits.
			cmdutil.CheckErr(cli.RunNoErrOutput(command))
			return nil
		},
	}
}

// namesCluster reports whether an argument of kubectl selects a cluster or needs none.
func namesCluster(arg string) bool {
	for _, flag := range []string{"--kubeconfig", "--server", "-s", "--help", "-h", "help", "completion", "options"} {
		if arg == flag || strings.HasPrefix(arg, flag+"=") {
			return true
		}
	}
	return false
}
