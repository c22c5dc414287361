package ekscluster

import (
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"net/url"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// APIServer describes how an API server is reached and trusted.
type APIServer struct {
	// Endpoint is a URL.
	Endpoint string
	// CA is the PEM bundle; nil if it is not known.
	CA []byte
	// EKS is true for an API server with a version string of EKS.
	EKS bool
}

// IdentityMismatchError means that the configured cluster name belongs to another cluster than the API server in use.
// Nothing may be written then. It is a cloudprovider.ErrIdentityMismatch.
type IdentityMismatchError struct {
	ClusterName string
	// Local is the API server in use, Named the API server of the cluster with that name.
	Local, Named string
}

func (e *IdentityMismatchError) Error() string {
	return fmt.Sprintf(
		"%s: this API server is %s, settings.clusterName names %q, which is %s",
		cloudprovider.ErrIdentityMismatch,
		e.Local,
		e.ClusterName,
		e.Named,
	)
}

// Is matches cloudprovider.ErrIdentityMismatch, for packages that may not import this one.
func (*IdentityMismatchError) Is(target error) bool {
	return target == cloudprovider.ErrIdentityMismatch
}

// CheckIdentity compares the API server in use with that of the named cluster. They are the same if their certificate
// authorities share a certificate or their endpoints are equal: inside a cluster, the API server has another address.
// Where the two cannot be compared there is no error, and doubt states why.
func CheckIdentity(clusterName string, local, named APIServer) (doubt string, err error) {
	if sameEndpoint(local.Endpoint, named.Endpoint) {
		return "", nil
	}
	here, there := certificates(local.CA), certificates(named.CA)
	switch {
	case len(here) == 0:
		return fmt.Sprintf("the CA of this API server (%s) is not known, so it cannot be compared with that of cluster %q (%s)",
			local.Endpoint, clusterName, named.Endpoint), nil
	case len(there) == 0:
		return fmt.Sprintf("the CA of cluster %q (%s) is not known, so it cannot be compared with that of this API server (%s)",
			clusterName, cmp.Or(named.Endpoint, "endpoint not known"), local.Endpoint), nil
	}
	for der := range here {
		if there[der] {
			return "", nil
		}
	}
	return "", &IdentityMismatchError{
		ClusterName: clusterName,
		Local:       local.Endpoint,
		Named:       cmp.Or(named.Endpoint, "one with another CA"),
	}
}

func sameEndpoint(a, b string) bool {
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	return errX == nil && errY == nil && x.Host != "" && strings.EqualFold(x.Hostname(), y.Hostname()) && port(x) == port(y)
}

func port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80"}[u.Scheme], "443")
}

// certificates are the distinct certificates of a PEM bundle, in DER.
func certificates(bundle []byte) map[string]bool {
	out := map[string]bool{}
	for {
		block, rest := pem.Decode(bytes.TrimSpace(bundle))
		if block == nil {
			return out
		}
		if block.Type == "CERTIFICATE" {
			out[string(block.Bytes)] = true
		}
		bundle = rest
	}
}
