package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// exitCode ends the program with a code, when everything else is printed.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// The exit codes, the same for all commands. exitCodes lists them for people.
const (
	exitOK exitCode = 0
	// exitError: the command failed, or doctor has found something wrong.
	exitError exitCode = 1
	// exitUsage: the command line cannot be meant.
	exitUsage exitCode = 2
	// exitIncomplete: the command did its work, and something is left over.
	exitIncomplete exitCode = 3
	// exitInterrupted: the shell's code for a program that SIGINT ends.
	exitInterrupted exitCode = 130
)

// exitCodes is the table in every help text that has none of its own.
const exitCodes = `Exit codes of all commands:
  0    done
  1    an error, or doctor has found errors or warnings
  2    the command line is wrong
  3    incomplete: plan has pods without a node, instance-types lists nothing, doctor could not make every check
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

// ownEnd marks commands that end by themselves when they are interrupted, and have something to finish before.
const ownEnd = "dovetail.sh/own-end"

// interruptible lets a command end when it is interrupted, whatever it is doing: reading from a device, or planning. What
// it does goes on until the program has ended, so that it must be nothing that would be left half done.
func interruptible(cmd *cobra.Command) {
	if cmd.Annotations[ownEnd] != "" {
		return
	}
	work := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		if ctx == nil || ctx.Done() == nil {
			return work(cmd, args)
		}
		ended := make(chan error, 1)
		go func() { ended <- work(cmd, args) }()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return exitInterrupted
		}
	}
}
