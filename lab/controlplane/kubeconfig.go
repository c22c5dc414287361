package controlplane

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes what cfg holds (server, authority, and the client's certificate, token or
// credential program) as a kubeconfig file that is readable by its owner only.
func (c *Cluster) WriteKubeconfig(path string, cfg *rest.Config) error {
	return writeKubeconfig(path, c.cfg.Name, cfg)
}

func writeKubeconfig(path, cluster string, cfg *rest.Config) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{
		Server:                   cfg.Host,
		CertificateAuthority:     cfg.CAFile,
		CertificateAuthorityData: cfg.CAData,
	}
	config.AuthInfos[cluster] = &clientcmdapi.AuthInfo{
		ClientCertificate:     cfg.CertFile,
		ClientCertificateData: cfg.CertData,
		ClientKey:             cfg.KeyFile,
		ClientKeyData:         cfg.KeyData,
		Token:                 cfg.BearerToken,
		TokenFile:             cfg.BearerTokenFile,
		Exec:                  cfg.ExecProvider,
	}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: cluster}
	config.CurrentContext = cluster
	// WriteToFile creates the file with mode 0600.
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return nil
}
