// Command dovetail-lab is a laboratory for node autoscalers: a real Kubernetes control plane and
// a simulated AWS on one computer.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

// errUsage marks errors in the command line.
var errUsage = errors.New("usage")

// errReported is a failure that was already printed.
var errReported = errors.New("failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), exitSignals()...)
	defer stop()
	err := newRoot().ExecuteContext(ctx)
	switch {
	case err == nil:
	case errors.Is(err, errReported):
		os.Exit(exitFailure)
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "dovetail-lab:", err)
		os.Exit(exitUsage)
	default:
		fmt.Fprintln(os.Stderr, "dovetail-lab:", err)
		os.Exit(exitFailure)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "dovetail-lab",
		Short: "A real Kubernetes control plane and a simulated AWS, on one computer",
		Long: `A real Kubernetes control plane and a simulated AWS, on one computer.

Everything listens on the loopback interface only. You need no other software and no AWS
account, and the lab leaves nothing behind.`,
		Example: `  dovetail-lab up                 # a cluster with Dovetail in it, to try things out
  dovetail-lab run first-node     # a scenario with assertions in each step
  dovetail-lab aws                # the simulated AWS alone`,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, // main prints them
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	// The Kubernetes components add this flag to every program that links them. The lab does not support it.
	_ = pflag.CommandLine.MarkHidden("version") // fails only without the flag
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, err) })
	root.AddCommand(newUp(), newRun(), newScale(), newCompare(), newList(), newAWS(), newEnv(), newKubectl(), newComponent())
	return root
}

// untilInterruptedAgain returns the context of an orderly shutdown. The next interrupt cancels it: the user does not
// want to wait.
func untilInterruptedAgain(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.WithoutCancel(ctx), exitSignals()...)
}

// exitSignals are the signals that stop the program: Ctrl-C, kill, and a closed terminal.
func exitSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} }

// silenceLibraries discards the logs of the Kubernetes libraries in this process: the lab prints what matters.
func silenceLibraries() {
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
}

// usageError returns an error in the command line that points to --help.
func usageError(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w: %w (see %s --help)", errUsage, err, cmd.CommandPath())
}

// noArguments is for commands that take flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError(cmd, fmt.Errorf("unknown argument %q", args[0]))
	}
	return nil
}
