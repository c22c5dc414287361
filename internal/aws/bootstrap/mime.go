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
	"strings"
)

const (
	boundary    = "//"
	shellScript = `text/x-shellscript; charset="us-ascii"`
	nodeConfig  = "application/node.eks.aws"
)

// message is a multipart/mixed MIME message, as cloud-init and nodeadm read it.
type message struct {
	text   bytes.Buffer
	writer *multipart.Writer
}

func newMessage() (*message, error) {
	m := &message{}
	m.text.WriteString("MIME-Version: 1.0\n")
	fmt.Fprintf(&m.text, "Content-Type: multipart/mixed; boundary=%q\n\n", boundary)
	m.writer = multipart.NewWriter(&m.text)
	return m, m.writer.SetBoundary(boundary)
}

func (m *message) add(contentType, body string) error {
	return m.addPart(textproto.MIMEHeader{"Content-Type": {contentType}}, strings.NewReader(body))
}

func (m *message) addPart(header textproto.MIMEHeader, body io.Reader) error {
	part, err := m.writer.CreatePart(header)
	if err != nil {
		return err
	}
	_, err = io.Copy(part, body)
	return err
}

// finish returns the message with Unix line ends.
func (m *message) finish() (string, error) {
	if err := m.writer.Close(); err != nil {
		return "", err
	}
	return strings.ReplaceAll(m.text.String(), "\r", ""), nil
}

// copied and contentTypeOnly say what becomes of a part of the user's: one keeps its headers, the other only the one
// that names its type, and so undoes what another header says of its body.
func copied(p *multipart.Part) (textproto.MIMEHeader, io.Reader) { return p.Header, p }

func contentTypeOnly(p *multipart.Part) (textproto.MIMEHeader, io.Reader) {
	header := textproto.MIMEHeader{"Content-Type": p.Header.Values("Content-Type")}
	if strings.EqualFold(p.Header.Get("Content-Transfer-Encoding"), "base64") {
		return header, base64.NewDecoder(base64.StdEncoding, p)
	}
	return header, p
}

// addUserParts adds the parts of a MIME message, or any other text as one part of the given type. Empty
// text adds nothing.
func (m *message) addUserParts(text, otherwise string, pass func(*multipart.Part) (textproto.MIMEHeader, io.Reader)) error {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	if !strings.HasPrefix(text, "MIME-Version:") && !strings.HasPrefix(text, "Content-Type:") {
		return m.add(otherwise, text)
	}
	reader, err := readMultipart(text)
	if err != nil {
		return fmt.Errorf("spec.userData: %w", err)
	}
	for {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("spec.userData: read MIME part: %w", err)
		}
		if err := m.addPart(pass(part)); err != nil {
			return fmt.Errorf("spec.userData: copy MIME part: %w", err)
		}
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
