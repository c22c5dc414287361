package bootstrap

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"slices"
	"strings"
)

const (
	// boundary separates the parts, unless a part has it at the start of a line.
	boundary    = "//"
	shellScript = `text/x-shellscript; charset="us-ascii"`
	nodeConfig  = "application/node.eks.aws"
)

// multipartMessage is a multipart/mixed MIME message, as cloud-init and nodeadm read it.
type multipartMessage struct{ parts []part }

// part is a part of a message, its body with Unix line ends.
type part struct {
	header textproto.MIMEHeader
	body   string
}

func (m *multipartMessage) add(contentType, body string) {
	m.parts = append(m.parts, part{textproto.MIMEHeader{"Content-Type": {contentType}}, unix(body)})
}

// unix removes carriage returns from text.
func unix(text string) string { return strings.ReplaceAll(text, "\r", "") }

// finish returns the message with Unix line ends.
func (m *multipartMessage) finish() (string, error) {
	var text bytes.Buffer
	writer := multipart.NewWriter(&text)
	between := m.boundary()
	if err := writer.SetBoundary(between); err != nil {
		return "", err
	}
	for _, p := range m.parts {
		w, err := writer.CreatePart(p.header)
		if err != nil {
			return "", err
		}
		if _, err := io.WriteString(w, p.body); err != nil {
			return "", err
		}
	}
	if err := writer.Close(); err != nil {
		return "", err
	}
	return fmt.Sprintf("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=%q\n\n%s", between, unix(text.String())), nil
}

// boundary returns a boundary that no part has at the start of a line, where it would terminate the part. Readers
// compare only the start of a line with it.
func (m *multipartMessage) boundary() string {
	b := boundary
	for slices.ContainsFunc(m.parts, func(p part) bool { return strings.Contains("\n"+p.body, "\n--"+b) }) {
		b += "-"
	}
	return b
}

// allHeaders and contentTypeOnly copy a part of the user's: one keeps all headers, the other only the content type, and
// decodes a base64 body.
func allHeaders(p *multipart.Part) (textproto.MIMEHeader, io.Reader) { return p.Header, p }

func contentTypeOnly(p *multipart.Part) (textproto.MIMEHeader, io.Reader) {
	header := textproto.MIMEHeader{"Content-Type": p.Header.Values("Content-Type")}
	if strings.EqualFold(p.Header.Get("Content-Transfer-Encoding"), "base64") {
		return header, base64.NewDecoder(base64.StdEncoding, p)
	}
	return header, p
}

// addUserParts adds the parts of a MIME message, or any other text as one part of the given type. Empty text adds
// nothing.
func (m *multipartMessage) addUserParts(text, otherwise string, pass func(*multipart.Part) (textproto.MIMEHeader, io.Reader)) error {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	if !strings.HasPrefix(text, "MIME-Version:") && !strings.HasPrefix(text, "Content-Type:") {
		m.add(otherwise, text)
		return nil
	}
	reader, err := readMultipart(text)
	if err != nil {
		return fmt.Errorf("spec.userData: %w", err)
	}
	for {
		theirs, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("spec.userData: read MIME part: %w", err)
		}
		header, body := pass(theirs)
		text, err := io.ReadAll(body)
		if err != nil {
			return fmt.Errorf("spec.userData: copy MIME part: %w", err)
		}
		m.parts = append(m.parts, part{header, unix(string(text))})
	}
}

func readMultipart(text string) (*multipart.Reader, error) {
	parsed, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parse MIME: %w", err)
	}
	kind, params, err := mime.ParseMediaType(parsed.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("parse MIME content type: %w", err)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		return nil, fmt.Errorf("MIME content type %s is not multipart", kind)
	}
	return multipart.NewReader(parsed.Body, params["boundary"]), nil
}
