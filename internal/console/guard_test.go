package console

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A browser, or somebody else, that sends half of a what-if does not keep a connection open forever.
func TestUnfinishedBodiesAreClosed(t *testing.T) {
	from := reach{scheme: "http", body: 50 * time.Millisecond}
	ended := make(chan error, 1)
	server := httptest.NewServer(from.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		ended <- err
		w.WriteHeader(http.StatusBadRequest)
	})))
	defer server.Close()
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		whatIfPath); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatalf("the connection is still open, or ended without an answer: %v", err)
	}
	defer answer.Body.Close()
	if err := <-ended; err == nil || answer.StatusCode != http.StatusBadRequest {
		t.Errorf("the body is read whole (%v), status %d", err, answer.StatusCode)
	}
}

// A body that came in time leaves the answer all the time that it takes.
func TestAnswersMayTakeLongerThanBodies(t *testing.T) {
	from := reach{scheme: "http", body: 50 * time.Millisecond}
	server := httptest.NewServer(from.guarded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusGatewayTimeout)
		case <-time.After(200 * time.Millisecond):
			w.WriteHeader(http.StatusOK)
		}
	})))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+whatIfPath, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("status %d", answer.StatusCode)
	}
}
