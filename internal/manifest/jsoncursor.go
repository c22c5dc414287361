package manifest

import (
	"bytes"
	"errors"
)

// cursor walks over JSON text, once and without allocations. It accepts what RFC 8259 allows, like encoding/json: a
// value that it has passed is well-formed. The walk is a recursive descent; it costs O(bytes).
type cursor struct {
	text  []byte
	at    int
	depth int
}

// maxNesting limits how deep values may be nested, as in encoding/json.
const maxNesting = 10_000

// errIncomplete is returned where the text finishes before the value does: more text may complete it.
var errIncomplete = errors.New("unexpected end of JSON")

// errMalformed is returned for text that no continuation makes valid. The cursor is at the wrong byte.
var errMalformed = errors.New("not JSON")

// errTooDeep is returned for values nested deeper than maxNesting.
var errTooDeep = errors.New("values are nested too deep")

// space skips white space.
func (c *cursor) space() {
	for c.at < len(c.text) {
		if b := c.text[c.at]; b != ' ' && b != '\n' && b != '\t' && b != '\r' {
			return
		}
		c.at++
	}
}

// next skips white space and returns the byte after it, without passing it.
func (c *cursor) next() (byte, error) {
	if c.space(); c.at == len(c.text) {
		return 0, errIncomplete
	}
	return c.text[c.at], nil
}

// take skips white space and passes one byte, which must be the given one.
func (c *cursor) take(want byte) error {
	b, err := c.next()
	if err != nil {
		return err
	}
	if b != want {
		return errMalformed
	}
	c.at++
	return nil
}

// value passes any value.
func (c *cursor) value() error {
	b, err := c.next()
	if err != nil {
		return err
	}
	switch b {
	case '{':
		return c.object(func([]byte) error { return c.value() })
	case '[':
		return c.array(c.value)
	case '"':
		_, err := c.str()
		return err
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	}
	return c.number()
}

// object passes an object. It calls member with the bytes of each key, between the quotes; member passes the value.
func (c *cursor) object(member func(key []byte) error) error {
	return c.list('{', '}', func() error {
		key, err := c.key()
		if err != nil {
			return err
		}
		return member(key)
	})
}

// key passes the key of a member, and the colon after it.
func (c *cursor) key() ([]byte, error) {
	if _, err := c.next(); err != nil {
		return nil, err
	}
	key, err := c.str()
	if err != nil {
		return nil, err
	}
	return key, c.take(':')
}

// array passes an array; item passes an item.
func (c *cursor) array(item func() error) error { return c.list('[', ']', item) }

// list passes entries that are separated by commas, between two brackets.
func (c *cursor) list(first, last byte, entry func() error) error {
	if c.depth++; c.depth > maxNesting {
		return errTooDeep
	}
	if err := c.take(first); err != nil {
		return err
	}
	b, err := c.next()
	if err != nil {
		return err
	}
	for more := b != last; more; more = b != last {
		if err := entry(); err != nil {
			return err
		}
		if b, err = c.next(); err != nil {
			return err
		}
		if b == ',' {
			c.at++
		} else if b != last {
			return errMalformed
		}
	}
	c.at++
	c.depth--
	return nil
}

// str passes a string, and returns the bytes between its quotes, with their escapes.
func (c *cursor) str() ([]byte, error) {
	if c.at == len(c.text) {
		return nil, errIncomplete
	}
	if c.text[c.at] != '"' {
		return nil, errMalformed
	}
	begin := c.at + 1
	for at := begin; at < len(c.text); at++ {
		switch b := c.text[at]; {
		case b == '"':
			c.at = at + 1
			return c.text[begin:at], nil
		case b == '\\':
			length, err := escape(c.text[at:])
			if err != nil {
				c.at = at
				return nil, err
			}
			at += length - 1
		case b < ' ':
			c.at = at
			return nil, errMalformed
		}
	}
	return nil, errIncomplete
}

// escape returns the length of the escape sequence at the beginning of the text.
func escape(text []byte) (int, error) {
	if len(text) < 2 {
		return 0, errIncomplete
	}
	if text[1] != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), text[1]) < 0 {
			return 0, errMalformed
		}
		return 2, nil
	}
	const length = len(`\u0000`)
	for _, b := range text[2:min(length, len(text))] {
		if (b < '0' || b > '9') && (b|0x20 < 'a' || b|0x20 > 'f') {
			return 0, errMalformed
		}
	}
	if len(text) < length {
		return 0, errIncomplete
	}
	return length, nil
}

// literal passes true, false or null.
func (c *cursor) literal(want string) error {
	rest := c.text[c.at:]
	switch {
	case bytes.HasPrefix(rest, []byte(want)):
		c.at += len(want)
		return nil
	case len(rest) < len(want) && want[:len(rest)] == string(rest):
		return errIncomplete
	}
	return errMalformed
}

// number passes a number. One at the end of the text may go on.
func (c *cursor) number() error {
	if c.text[c.at] == '-' {
		c.at++
	}
	if c.at < len(c.text) && c.text[c.at] == '0' {
		c.at++
	} else if err := c.digits(); err != nil {
		return err
	}
	if c.at < len(c.text) && c.text[c.at] == '.' {
		c.at++
		if err := c.digits(); err != nil {
			return err
		}
	}
	if c.at < len(c.text) && c.text[c.at]|0x20 == 'e' {
		if c.at++; c.at < len(c.text) && (c.text[c.at] == '+' || c.text[c.at] == '-') {
			c.at++
		}
		if err := c.digits(); err != nil {
			return err
		}
	}
	if c.at == len(c.text) {
		return errIncomplete
	}
	return nil
}

// digits passes at least one digit.
func (c *cursor) digits() error {
	begin := c.at
	for c.at < len(c.text) && '0' <= c.text[c.at] && c.text[c.at] <= '9' {
		c.at++
	}
	switch {
	case c.at == len(c.text):
		return errIncomplete
	case c.at == begin:
		return errMalformed
	}
	return nil
}
