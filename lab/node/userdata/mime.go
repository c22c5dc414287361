package userdata

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
)

// part is one document of the user data.
type part struct {
	mediaType string // empty if the user data is not multipart
	body      []byte
}

// parts splits MIME multipart user data; anything else is a single part without a type.
// Nested multiparts do not occur in what controllers write, and are an error.
func parts(raw []byte) ([]part, error) {
	msg, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return []part{{body: raw}}, nil //nolint:nilerr // no header block: plain text
	}
	mediaType, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(mediaType, "multipart/") {
		return []part{{body: raw}}, nil //nolint:nilerr // a header block, but not of MIME multipart
	}
	var out []part
	r := multipart.NewReader(msg.Body, params["boundary"])
	for {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read part %d of MIME user data: %w", len(out)+1, err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return nil, fmt.Errorf("read part %d of MIME user data: %w", len(out)+1, err)
		}
		partType, _, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil {
			partType = "text/plain"
		}
		if strings.HasPrefix(partType, "multipart/") {
			return nil, fmt.Errorf("part %d of MIME user data is itself %s", len(out)+1, partType)
		}
		if strings.EqualFold(p.Header.Get("Content-Transfer-Encoding"), "base64") {
			if body, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(body)), "")); err != nil {
				return nil, fmt.Errorf("part %d of MIME user data: %w", len(out)+1, err)
			}
		}
		if body, err = decompress(body); err != nil {
			return nil, err
		}
		out = append(out, part{mediaType: partType, body: body})
	}
}

// mediaTypes lists what the parts are, for messages about a part that was not found.
func mediaTypes(ps []part) string {
	types := make([]string, 0, len(ps))
	for _, p := range ps {
		types = append(types, cmp.Or(p.mediaType, "plain text"))
	}
	if len(types) == 0 {
		return "nothing"
	}
	return strings.Join(types, ", ")
}
