package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/controlplane/pki"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestCertificates(t *testing.T) {
	ca := authority(t)
	server, err := ca.Server("localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.Client("jane", "developers", "admins")
	if err != nil {
		t.Fatal(err)
	}
	asServer := func(host string, at time.Time) x509.VerifyOptions {
		return x509.VerifyOptions{DNSName: host, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	}
	asClient := x509.VerifyOptions{CurrentTime: noon, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, tt := range []struct {
		name string
		ca   *pki.Authority
		pair pki.Pair
		opts x509.VerifyOptions
		ok   bool
	}{
		{"server by name", ca, server, asServer("localhost", noon), true},
		{"server by address", ca, server, asServer("127.0.0.1", noon), true},
		{"server by another name", ca, server, asServer("example.com", noon), false},
		{"server after two years", ca, server, asServer("localhost", noon.AddDate(2, 0, 0)), false},
		{"server for a clock that is late", ca, server, asServer("localhost", noon.Add(-time.Minute)), true},
		{"server as a client", ca, server, asClient, false},
		{"client", ca, client, asClient, true},
		{"client as a server", ca, client, asServer("", noon), false},
		{"client of another authority", authority(t), client, asClient, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.opts.Roots = x509.NewCertPool()
			tt.opts.Roots.AppendCertsFromPEM(tt.ca.CA())
			if _, err := parse(t, tt.pair).Verify(tt.opts); (err == nil) != tt.ok {
				t.Errorf("verified: %v, want ok=%v", err, tt.ok)
			}
		})
	}
	subject := parse(t, client).Subject
	slices.Sort(subject.Organization)
	if subject.CommonName != "jane" || !slices.Equal(subject.Organization, []string{"admins", "developers"}) {
		t.Errorf("the client is %v", subject)
	}
}

func TestServerNeedsAHost(t *testing.T) {
	if _, err := authority(t).Server(); err == nil {
		t.Error("issued a serving certificate for no host")
	}
}

func TestSigningKey(t *testing.T) {
	private, public, err := pki.SigningKey()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(private)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ = pem.Decode(public)
	got, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(got) {
		t.Error("the public key is not the private key's")
	}
}

func authority(t *testing.T) *pki.Authority {
	t.Helper()
	ca, err := pki.NewAuthority("test", func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// parse returns the pair's certificate, which has to belong to its key.
func parse(t *testing.T, pair pki.Pair) *x509.Certificate {
	t.Helper()
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return both.Leaf
}
