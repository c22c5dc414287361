// Package userdata parses an instance's user data as its image does at first boot. It returns the cluster to join and
// the kubelet configuration.
//
// Four formats are in use on EKS: nodeadm's NodeConfig documents (Amazon Linux 2023), a shell
// script that calls /etc/eks/bootstrap.sh (Amazon Linux 2), settings in TOML (Bottlerocket), and a PowerShell script
// that calls Start-EKSBootstrap.ps1 (Windows). Which of them applies is a property of the image, never of the text: an
// Amazon Linux 2 image that is handed a NodeConfig does not join, and neither does one here.
//
// Nothing is filled in from elsewhere. What the user data leaves open stays zero in [Config]; the
// values an image then falls back to are its defaults, see [Config.WithDefaults].
package userdata

import (
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/netip"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// Config is the content of an instance's user data.
type Config struct {
	// Family is the kind of image that read the user data.
	Family Family
	// ClusterName is the EKS name of the cluster; it is signed into the node's token.
	ClusterName string
	// Endpoint is the URL of the API server.
	Endpoint string
	// CA is the PEM bundle that the API server's certificate must chain to.
	CA []byte
	// ServiceCIDR is the range of Service addresses; empty if the format does not carry it.
	ServiceCIDR string
	// Labels are the node labels of kubelet's --node-labels.
	Labels map[string]string
	// Kubelet holds the kubelet settings that were given; absent ones are zero.
	Kubelet kubelet.KubeletConfiguration
	// LocalDisks is how instance store volumes are used: "" (not at all), "raid0", "raid10" or "mount".
	LocalDisks string
	// UseENIMaxPods is false if the pod limit must not be derived from the network interfaces.
	UseENIMaxPods bool
}

// Decode reads raw, the decoded bytes of the instance's user data, as an image of the family does.
// Its errors are written for the instance's console: they state what the image could not do.
func Decode(family Family, raw []byte) (Config, error) {
	raw, err := decompress(raw)
	if err != nil {
		return Config{}, err
	}
	var cfg Config
	switch family {
	case AL2:
		cfg, err = decodeAL2(raw)
	case AL2023:
		cfg, err = decodeAL2023(raw)
	case Bottlerocket:
		cfg, err = decodeBottlerocket(raw)
	case Windows:
		cfg, err = decodeWindows(raw)
	default:
		return Config{}, fmt.Errorf("image of family %q has no EKS bootstrap that this lab can run", family)
	}
	if err != nil {
		return Config{}, err
	}
	cfg.Family = family
	return cfg, cfg.validate()
}

// decompress undoes gzip, which every image accepts.
func decompress(raw []byte) ([]byte, error) {
	if !bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		return raw, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("decompress user data: %w", err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("decompress user data: %w", err)
	}
	return out, nil
}

// validate checks what any kubelet needs before it can make its first call.
func (c Config) validate() error {
	if c.ClusterName == "" {
		return fmt.Errorf("cluster name is missing")
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("API server endpoint %q is not an https URL", c.Endpoint)
	}
	if err := validateCA(c.CA); err != nil {
		return err
	}
	if c.ServiceCIDR != "" {
		if _, err := netip.ParsePrefix(c.ServiceCIDR); err != nil {
			return fmt.Errorf("service CIDR %q: %w", c.ServiceCIDR, err)
		}
	}
	for _, ip := range c.Kubelet.ClusterDNS {
		if _, err := netip.ParseAddr(ip); err != nil {
			return fmt.Errorf("cluster DNS address %q: %w", ip, err)
		}
	}
	for _, t := range c.Kubelet.RegisterWithTaints {
		switch t.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return fmt.Errorf("taint %q: invalid effect %q", t.Key, t.Effect)
		}
	}
	return validateKubelet(c.Kubelet)
}

func validateCA(bundle []byte) error {
	if len(bundle) == 0 {
		return fmt.Errorf("certificate authority is missing")
	}
	for rest := bundle; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return fmt.Errorf("certificate authority holds no PEM certificate")
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("certificate authority: %w", err)
		}
		return nil
	}
}

// decodeCA undoes the base64 in which every format carries the bundle.
func decodeCA(encoded string) ([]byte, error) {
	out, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("certificate authority is not base64: %w", err)
	}
	return out, nil
}
