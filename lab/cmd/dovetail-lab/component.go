package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/lab/controlplane/component"
)

// newComponent is the command by which a control plane executes this binary once for each of its
// parts.
func newComponent() *cobra.Command {
	return &cobra.Command{
		Use:    "component NAME -- ARGS",
		Short:  "Run one component of a control plane; it lives as long as its standard input",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			go exitWith(cmd.InOrStdin())
			return component.Run(cmd.Context(), args[0], args[1:])
		},
	}
}

// exitWith ends the process at the end of lifeline: a pipe whose other end the parent holds, and
// which the kernel closes however the parent dies. There is nothing left to be orderly for then.
func exitWith(lifeline io.Reader) {
	_, err := io.Copy(io.Discard, lifeline)
	fmt.Fprintln(os.Stderr, "dovetail-lab: the parent process is gone:", err)
	os.Exit(1)
}
