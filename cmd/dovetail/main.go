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
	err := rootCommand().ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil || errors.Is(err, context.Canceled):
	case errors.As(err, &code):
		os.Exit(int(code))
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// exitCode ends the program with a code, when all has been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "dovetail",
		Short: "Node autoscaler for Amazon EKS",
		Long: `Dovetail watches pods that do not fit, launches the cheapest EC2 instances on which
they do, and gives back what is no longer worth its price. It speaks Karpenter's API.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(controllerCommand(), planCommand(), doctorCommand(), snapshotCommand(), adoptCommand(), versionCommand())
	return root
}
