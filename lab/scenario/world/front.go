package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIFault is what becomes of the controller's requests to the API server. The zero value lets all pass.
type APIFault struct {
	// Writes is the HTTP status of each request that writes, All that of each request. 0 lets them pass.
	Writes, All int
	// Delay is how long each request waits before it is passed on.
	Delay time.Duration
	// Away closes each connection without an answer.
	Away bool
}

// status is the answer to a request; 0 if it passes.
func (f APIFault) status(method string) int {
	if f.All == 0 && method != http.MethodGet && method != http.MethodHead {
		return f.Writes
	}
	return f.All
}

// Front stands between the controller and the API server, and injects faults.
type Front struct {
	proxy http.Handler

	mu    sync.Mutex
	fault APIFault
	// during is done when another fault is set: no watch outlasts that.
	during context.Context
	end    context.CancelFunc
}

// newFront returns a Front of an API server with certificates of these authorities.
func newFront(server *url.URL, authorities *x509.CertPool, log *slog.Logger) *Front {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	}
	f := &Front{proxy: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:     transport,
		FlushInterval: -1, // events of watches are passed on at once
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // the API server is away
	}}
	f.Set(APIFault{})
	return f
}

// Set sets what becomes of requests from now on. Those in progress are canceled.
func (f *Front) Set(fault APIFault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.end != nil {
		f.end()
	}
	f.fault = fault
	f.during, f.end = context.WithCancel(context.Background())
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	fault, during := f.fault, f.during
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(during, cancel)()
	select {
	case <-time.After(fault.Delay):
	case <-ctx.Done():
	}
	switch status := fault.status(r.Method); {
	case fault.Away, ctx.Err() != nil:
		panic(http.ErrAbortHandler) // the way to close a connection without an answer
	case status != 0:
		refuse(w, status)
	default:
		f.proxy.ServeHTTP(w, r.WithContext(ctx))
	}
}

// refuse answers in the form of the API server.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	reason := metav1.StatusReasonInternalError
	if status == http.StatusTooManyRequests {
		reason = metav1.StatusReasonTooManyRequests
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // a caller that is gone is no matter
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: reason,
		Message: "an injected fault", Code: int32(status),
	})
}

// FrontAPIServer has the controller reach the API server through a Front, from its next start on.
func (c *Cluster) FrontAPIServer() (*Front, error) {
	server, err := url.Parse(c.Endpoint())
	if err != nil {
		return nil, err
	}
	certificate, err := c.controlPlane.ServingCertificate()
	if err != nil {
		return nil, fmt.Errorf("certificate of the front of the API server: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(c.controlPlane.CA())
	front := newFront(server, authorities, c.world.log)
	serving := &http.Server{
		Handler: front, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ErrorLog:  slog.NewLogLogger(c.world.log.Handler(), slog.LevelDebug),
	}
	c.world.Background(func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { _ = serving.Close() })
		if err := serving.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the front of the API server: %w", err)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.front = "https://" + listener.Addr().String()
	return front, nil
}

// controllerEndpoint is where the controller reaches the API server.
func (c *Cluster) controllerEndpoint() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.front != "" {
		return c.front
	}
	return c.Endpoint()
}
