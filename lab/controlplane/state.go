package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/dovetail-k8s/dovetail/lab/controlplane/pki"
)

// state is the cluster's directory: what its components read and write, and by which name.
type state struct{ dir string }

func (s state) data() string                  { return filepath.Join(s.dir, "etcd") }
func (s state) cert(name string) string       { return filepath.Join(s.dir, "pki", name+".crt") }
func (s state) key(name string) string        { return filepath.Join(s.dir, "pki", name+".key") }
func (s state) kubeconfig(name string) string { return filepath.Join(s.dir, name+".kubeconfig") }
func (s state) log(component string) string   { return filepath.Join(s.dir, "logs", component+".log") }
func (s state) flexVolumes() string           { return filepath.Join(s.dir, "flexvolume") }
func (s state) file(name string) string       { return filepath.Join(s.dir, name) }

// create makes the directories, and rejects one that holds a cluster.
func (s state) create() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	for _, dir := range []string{s.data(), filepath.Dir(s.cert("")), filepath.Dir(s.log("")), s.flexVolumes()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return fmt.Errorf("state directory %s holds a cluster already: %w", s.dir, err)
		}
	}
	return nil
}

func (s state) write(pair pki.Pair, name string) error {
	return errors.Join(
		os.WriteFile(s.cert(name), pair.Cert, 0o600),
		os.WriteFile(s.key(name), pair.Key, 0o600))
}

// Names of the certificates and keys in the state directory. Each authority is apart from the
// others, so that a client of the API server can pass neither for etcd's one client nor for the
// proxy in front of aggregated APIs.
const (
	clusterCA      = "ca"
	etcdCA         = "etcd-ca"
	proxyCA        = "front-proxy-ca"
	etcdServer     = "etcd"
	etcdClient     = "etcd-client"
	proxyClient    = "front-proxy-client"
	serviceAccount = "service-account"
)

// credentials issues every certificate that the components need, and returns the cluster's
// authority.
func (s state) credentials(serviceCIDR string) (*pki.Authority, error) {
	cluster, err := pki.NewAuthority("kubernetes", time.Now)
	if err != nil {
		return nil, err
	}
	etcd, err := pki.NewAuthority("etcd", time.Now)
	if err != nil {
		return nil, err
	}
	proxy, err := pki.NewAuthority("front-proxy", time.Now)
	if err != nil {
		return nil, err
	}
	kubernetesIP, err := serviceIP(serviceCIDR, 1)
	if err != nil {
		return nil, err
	}
	issues := []struct {
		name  string
		issue func() (pki.Pair, error)
	}{
		{clusterCA, func() (pki.Pair, error) { return cluster.Pair(), nil }},
		{etcdCA, func() (pki.Pair, error) { return etcd.Pair(), nil }},
		{proxyCA, func() (pki.Pair, error) { return proxy.Pair(), nil }},
		{etcdServer, func() (pki.Pair, error) { return etcd.Server("localhost", "127.0.0.1") }},
		{etcdClient, func() (pki.Pair, error) { return etcd.Client("kube-apiserver") }},
		{proxyClient, func() (pki.Pair, error) { return proxy.Client("front-proxy-client") }},
		{apiServer, func() (pki.Pair, error) {
			return cluster.Server("kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1", kubernetesIP)
		}},
		{controllerManager, func() (pki.Pair, error) { return cluster.Server("localhost", "127.0.0.1") }},
		{scheduler, func() (pki.Pair, error) { return cluster.Server("localhost", "127.0.0.1") }},
	}
	for _, i := range issues {
		pair, err := i.issue()
		if err != nil {
			return nil, err
		}
		if err := s.write(pair, i.name); err != nil {
			return nil, err
		}
	}
	private, public, err := pki.SigningKey()
	if err != nil {
		return nil, err
	}
	return cluster, errors.Join(
		os.WriteFile(s.key(serviceAccount), private, 0o600),
		os.WriteFile(s.cert(serviceAccount), public, 0o600))
}

// tokenWebhook writes how the API server reaches its token authenticator.
func (s state) tokenWebhook(url string, ca []byte) error {
	return writeKubeconfig(s.file(tokenWebhookFile), "token-webhook", &rest.Config{
		Host:            url,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	})
}
