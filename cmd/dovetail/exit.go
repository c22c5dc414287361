package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// exitCode exits the program with a code, after everything else is printed.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// The exit codes, the same for all commands. exitCodes documents them.
const (
	exitOK exitCode = 0
	// exitError: the command failed, or doctor or migrate check found something wrong.
	exitError exitCode = 1
	// exitUsage: the command line is wrong.
	exitUsage exitCode = 2
	// exitIncomplete: the command succeeded, but pods are without a node, or checks were skipped.
	exitIncomplete exitCode = 3
	// exitInterrupted: the shell's code for a program that SIGINT stops.
	exitInterrupted exitCode = 130
)

// exitCodes is the table in the help of dovetail. The help of a command has its own meanings of a code.
const exitCodes = `Exit codes of all commands:
  0    done
  1    an error, or doctor has found errors or warnings, or migrate check an obstacle
  2    the command line is wrong
  3    incomplete: plan has pods without a node, instance-types lists nothing, doctor or migrate check could not make every check
  130  interrupted`

// codeOf is the exit code of an error.
func codeOf(err error) exitCode {
	var code exitCode
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, new(usageError)):
		return exitUsage
	}
	return exitError
}

// handlesInterrupt marks commands that stop by themselves when they are interrupted, because they have something to finish.
const handlesInterrupt = "dovetail.sh/handles-interrupt"

// interruptible makes a command return when it is interrupted, whatever it is doing: reading from a device, or planning. Its work
// goes on until the program exits, so that it must not be anything that may not be left half done.
func interruptible(cmd *cobra.Command) {
	if cmd.Annotations[handlesInterrupt] != "" {
		return
	}
	work := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if ctx == nil || ctx.Done() == nil {
			return work(cmd, args)
		}
		done := make(chan error, 1)
		go func() { done <- work(cmd, args) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return exitInterrupted
		}
	}
}
