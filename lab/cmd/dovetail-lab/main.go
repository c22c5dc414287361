// Command dovetail-lab is a laboratory for node autoscalers: a real Kubernetes control plane and
// a simulated AWS on one machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	if err := newRoot().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "dovetail-lab:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "dovetail-lab",
		Short:         "A real Kubernetes control plane and a simulated AWS, on one machine",
		SilenceErrors: true, // main prints them
		SilenceUsage:  true,
	}
	root.AddCommand(newComponent())
	return root
}
