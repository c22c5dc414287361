package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/controlplane/pki"
	"github.com/dovetail-k8s/dovetail/lab/process"
)

// pollInterval is short against a component's start and long against the cost of a question.
const pollInterval = 25 * time.Millisecond

// probe returns nil once its condition holds.
type probe func(ctx context.Context) error

// awaitHealthy repeats a probe of a component until it answers nil. It gives up when p finishes or ctx does.
func awaitHealthy(ctx context.Context, component string, p *process.Process, ready probe) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return p.ExitError()
		case <-ctx.Done():
			return fmt.Errorf("%s is not healthy: %w (%w); %s", component, err, context.Cause(ctx), p.LogTail())
		case <-ticker.C:
		}
	}
}

// respondsOK is a probe for a URL that answers 200.
func respondsOK(client *http.Client, url string) probe {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
		return nil
	}
}

// podsAccepted is a probe for the controllers being at work: admission rejects a pod until the
// controller manager has made its namespace's service account.
func (c *Cluster) podsAccepted(ctx context.Context) error {
	for _, ns := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		if _, err := c.client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// etcdHTTP is an HTTP client that etcd accepts.
func (s state) etcdHTTP() (*http.Client, error) {
	settings, err := s.etcdTLS()
	if err != nil {
		return nil, err
	}
	return httpsClient(settings), nil
}

// etcdTLS has the certificate of the one client that etcd accepts.
func (s state) etcdTLS() (*tls.Config, error) {
	ca, err := os.ReadFile(s.cert(etcdCA))
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(s.cert(etcdClient), s.key(etcdClient))
	if err != nil {
		return nil, err
	}
	return clientTLS(ca, pair), nil
}

// anonymousHTTP is an HTTP client that trusts the cluster's servers and does not state who it is.
func anonymousHTTP(ca *pki.Authority) *http.Client { return httpsClient(clientTLS(ca.CA())) }

func clientTLS(ca []byte, own ...tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: roots, Certificates: own, MinVersion: tls.VersionTLS12}
}

func httpsClient(settings *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: settings,
		// A probe is requested as long as a start takes; nothing is to stay open after it.
		DisableKeepAlives: true,
	}}
}
