package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxMessage limits how long a message may be, in bytes. The manifests of a plan are its longest part: 16 MiB are some 30,000 of them.
	maxMessage = 16 << 20
	// maxMessageDepth limits how deep values of a message may be nested. The arguments of a tool nest four deep. It is below what the
	// decoders of the SDK and of encoding/json accept, which end the session.
	maxMessageDepth = 100
	// searchedForID sets how much of a refused message is searched for its ID, in bytes: clients write it before the arguments.
	searchedForID = 64 << 10
)

// lineTransport has one JSON-RPC message per line. A message that cannot be read is answered with an error, and the session goes on: the
// SDK's own transport stops it.
type lineTransport struct {
	in  io.Reader
	out io.Writer
}

// Connect implements mcp.Transport.
func (t *lineTransport) Connect(context.Context) (sdk.Connection, error) {
	c := &lineConnection{out: t.out, lines: make(chan readLine), closed: make(chan struct{})}
	go c.read(t.in)
	return c, nil
}

// lineConnection implements mcp.Connection.
type lineConnection struct {
	lines  chan readLine
	closed chan struct{}
	once   sync.Once

	writing sync.Mutex
	out     io.Writer
}

// readLine is a line of the input, or why there is none.
type readLine struct {
	text []byte
	err  error
}

// errTooLong means that the line is longer than maxMessage. Its text is the beginning.
var errTooLong = fmt.Errorf("the message is longer than %d MiB", maxMessage>>20)

// read reads lines until the input finishes. Nothing can interrupt that, so it has a goroutine of its own.
func (c *lineConnection) read(in io.Reader) {
	for reader := bufio.NewReaderSize(in, 1<<16); ; {
		text, err := nextLine(reader, maxMessage)
		if len(bytes.TrimSpace(text)) == 0 && err == nil {
			continue
		}
		select {
		case c.lines <- readLine{text, err}:
		case <-c.closed:
			return
		}
		if err != nil && !errors.Is(err, errTooLong) {
			return
		}
	}
}

// nextLine reads a line. Of one that is longer than most, it keeps the beginning, and passes the rest. The last line needs no end.
func nextLine(from *bufio.Reader, most int) (line []byte, _ error) {
	tooLong := false
	for {
		part, err := from.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > most; tooLong {
			line = append(line[:min(len(line), searchedForID):min(len(line), searchedForID)], part[:min(len(part), searchedForID)]...)
			line = line[:min(len(line), searchedForID)]
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0):
			return nil, err
		case tooLong:
			return line, errTooLong
		}
		return line, nil
	}
}

// Read implements mcp.Connection.
func (c *lineConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		var line readLine
		select {
		case line = <-c.lines:
		case <-c.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if line.err != nil && !errors.Is(line.err, errTooLong) {
			return nil, line.err
		}
		message, refusal := decodeMessage(line)
		if refusal == nil {
			return message, nil
		}
		if err := c.refuse(idIn(line.text), refusal); err != nil {
			return nil, err
		}
	}
}

// decodeMessage decodes a line.
func decodeMessage(line readLine) (jsonrpc.Message, *jsonrpc.Error) {
	switch text := bytes.TrimSpace(line.text); {
	case line.err != nil:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: line.err.Error()}
	case nestsDeeper(text, maxMessageDepth):
		return nil, &jsonrpc.Error{
			Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("values of the message are nested more than %d deep", maxMessageDepth),
		}
	case !json.Valid(text):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the line is not JSON; each line is one message"}
	case text[0] != '{':
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the line is not a JSON object; there are no batches"}
	}
	message, err := jsonrpc.DecodeMessage(line.text)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
	}
	return message, nil
}

// nestsDeeper reports whether objects and arrays of a JSON text nest deeper than most. It costs one scan.
func nestsDeeper(text []byte, most int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{' || b == '[':
			if depth++; depth > most {
				return true
			}
		case b == '}' || b == ']':
			depth--
		}
	}
	return false
}

// idIn finds the ID of a message that is refused, in its first bytes, so that the client knows which call fails; null if there is none.
func idIn(text []byte) json.RawMessage {
	null := json.RawMessage("null")
	tokens := json.NewDecoder(bytes.NewReader(text[:min(len(text), searchedForID)])) // by token, it has no recursion
	if first, err := tokens.Token(); err != nil || first != json.Delim('{') {
		return null
	}
	for depth, key := 1, true; ; {
		token, err := tokens.Token()
		if err != nil {
			return null
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			continue
		case json.Delim('}'), json.Delim(']'):
			if depth--; depth == 0 {
				return null
			}
			key = depth == 1
			continue
		}
		if depth > 1 {
			continue
		}
		if key && token == "id" {
			return scalar(tokens)
		}
		key = !key
	}
}

// scalar is the next value if it can be an ID: a string or a number.
func scalar(tokens *json.Decoder) json.RawMessage {
	tokens.UseNumber()
	value, _ := tokens.Token() // nil after an error
	switch value.(type) {
	case string, json.Number:
		if text, err := json.Marshal(value); err == nil {
			return text
		}
	}
	return json.RawMessage("null")
}

// refuse answers a message that was not read. The SDK's messages cannot have the ID null.
func (c *lineConnection) refuse(id json.RawMessage, why *jsonrpc.Error) error {
	answer, err := json.Marshal(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", id, why})
	if err != nil {
		return err
	}
	return c.writeLine(answer)
}

// Write implements mcp.Connection.
func (c *lineConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	text, err := jsonrpc.EncodeMessage(message)
	if err != nil {
		return err
	}
	return c.writeLine(text)
}

func (c *lineConnection) writeLine(text []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.out.Write(append(text, '\n'))
	return err
}

// Close implements mcp.Connection. The streams stay open: they are those of the process.
func (c *lineConnection) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// SessionID implements mcp.Connection.
func (c *lineConnection) SessionID() string { return "" }
