// Package docstest runs the commands that the documentation shows, as a reader would type them.
//
// Every line of every sh block of README.md, CONTRIBUTING.md and docs/*.md is run from the root of the repository:
//
//   - make lab: the lab is booted as make would, and is there for the lines that follow; at the end it is
//     interrupted, and must end well.
//   - make TARGET: make has to know how to make it; what it would run is run by CI itself.
//   - bin/dovetail-lab up FLAGS: another lab is booted, which is there for the lines that follow in this document.
//   - eval LINE: bash runs it, and the lines that follow see what it exports.
//   - anything else is run by bash and has to exit with 0.
//
// Console blocks are for clusters of the reader's own. The lab runs those of their commands that only read (see Reads).
package docstest

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Line is a command of a document.
type Line struct {
	Number int // in the document, from 1
	Text   string
}

// Lines are the commands of a Markdown document: the lines of its sh blocks, without comments and empty
// ones. A line that finishes in a backslash goes on in the next.
func Lines(document io.Reader) ([]Line, error) {
	const fence = "```"
	var out []Line
	language, begun := "", 0 // of the block that the line is in; begun is 0 outside of one
	goesOn := false
	scanner := bufio.NewScanner(document)
	for n := 1; scanner.Scan(); n++ {
		text := strings.TrimSpace(scanner.Text())
		name, isFence := strings.CutPrefix(text, fence)
		switch {
		case isFence && begun == 0:
			language, begun = name, n
			continue
		case isFence && goesOn:
			return nil, fmt.Errorf("line %d: the block ends in the middle of a command", n)
		case isFence:
			begun = 0
			continue
		case begun == 0, language != "sh", text == "", strings.HasPrefix(text, "#"):
			continue
		}
		command, more := strings.CutSuffix(text, `\`)
		if goesOn {
			out[len(out)-1].Text += command
		} else {
			out = append(out, Line{Number: n, Text: command})
		}
		goesOn = more
	}
	if begun != 0 {
		return nil, fmt.Errorf("line %d: the block does not end", begun)
	}
	return out, scanner.Err()
}

// placeholder is what a reader replaces in a command, such as NAME or $CLUSTER_NAME.
var placeholder = regexp.MustCompile(`\b[A-Z]{2,}\b[^:]|\b[A-Z]{2,}$|\$|--watch`)

// Reads are the commands of a document's console blocks that any cluster can answer: kubectl get, without anything that the reader
// has to replace.
func Reads(document io.Reader) ([]Line, error) {
	var out []Line
	scanner, goesOn := bufio.NewScanner(document), false
	for n := 1; scanner.Scan(); n++ {
		text := strings.TrimSpace(scanner.Text())
		command, begins := strings.CutPrefix(text, "$ ")
		if !begins && !goesOn {
			continue
		}
		command, more := strings.CutSuffix(command, `\`)
		if begins {
			out = append(out, Line{Number: n, Text: command})
		} else {
			out[len(out)-1].Text += command
		}
		goesOn = more
	}
	return slices.DeleteFunc(out, func(l Line) bool {
		return !strings.HasPrefix(l.Text, "kubectl get ") || placeholder.MatchString(l.Text)
	}), scanner.Err()
}
