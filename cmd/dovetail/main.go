// Command dovetail is the node autoscaler: its controller, and the tools around it.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dovetail-k8s/dovetail/internal/spelling"
)

// Set by the linker.
var (
	version = "dev"
	commit  = "unknown"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal exits the program at once
	root := rootCommand()
	if isPlugin(os.Args[0]) {
		asPlugin(root)
	}
	err := root.ExecuteContext(ctx)
	code := codeOf(err)
	if code != exitOK && !errors.As(err, new(exitCode)) {
		fmt.Fprintln(os.Stderr, "error:", shownError(err))
	}
	os.Exit(int(code))
}

// errorMessage is a message that may quote input: names and values in it neither color nor rewrite what a terminal shows. Line breaks and
// tabs are the message's own.
func errorMessage(message string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return visible(r)
	}, message)
}

// usageError describes what is wrong with a command line. Its text refers to the help.
type usageError struct {
	command string
	error
}

func (e usageError) Error() string { return fmt.Sprintf("%v (see %s --help)", e.error, e.command) }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

// misused makes a usage error.
func misused(cmd *cobra.Command, err error) error { return usageError{cmd.CommandPath(), err} }

// misusedFlag makes a usage error of what is wrong with a flag. For an unknown one it names the flag that was probably meant.
func misusedFlag(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); !cmd.HasParent() && len(args) > 0 { // its flags are those of the command that was meant
		return unknownCommand(cmd, args[0])
	}
	unknown := new(pflag.NotExistError)
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 3 {
		return misused(cmd, err)
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	name := unknown.GetSpecifiedName()
	if near := spelling.Nearest(name, known, max(2, len(name)/3)); near != "" {
		err = fmt.Errorf("%w, did you mean --%s?", err, near)
	}
	return misused(cmd, err)
}

// unknownCommand names the commands that were probably meant.
func unknownCommand(root *cobra.Command, name string) error {
	if similar := root.SuggestionsFor(name); len(similar) > 0 {
		return misused(root, fmt.Errorf("unknown command %q, did you mean %s?", name, strings.Join(similar, " or ")))
	}
	return misused(root, fmt.Errorf("unknown command %q", name))
}

// checkArgs turns arguments that a command does not take into usage errors.
func checkArgs(cmd *cobra.Command) {
	accept := cmd.Args
	if accept == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := accept(cmd, args)
		switch {
		case err == nil:
			return nil
		case len(args) == 0:
			return misused(cmd, fmt.Errorf("%s is missing", strings.TrimSuffix(strings.TrimPrefix(cmd.Use, cmd.Name()+" "), "...")))
		}
		return misused(cmd, fmt.Errorf("unknown argument %q", args[0]))
	}
}

func rootCommand() *cobra.Command {
	var printVersion bool
	root := &cobra.Command{
		Use:   "dovetail",
		Short: "Node autoscaler for Amazon EKS",
		Long: `Dovetail launches the cheapest EC2 instances on which pending pods fit, and consolidates
nodes that are no longer worth their price. It uses Karpenter's API.

` + exitCodes,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case printVersion && len(args) == 0:
				_, err := fmt.Fprint(cmd.OutOrStdout(), versionLine())
				return err
			case len(args) == 0:
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(misusedFlag)
	// Not cobra's own flag: its templates would keep each method of all types in the binary, a third of it.
	root.Flags().BoolVarP(&printVersion, "version", "v", false, "print the version")
	addGroup(root, "look", "Look at a cluster:",
		explainCommand(), assessCommand(), topCommand(), consoleCommand(), doctorCommand(), recordingCommand(), mcpCommand())
	addGroup(root, "plan", "Plan:", planCommand(), instanceTypesCommand(), snapshotCommand(), replayCommand())
	addGroup(root, "operate", "Operate:",
		controllerCommand(), migrateCommand(), shadowCommand(), adoptCommand(), resumeCommand(), iamPolicyCommand())
	root.AddCommand(versionCommand())
	for _, cmd := range root.Commands() {
		cmd.Long = cmp.Or(cmd.Long, cmd.Short+".")
		checkArgs(cmd)
		interruptible(cmd)
		intoOutputFile(cmd)
	}
	return root
}

// addGroup adds commands that the help of root lists together.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = id
	}
	root.AddCommand(commands...)
}

// pluginCommand states what users of the kubectl plugin type: kubectl runs the program kubectl-dovetail for it.
const pluginCommand = "kubectl dovetail"

// isPlugin reports whether the program runs under the name of the kubectl plugin. Windows adds a suffix.
func isPlugin(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == "kubectl-dovetail"
}

// asPlugin makes help texts, examples and errors name the command that users of the plugin type.
func asPlugin(root *cobra.Command) {
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	root.Annotations[cobra.CommandDisplayNameAnnotation] = pluginCommand
	for _, cmd := range root.Commands() {
		cmd.Example = strings.ReplaceAll(cmd.Example, "dovetail ", pluginCommand+" ")
	}
}
