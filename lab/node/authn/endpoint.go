package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"time"
)

// Endpoint is the TLS listener of an authenticator on the loopback. It exists before the
// authenticator does: an API server gets the URL when it starts, and the authenticator reads
// ConfigMaps from that API server. Calls that come too early wait.
type Endpoint struct {
	listener    net.Listener
	certificate []byte
}

// Listen opens an endpoint on a free port with a certificate of its own.
func Listen() (*Endpoint, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("authenticator certificate: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "aws-iam-authenticator"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("authenticator certificate: %w", err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	if err != nil {
		return nil, fmt.Errorf("authenticator listener: %w", err)
	}
	return &Endpoint{listener: listener, certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// URL is where the webhook is served.
func (e *Endpoint) URL() string { return "https://" + e.listener.Addr().String() + "/authenticate" }

// CA is the PEM certificate by which clients know the endpoint.
func (e *Endpoint) CA() []byte { return e.certificate }

// Close stops an endpoint that is not served.
func (e *Endpoint) Close() error { return e.listener.Close() }

// Serve answers with h until ctx is done, and closes the endpoint.
func (e *Endpoint) Serve(ctx context.Context, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve authenticator: %w", err)
	}
	return nil
}
