package main

import (
	"bytes"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// forTerminal prints text that has words of objects, such as their annotations and conditions: whoever may write those must not
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
