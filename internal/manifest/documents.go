package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strconv"

	"golang.org/x/sync/errgroup"
	sigsyaml "sigs.k8s.io/yaml"
)

// text is one document of a file, before it is parsed.
type text struct {
	// line is the line of the file where the document begins, from 1.
	line int
	// data is JSON once the document has been converted.
	data []byte
	err  error
}

// yamlTexts splits a stream of YAML at the lines that begin or end a document: YAML reserves --- and ... in the first
// column.
// The stream begins in the given line of its file.
func yamlTexts(data []byte, line int) (out []text) {
	current := text{line: line}
	begin := 0
	finish := func(end int) {
		if current.data = data[begin:end]; !blank(current.data) {
			empty := current.data[:len(current.data)-len(bytes.TrimLeft(current.data, " \t\r\n"))]
			current.line += bytes.Count(empty, []byte("\n"))
			current.data = current.data[bytes.LastIndexByte(empty, '\n')+1:] // lines are counted from here
			out = append(out, current)
		}
	}
	for at := 0; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		if rest, marks := marker(data[at:next]); marks {
			finish(at)
			begin, current = next-len(rest), text{line: line}
		}
		at = next
	}
	finish(len(data))
	return out
}

// marker reports whether a line separates documents, and returns the part that belongs to the next: --- {a: b}.
func marker(line []byte) (rest []byte, marks bool) {
	for _, mark := range [][]byte{[]byte("---"), []byte("...")} {
		if rest, found := bytes.CutPrefix(line, mark); found && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0) {
			return rest, true
		}
	}
	return nil, false
}

// blank reports whether a document has only comments and directives.
func blank(data []byte) bool {
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// convertBatch sets how many documents one goroutine converts: enough to make the cost of a goroutine negligible.
const convertBatch = 64

// convert converts YAML to JSON.
func convert(texts []text) {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for first := 0; first < len(texts); first += convertBatch {
		group.Go(func() error {
			for i := first; i < min(first+convertBatch, len(texts)); i++ {
				// Strict: two objects without --- between them have duplicate keys.
				data, err := sigsyaml.YAMLToJSONStrict(texts[i].data)
				texts[i].data, texts[i].err = data, inFile(err, texts[i].line)
			}
			return nil
		})
	}
	_ = group.Wait() // each text has its error
}

var lineNumber = regexp.MustCompile(`\bline (\d+)`)

// inFile converts line numbers in an error from the document's to the file's, in which the document begins at line
// first.
func inFile(err error, first int) error {
	if err == nil || first == 1 {
		return err
	}
	return errors.New(lineNumber.ReplaceAllStringFunc(err.Error(), func(found string) string {
		n, err := strconv.Atoi(found[len("line "):])
		if err != nil {
			return found
		}
		return fmt.Sprintf("line %d", n+first-1)
	}))
}
