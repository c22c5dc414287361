package instancexml

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"
)

// window is the longest tag or text in bytes that is read: EC2's longest text, a token for the next page, has less than 2 KB.
const window = 64 << 10

// errUnusual is any XML that is not as EC2 writes it: comments, sections of character data, attributes, names with a prefix, what is longer
// than the window, and what is not well formed.
var errUnusual = errors.New("unusual XML")

// scanner reads elements and texts. It accepts the part of XML that EC2 writes. It is correct to refuse a document: anyone who reads it
// then queries the SDK. So it refuses whatever it does not know, and never guesses.
type scanner struct {
	in *bufio.Reader
	// names are the names of the open elements, one after another; starts is where each begins.
	names  []byte
	starts []int
	// closed is true after an element that is its own end, such as <reason/>.
	closed bool
	text   []byte
}

func newScanner(in io.Reader) *scanner { return &scanner{in: bufio.NewReaderSize(in, window)} }

// declaration states what precedes the root element, before a line break if there is one.
const declaration = `<?xml version="1.0" encoding="UTF-8"?>`

// root enters the root element, and returns its name.
func (s *scanner) root() ([]byte, error) {
	if start, err := s.in.Peek(len(declaration)); err == nil && string(start) == declaration {
		_, _ = s.in.Discard(len(declaration)) // which were peeked
	}
	before, err := s.until('<')
	if err != nil {
		return nil, err
	}
	if len(bytes.Trim(before, " \t\n")) > 0 {
		return nil, errUnusual
	}
	tag, err := s.until('>')
	if err != nil {
		return nil, err
	}
	if name, rest, found := bytes.Cut(tag, []byte(` xmlns="`)); found {
		value, after, _ := bytes.Cut(rest, []byte{'"'})
		if nameLength(name) != len(name) || len(value)+1 != len(rest) || len(after) > 0 || !isPlain(value) || bytes.IndexByte(value, '<') >= 0 {
			return nil, errUnusual
		}
		tag = name
	}
	return s.open(tag)
}

// next goes to the next element in the one that is open, and returns its name, which is valid until the next call. It returns false at the
// end of the open element. What is outside of elements is skipped.
func (s *scanner) next() (name []byte, found bool, err error) {
	if s.closed {
		return nil, false, s.leave()
	}
	text, err := s.until('<')
	if err != nil {
		return nil, false, err
	}
	if s.text, err = appendText(s.text[:0], text); err != nil {
		return nil, false, err
	}
	tag, err := s.until('>')
	if err != nil {
		return nil, false, err
	}
	if len(tag) > 0 && tag[0] == '/' {
		return nil, false, s.end(tag[1:])
	}
	name, err = s.open(tag)
	return name, err == nil, err
}

// value returns the text of the open element, which must have no others in it, and leaves it. It is valid until the next call.
func (s *scanner) value() ([]byte, error) {
	if s.closed {
		return nil, s.leave()
	}
	_, nested, err := s.next()
	if nested {
		err = errUnusual
	}
	return s.text, err
}

// skip leaves the open element, whatever is in it.
func (s *scanner) skip() error {
	for depth := len(s.starts); len(s.starts) >= depth; {
		if _, _, err := s.next(); err != nil {
			return err
		}
	}
	return nil
}

// until reads up to a byte, and returns what is before it.
func (s *scanner) until(end byte) ([]byte, error) {
	read, err := s.in.ReadSlice(end)
	switch {
	case err == nil:
		return read[:len(read)-1], nil
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, errUnusual
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	}
	return nil, err
}

// open enters the element with this tag.
func (s *scanner) open(tag []byte) ([]byte, error) {
	length := nameLength(tag)
	rest := bytes.TrimLeft(tag[length:], " \t\n")
	s.closed = string(rest) == "/"
	if length == 0 || len(rest) > 0 && !s.closed {
		return nil, errUnusual
	}
	s.starts = append(s.starts, len(s.names))
	s.names = append(s.names, tag[:length]...)
	return s.names[len(s.names)-length:], nil
}

// end leaves the open element, which this tag closes.
func (s *scanner) end(tag []byte) error {
	if len(s.starts) == 0 || string(bytes.TrimRight(tag, " \t\n")) != string(s.names[s.starts[len(s.starts)-1]:]) {
		return errUnusual
	}
	return s.leave()
}

func (s *scanner) leave() error {
	last := len(s.starts) - 1
	s.names, s.starts, s.closed = s.names[:s.starts[last]], s.starts[:last], false
	return nil
}

// nameLength returns how many bytes at the start are a name without a prefix.
func nameLength(tag []byte) int {
	for i, c := range tag {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '-' && c != '.') {
			return i
		}
	}
	return len(tag)
}

// isPlain reports whether a text stands for itself: printable ASCII, tabs and line breaks, no references, and nothing that XML does not
// allow.
func isPlain(text []byte) bool {
	for _, c := range text {
		if c < ' ' && c != '\t' && c != '\n' || c == '&' || c == '>' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// appendText appends the text that is written as raw, which has no "<".
func appendText(to, raw []byte) ([]byte, error) {
	if isPlain(raw) {
		return append(to, raw...), nil
	}
	if bytes.Contains(raw, []byte("]]>")) {
		return to, errUnusual
	}
	for len(raw) > 0 {
		if raw[0] == '&' {
			end := bytes.IndexByte(raw, ';')
			if end < 0 {
				return to, errUnusual
			}
			char, err := reference(string(raw[1:end]))
			if err != nil {
				return to, err
			}
			to, raw = utf8.AppendRune(to, char), raw[end+1:]
			continue
		}
		char, size := utf8.DecodeRune(raw)
		if char == utf8.RuneError && size == 1 || char == '\r' || !allowed(char) { // a carriage return stands for a line break
			return to, errUnusual
		}
		to, raw = append(to, raw[:size]...), raw[size:]
	}
	return to, nil
}

// reference is the character that is written as &name;.
func reference(name string) (rune, error) {
	switch name {
	case "amp":
		return '&', nil
	case "lt":
		return '<', nil
	case "gt":
		return '>', nil
	case "quot":
		return '"', nil
	case "apos":
		return '\'', nil
	}
	if len(name) < 2 || name[0] != '#' {
		return 0, errUnusual
	}
	digits, base := name[1:], 10
	if digits[0] == 'x' {
		digits, base = digits[1:], 16
	}
	char, err := strconv.ParseUint(digits, base, 21)
	if err != nil || !allowed(rune(char)) {
		return 0, errUnusual
	}
	return rune(char), nil
}

// allowed reports whether XML allows a character.
func allowed(char rune) bool {
	return char == '\t' || char == '\n' || char == '\r' || char >= ' ' && char <= 0xD7FF || char >= 0xE000 && char <= 0xFFFD ||
		char >= 0x10000 && char <= utf8.MaxRune
}
