package world

import (
	"bufio"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// A Front passes requests on, refuses those that its fault concerns, and stops the watches that run when a fault is set.
func TestFront(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, "passed")
		if r.URL.Query().Has("watch") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AddCert(server.Certificate())
	front := newFront(target, authorities, slog.New(slog.DiscardHandler))
	outside := httptest.NewServer(front)
	defer outside.Close()
	status := func(method string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, outside.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	watch, err := http.Get(outside.URL + "?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	events := bufio.NewReader(watch.Body)
	if line, err := events.ReadString('\n'); line != "passed\n" {
		t.Fatalf("the watch sends %q, %v", line, err)
	}
	for _, tc := range []struct {
		name        string
		fault       APIFault
		read, write int
	}{
		{"away", APIFault{Away: true}, 0, 0},
		{"no writes", APIFault{Writes: 500}, 200, 500},
		{"too many requests", APIFault{All: 429}, 429, 429},
		{"none", APIFault{}, 200, 200},
	} {
		front.Set(tc.fault)
		if read, write := status(http.MethodGet), status(http.MethodPatch); read != tc.read || write != tc.write {
			t.Errorf("%s: a read is answered with %d, a write with %d; want %d and %d", tc.name, read, write, tc.read, tc.write)
		}
	}
	if rest, err := io.ReadAll(events); err == nil || len(rest) > 0 {
		t.Errorf("the watch goes on after a fault was set: %q, %v", rest, err)
	}
}
