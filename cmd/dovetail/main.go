// Command dovetail is the node autoscaler: its controller, and the tools around it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Set by the linker.
var (
	version = "dev"
	commit  = "unknown"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "dovetail",
		Short: "Node autoscaler for Amazon EKS",
		Long: `Dovetail watches pods that do not fit, launches the cheapest EC2 instances on which
they do, and gives back what is no longer worth its price. It speaks Karpenter's API.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(controllerCommand(), versionCommand())
	return root
}
