package console

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// policy lets the page load its own script and style and call its own API, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// reach is from where a console is reached.
type reach struct {
	scheme string
	// anyHost lets it be reached by any name. Without a login, that would let a site in that makes a name of its own resolve to
	// 127.0.0.1 (DNS rebinding); with one, such a site has no token.
	anyHost bool
	// body states how long a request may take to send its body; zero means that it may take forever.
	body time.Duration
}

// bodyTimeout is far longer than a manifest takes, and bounds how many connections wait for the rest of one.
const bodyTimeout = 20 * time.Second

var (
	// fromHere is without a login: what keeps others out is that the server listens on the loopback interface.
	fromHere = reach{scheme: "http", body: bodyTimeout}
	// fromAnywhere is with a login.
	fromAnywhere = reach{scheme: "https", anyHost: true, body: bodyTimeout}
)

// guarded answers only requests of a browser for the page, or of the page itself: none of a page of another site.
func (from reach) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store") // a new version of the program has another page at the same address
		if why := from.refusal(r); why != "" {
			writeProblem(w, &Problem{Status: http.StatusForbidden, Code: CodeCrossSite, Message: why})
			return
		}
		if allowed := methods(r.URL.Path); !slices.Contains(allowed, r.Method) {
			h.Set("Allow", strings.Join(allowed, ", "))
			writeProblem(w, &Problem{
				Status: http.StatusMethodNotAllowed, Code: CodeInvalid, Message: "the console only reads: use " + allowed[0],
			})
			return
		}
		from.boundBody(w, r)
		next.ServeHTTP(w, r)
	})
}

// boundBody stops the reading of a body that does not come in time. Once it is read, the request may take as long as it does: a
// deadline that stays would end the answer, too.
func (from reach) boundBody(w http.ResponseWriter, r *http.Request) {
	if from.body == 0 || r.Method != http.MethodPost {
		return
	}
	connection := http.NewResponseController(w)
	if connection.SetReadDeadline(time.Now().Add(from.body)) == nil {
		r.Body = &boundedBody{r.Body, connection}
	}
}

// boundedBody is a body with a deadline until its end.
type boundedBody struct {
	io.ReadCloser
	connection *http.ResponseController
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.connection.SetReadDeadline(time.Time{})
	}
	return n, err
}

// methods returns those of a path. What-if takes a manifest, which is too large for an address; it writes nothing either.
func methods(path string) []string {
	if path == whatIfPath || strings.HasPrefix(path, clustersPath+"/") && strings.HasSuffix(path, strings.TrimPrefix(whatIfPath, apiRoot)) {
		return []string{http.MethodPost}
	}
	return []string{http.MethodGet, http.MethodHead}
}

// refusal returns why a request is not answered; empty if it is.
func (from reach) refusal(r *http.Request) string {
	if !from.anyHost && !loopback(r.Host) {
		return "the console answers at localhost and 127.0.0.1 only, not at " + r.Host
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if page, err := url.Parse(origin); err != nil || page.Scheme != from.scheme || page.Host != r.Host {
			return "the console answers its own page only, not one of " + origin
		}
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
		return ""
	default:
		// A link to the console may be anywhere; what it shows is the console's own page.
		link := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
		if link && !strings.HasPrefix(r.URL.Path, apiRoot) {
			return ""
		}
		return "the console answers its own page only; this request is " + site
	}
}

// loopback reports whether a Host header names this machine. The port does not matter: it may be forwarded.
func loopback(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.Trim(name, "[]")
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()
}
