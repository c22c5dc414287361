package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"
	sigsyaml "sigs.k8s.io/yaml"
)

// asYAML prints as YAML what is printed as JSON.
func asYAML(printed func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		var text bytes.Buffer
		if err := printed(&text); err != nil {
			return err
		}
		out, err := sigsyaml.JSONToYAML(escaped(text.Bytes()))
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	}
}

// escaped is a JSON document in which the runes are escaped that YAML forbids. JSON has them only in strings.
func escaped(document []byte) []byte {
	out := make([]byte, 0, len(document))
	for _, r := range string(document) {
		if unicode.IsGraphic(r) || r < ' ' || r > math.MaxUint16 {
			out = utf8.AppendRune(out, r)
		} else {
			out = fmt.Appendf(out, "\\u%04x", r)
		}
	}
	return out
}

const outputFile = "output-file"

// withOutputFile gives a command the flag --output-file, a file to print to instead of stdout.
func withOutputFile(cmd *cobra.Command) {
	cmd.Flags().String(outputFile, "", "file to write the result to (default: standard output)")
}

// intoOutputFile implements the flag --output-file for a command that has it. It wraps what interrupts the command, so that no
// incomplete file is left.
func intoOutputFile(cmd *cobra.Command) {
	flag := cmd.Flags().Lookup(outputFile)
	if flag == nil {
		return
	}
	work := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := flag.Value.String()
		if path == "" {
			return work(cmd, args)
		}
		return toFile(path, func(w io.Writer) error {
			cmd.SetOut(w)
			return work(cmd, args)
		})
	}
}

// toFile writes a file that only its owner can read. It replaces an existing file only once everything is written. Pipes and devices
// are written directly.
func toFile(path string, write func(io.Writer) error) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(file), file.Close())
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a link stays one
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("--output-file %s: %w", path, errors.Unwrap(err))
	}
	err = write(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	code := exitCode(0)
	if whole := err == nil || errors.As(err, &code) && code != exitInterrupted; whole {
		moved := os.Rename(file.Name(), path)
		if moved == nil {
			return err
		}
		err = moved
	}
	_ = os.Remove(file.Name()) // the first error states more
	return err
}

// forTerminal prints text that has words of objects, such as their annotations and conditions: anyone who may write those must not
// control the terminal. Runes that could move its cursor, change its modes or reorder its text become question marks.
func forTerminal(print func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		var text bytes.Buffer
		if err := print(&text); err != nil {
			return err
		}
		_, err := w.Write(bytes.Map(visible, text.Bytes()))
		return err
	}
}

// columnsOf is how many columns the terminal has that is written to; 0 if it is none. A very narrow one counts as wider: words do not fold.
func columnsOf(out io.Writer) int {
	const narrowest = 40
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(file.Fd()) {
		return 0
	}
	width, _, err := term.GetSize(file.Fd())
	if err != nil {
		return 0
	}
	return max(width, narrowest)
}

// visibleLine is text without what could control a terminal or begin a line.
func visibleLine(text string) string {
	return strings.ReplaceAll(strings.Map(visible, text), "\n", "?")
}

// visible is the rune itself, or a question mark in place of one that is not shown.
func visible(r rune) rune {
	if r != '\n' && (r == utf8.RuneError || !unicode.IsGraphic(r)) {
		return '?'
	}
	return r
}

// writeAs writes a report in a format of bindOutput. What has no wider form is the same with table and wide.
func writeAs(out io.Writer, format string, r printer) error {
	switch wide, ok := r.(wideReport); {
	case format == "json":
		return r.JSON(out)
	case format == "yaml":
		return asYAML(r.JSON)(out)
	case format == "wide" && ok:
		return forTerminal(wide.Wide)(out)
	}
	return forTerminal(r.Text)(out)
}
