package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
)

// source opens files, and bounds their total size.
type source struct {
	stdin io.Reader
	// limit limits how many bytes may be read, total how many were read.
	limit, total int64
}

// chunk sets how much is read at a time: a binary file is noticed in the first.
const chunk = 1 << 20

// open opens a file, or stdin for "-". The window has its name for people, also when there is an error.
func (s *source) open(path string) (*window, error) {
	w := &window{source: s, name: path, in: s.stdin, kept: -1, line: 1}
	if path == "-" {
		w.name = "stdin"
	} else {
		file, err := os.Open(path)
		if err != nil {
			return w, err
		}
		w.in, w.file = file, file
	}
	if w.in == nil {
		return w, fmt.Errorf("%s: is closed", w.name)
	}
	return w, nil
}

// close closes the file. Nothing was written, so an error loses nothing.
func (w *window) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
}

// window is the part of a file that is in memory: what has not been passed yet, and what is still to be kept. Its
// memory is at most twice that part, and a chunk.
type window struct {
	*source
	name string
	in   io.Reader
	file io.Closer // nil for stdin
	// text is the part in memory, from which at has been passed and checked is valid UTF-8.
	text        []byte
	at, checked int
	// kept states where the document begins that must stay in memory as a whole; -1 if there is none.
	kept int
	// line is the number of the line, from 1, that has the byte at counted.
	line, counted int
	eof           bool
}

// more reads another chunk. It moves the text: only kept and at stay valid. At the end of the file it sets eof.
func (w *window) more() error {
	passed := w.at
	if w.kept >= 0 {
		passed = w.kept
	}
	w.lineAt(max(passed, w.counted))
	w.counted -= passed
	w.text = slices.Delete(w.text, 0, passed)
	w.at, w.checked, w.kept = w.at-passed, max(0, w.checked-passed), max(-1, w.kept-passed)
	begin := len(w.text)
	size := max(chunk, begin) // what is in memory is scanned again, so it doubles
	w.text = slices.Grow(w.text, size)
	n, err := io.ReadFull(w.in, w.text[begin:begin+size])
	w.text, w.total = w.text[:begin+n], w.total+int64(n)
	w.eof = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case err != nil && !w.eof:
		return fmt.Errorf("%s: %w", w.name, err)
	case w.total > w.limit:
		return fmt.Errorf("%s: with it the inputs exceed %s: pass fewer files with -f, or raise --max-input",
			w.name, resource.NewQuantity(w.limit, resource.BinarySI))
	case !w.isText():
		return fmt.Errorf("%s: is not text in UTF-8, so neither YAML nor JSON", w.name)
	}
	return nil
}

// isText reports whether what was read last is UTF-8. A character at the end may be incomplete before the end of the
// file.
func (w *window) isText() bool {
	end := len(w.text)
	for i := end - 1; !w.eof && i >= max(w.checked, end-utf8.UTFMax); i-- {
		if utf8.RuneStart(w.text[i]) {
			if !utf8.FullRune(w.text[i:]) {
				end = i
			}
			break
		}
	}
	fresh := w.text[w.checked:end]
	w.checked = end
	return utf8.Valid(fresh) && bytes.IndexByte(fresh, 0) < 0
}

// readError is an error of reading the file, not of its text.
type readError struct{ error }

// scan passes what pass passes, and reads as much as it needs: after more text it calls pass again, from the same
// place.
func (w *window) scan(pass func(*cursor) error) error {
	for {
		c := cursor{text: w.text, at: w.at}
		err := pass(&c)
		if !errors.Is(err, errIncomplete) || w.eof {
			w.at = c.at
			return err
		}
		if err := w.more(); err != nil {
			return readError{err}
		}
	}
}

// all reads the rest of the file, and returns what has not been passed, with the number of its first line.
func (w *window) all() (rest []byte, line int, err error) {
	for !w.eof {
		if err := w.more(); err != nil {
			return nil, 0, err
		}
	}
	return w.text[w.at:], w.lineAt(w.at), nil
}

// lineAt returns the number of the line that has the byte, at or after that of the last call.
func (w *window) lineAt(at int) int {
	w.line += bytes.Count(w.text[w.counted:at], []byte("\n"))
	w.counted = at
	return w.line
}
