// Package pki issues the certificates of a lab cluster: a certificate authority in memory, and
// from it certificates for servers and for clients. Keys are ECDSA on P-256, because a cluster
// needs a dozen of them before it can start.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// validity of a certificate. A lab that lives longer has to be started anew.
	validity = 365 * 24 * time.Hour
	// backdate allows for clients with a clock that is behind.
	backdate = time.Hour
)

// Pair is a certificate with its private key, both as PEM.
type Pair struct {
	Cert, Key []byte
}

// Authority is a certificate authority. It is safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pair Pair
	now  func() time.Time
}

// NewAuthority makes a self-signed authority. Certificates are valid around now.
func NewAuthority(name string, now func() time.Time) (*Authority, error) {
	a := &Authority{now: now}
	template, err := a.template(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	if a.key, err = newKey(); err != nil {
		return nil, err
	}
	if a.pair, err = sign(template, template, a.key, a.key); err != nil {
		return nil, fmt.Errorf("certificate authority %q: %w", name, err)
	}
	block, _ := pem.Decode(a.pair.Cert)
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("certificate authority %q: %w", name, err)
	}
	return a, nil
}

// CA is the authority's certificate as PEM: what clients need in order to trust its servers.
func (a *Authority) CA() []byte { return a.pair.Cert }

// Pair is the authority's certificate with its private key, for a program that signs in its name.
func (a *Authority) Pair() Pair { return a.pair }

// Server issues a serving certificate for the given DNS names and IP addresses. The first one
// becomes its common name.
func (a *Authority) Server(hosts ...string) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, fmt.Errorf("a serving certificate needs at least one host")
	}
	template, err := a.template(pkix.Name{CommonName: hosts[0]})
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return a.issue(template)
}

// Client issues a client certificate. Kubernetes takes the user from the common name and the
// groups from the organizations.
func (a *Authority) Client(user string, groups ...string) (Pair, error) {
	template, err := a.template(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return Pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *Authority) issue(template *x509.Certificate) (Pair, error) {
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	pair, err := sign(template, a.cert, key, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate for %q: %w", template.Subject.CommonName, err)
	}
	return pair, nil
}

func (a *Authority) template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("serial number: %w", err)
	}
	now := a.now()
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               subject,
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}, nil
}

// SigningKey makes a key pair for signing tokens: the private key, and the public key that
// verifies them, both as PEM.
func SigningKey() (private, public []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if private, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("encode public key: %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return key, nil
}

// sign has parent's key vouch for template, which holds key.
func sign(template, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return Pair{}, err
	}
	private, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: private}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
