package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/dovetail-k8s/dovetail/lab/controlplane/component"
)

// newComponent is the hidden command that runs one control plane component. The lab starts this binary once per
// component.
func newComponent() *cobra.Command {
	return &cobra.Command{
		Use:    "component NAME -- ARGS",
		Short:  "Run one component of a control plane until its standard input closes",
		Hidden: true,
		Args:   cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			go exitWith(cmd.InOrStdin())
			return component.Run(cmd.Context(), args[0], args[1:])
		},
	}
}

// exitWith exits when lifeline closes: a pipe from the parent, which the kernel closes however the parent exits.
// Nothing needs an orderly shutdown then.
func exitWith(lifeline io.Reader) {
	_, err := io.Copy(io.Discard, lifeline)
	fmt.Fprintln(os.Stderr, "dovetail-lab: the parent process has exited:", err)
	os.Exit(1)
}
