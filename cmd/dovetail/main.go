// Command dovetail is the node autoscaler: its controller, and the tools around it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
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
	err := rootCommand().ExecuteContext(ctx)
	stop()
	code := codeOf(err)
	if code != 0 && !errors.As(err, new(exitCode)) {
		fmt.Fprintln(os.Stderr, "error:", err)
	}
	os.Exit(int(code))
}

// codeOf is the exit code that tells of an error.
func codeOf(err error) exitCode {
	var code exitCode
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return 0
	case errors.As(err, &code):
		return code
	case errors.As(err, new(usageError)):
		return exitUsage
	}
	return 1
}

// exitCode ends the program with a code, when all has been said.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// exitUsage is the exit code of a command line that cannot be meant.
const exitUsage exitCode = 2

// usageError is what is wrong with a command line. It says where to look what would be right.
type usageError struct {
	command string
	error
}

func (e usageError) Error() string { return fmt.Sprintf("%v (see %s --help)", e.error, e.command) }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

func misused(cmd *cobra.Command, err error) error { return usageError{cmd.CommandPath(), err} }

// checkArgs makes usage errors of arguments that a command does not take.
func checkArgs(cmd *cobra.Command) {
	accept := cmd.Args
	if accept == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := accept(cmd, args); err != nil {
			return misused(cmd, fmt.Errorf("unknown argument %q", args[0]))
		}
		return nil
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
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
				return misused(cmd, fmt.Errorf("unknown command %q, did you mean %s?", args[0], strings.Join(similar, " or ")))
			}
			return misused(cmd, fmt.Errorf("unknown command %q", args[0]))
		},
		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(misused)
	root.AddCommand(controllerCommand(), planCommand(), instanceTypesCommand(), doctorCommand(), snapshotCommand(), adoptCommand(), iamPolicyCommand(), versionCommand())
	for _, cmd := range root.Commands() {
		checkArgs(cmd)
	}
	return root
}
