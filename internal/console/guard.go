package console

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// policy lets the page load its own script and style and call its own API, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guarded answers only requests of this machine's browser for the page, or of the page itself. There is no login: what keeps
// others out is that the server listens on the loopback interface. A page of another site must not reach it either, neither by a
// request of its own nor by a name that it makes resolve to 127.0.0.1 (DNS rebinding).
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store") // a new version of the program has another page at the same address
		if why := refusal(r); why != "" {
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
		next.ServeHTTP(w, r)
	})
}

// methods are those of a path. What-if takes a manifest, which is too large for an address; it writes nothing either.
func methods(path string) []string {
	if path == whatIfPath {
		return []string{http.MethodPost}
	}
	return []string{http.MethodGet, http.MethodHead}
}

// refusal is why a request is not answered; empty if it is.
func refusal(r *http.Request) string {
	if !loopback(r.Host) {
		return "the console answers at localhost and 127.0.0.1 only, not at " + r.Host
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if from, err := url.Parse(origin); err != nil || from.Scheme != "http" || from.Host != r.Host {
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
