package bootstrap

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/textproto"
	"regexp"
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

// part is a part of a message, its body with Unix line breaks.
type part struct {
	header textproto.MIMEHeader
	body   string
}

func (m *multipartMessage) add(contentType, body string) {
	m.parts = append(m.parts, part{textproto.MIMEHeader{"Content-Type": {contentType}}, unix(body)})
}

// unix removes carriage returns from text.
func unix(text string) string { return strings.ReplaceAll(text, "\r", "") }

// finish returns the message with Unix line breaks.
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
	if !mimeHeader.MatchString(text) {
		if likePart(text) {
			return fmt.Errorf("spec.userData: begins like MIME, with %q, and lacks the header of a message; "+
				`begin with MIME-Version: 1.0 and Content-Type: multipart/mixed; boundary="BOUNDARY"`, firstLine(text))
		}
		m.add(otherwise, text)
		return nil
	}
	reader, err := readMultipart(text)
	if err != nil {
		return fmt.Errorf("spec.userData: %w", err)
	}
	for n := 1; ; n++ {
		theirs, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("spec.userData: read MIME part %d: %w; a part begins with a header such as Content-Type: %s, and an empty line",
				n, err, shellScript)
		}
		header, body := pass(theirs)
		text, err := io.ReadAll(body)
		if err != nil {
			return fmt.Errorf("spec.userData: copy MIME part %d: %w", n, err)
		}
		if header, err = typed(header, string(text), n); err != nil {
			return err
		}
		m.parts = append(m.parts, part{header, unix(string(text))})
	}
}

var (
	// mimeHeader matches the header with which a MIME message begins; names of headers are of any case.
	mimeHeader = regexp.MustCompile(`(?i)^(mime-version|content-type)[ \t]*:`)
	// anyHeader matches a header line, messageHeader one of a message after others.
	anyHeader     = regexp.MustCompile(`(?i)^[a-z-]+:`)
	messageHeader = regexp.MustCompile(`(?i)^([a-z-]+:[^\n]*\n)+(mime-version|content-type)[ \t]*:`)
)

// likePart reports whether text is a message without its header, or with other headers first. As a script it would do nothing.
func likePart(text string) bool {
	first, rest, _ := strings.Cut(unix(text), "\n")
	first = strings.TrimSpace(first)
	if !strings.HasPrefix(first, "--") || strings.Trim(first, "-") == "" || strings.ContainsAny(first, " \t") {
		return messageHeader.MatchString(text)
	}
	return anyHeader.MatchString(rest) || strings.HasSuffix(strings.TrimSpace(rest), "\n"+first+"--")
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimSpace(line[:min(len(line), 60)])
}

// typed returns the header of the n-th part of the user's message with a content type. cloud-init ignores a part without one, unless the
// text begins with what it knows.
func typed(header textproto.MIMEHeader, text string, n int) (textproto.MIMEHeader, error) {
	if header.Get("Content-Type") != "" {
		return header, nil
	}
	for begin, contentType := range map[string]string{
		"#!": shellScript, "#cloud-config": "text/cloud-config", "#cloud-boothook": "text/cloud-boothook", "#include": "text/x-include-url",
	} {
		if strings.HasPrefix(text, begin) {
			out := textproto.MIMEHeader{}
			maps.Copy(out, header)
			out.Set("Content-Type", contentType)
			return out, nil
		}
	}
	return nil, fmt.Errorf("spec.userData: MIME part %d, which begins with %q, has no Content-Type, so nothing on the node would use it; "+
		"begin the part with Content-Type: %s, and an empty line", n, firstLine(text), shellScript)
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
