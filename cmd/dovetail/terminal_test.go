package main

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestTextOfObjectsDoesNotControlTheTerminal(t *testing.T) {
	var out strings.Builder
	err := forTerminal(func(w io.Writer) error {
		_, err := io.WriteString(w, "NAME   é 日本\n\x1b[2J\x1b]0;owned\a\r\u202egnp\u009b31m\x7f\xff\ufeff\n")
		return err
	})(&out)
	if want := "NAME   é 日本\n?[2J?]0;owned???gnp?31m???\n"; err != nil || out.String() != want {
		t.Errorf("%v: %q, want %q", err, out.String(), want)
	}
	broken := errors.New("broken")
	out.Reset()
	err = forTerminal(func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return broken
	})(&out)
	if !errors.Is(err, broken) || out.String() != "" {
		t.Errorf("of a result that fails: %v, %q", err, out.String())
	}
}
