// Command dovetail-lab is a laboratory for node autoscalers: a real Kubernetes control plane and
// a simulated AWS on one machine.
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

// errUsage marks errors of how the program was called.
var errUsage = errors.New("usage")

// errReported is a failure that has been told already.
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
		Short: "A real Kubernetes control plane and a simulated AWS, on one machine",
		Long: `A real Kubernetes control plane and a simulated AWS, on one machine.

Everything listens on the loopback interface only. Nothing needs to be installed, no AWS
account is needed, and nothing is left behind.`,
		Example: `  dovetail-lab up                 # a cluster with Dovetail in it, to play with
  dovetail-lab run first-node     # a story with an assertion at each step
  dovetail-lab aws                # the AWS alone`,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, // main prints them
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	// The Kubernetes components declare a flag on every program that links them; it is not ours to offer.
	_ = pflag.CommandLine.MarkHidden("version") // fails only if it is not there
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(cmd, err) })
	root.AddCommand(newUp(), newRun(), newList(), newAWS(), newEnv(), newKubectl(), newComponent())
	return root
}

// untilInterruptedAgain is the context of an orderly end. It is cancelled by the next interrupt, which says that the user does
// not want to wait for order.
func untilInterruptedAgain(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.WithoutCancel(ctx), exitSignals()...)
}

// exitSignals are the signals that end the program: Ctrl-C, a polite kill, and the closing of the terminal.
func exitSignals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} }

// silenceLibraries has the Kubernetes libraries of this process log nothing: what matters of it is shown.
func silenceLibraries() {
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
}

// usageError says what is wrong with how a command was called, and where to read more.
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
