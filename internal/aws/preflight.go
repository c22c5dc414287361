package aws

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// APIServer is how an API server is reached and trusted.
type APIServer struct {
	// Endpoint is a URL.
	Endpoint string
	// CA is the PEM bundle; nil if it is not known.
	CA []byte
	// EKS is true for an API server that says it is one of EKS.
	EKS bool
}

// IdentityMismatchError means that the configured cluster name names another cluster than the one whose
// API server is talked to. Nothing may be written then. It is cloud.ErrIdentityMismatch.
type IdentityMismatchError struct {
	ClusterName string
	// Local is the API server talked to, Named the one of the cluster of that name.
	Local, Named string
}

func (e *IdentityMismatchError) Error() string {
	return fmt.Sprintf("%s: this API server is %s, settings.clusterName names %q, which is %s", cloudprovider.ErrIdentityMismatch, e.Local, e.ClusterName, e.Named)
}

// Is makes the error recognizable to those who do not know this package.
func (*IdentityMismatchError) Is(target error) bool {
	return target == cloudprovider.ErrIdentityMismatch
}

// CheckIdentity compares the API server talked to with that of the named cluster. They are one if their
// certificate authorities share a certificate or their endpoints are equal: within a cluster the API server
// is reached under another address. What cannot be compared is no mismatch, but a doubt.
func CheckIdentity(clusterName string, local, named APIServer) (doubt string, err error) {
	if sameEndpoint(local.Endpoint, named.Endpoint) {
		return "", nil
	}
	here, there := certificates(local.CA), certificates(named.CA)
	switch {
	case len(here) == 0:
		return fmt.Sprintf("this API server is reached at %s, that of cluster %q is %s, and the CA by which this one is trusted is not known", local.Endpoint, clusterName, named.Endpoint), nil
	case len(there) == 0:
		return fmt.Sprintf("this API server is reached at %s, that of cluster %q is %s, and its CA is not known", local.Endpoint, clusterName, cmp.Or(named.Endpoint, "not known")), nil
	}
	for der := range here {
		if there[der] {
			return "", nil
		}
	}
	return "", &IdentityMismatchError{ClusterName: clusterName, Local: local.Endpoint, Named: cmp.Or(named.Endpoint, "one with another CA")}
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

// clusterUnknown is EKS's answer for a cluster that it does not have.
const clusterUnknown = "ResourceNotFoundException"

// Preflight makes sure that EC2 can be called, learns of the cluster from EKS what is not configured, and
// compares the API server talked to with the cluster's. The error is an *IdentityMismatchError when they
// are not one.
func (c *Cloud) Preflight(ctx context.Context, local APIServer) error {
	_, err := c.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)})
	if err != nil && !awserrors.Is(err, awserrors.DryRun) {
		return session.Explain(session.Call{Service: "ec2", Action: "DescribeInstanceTypes"}, c.cfg.Identity.Region, err)
	}
	c.mu.Lock()
	c.local = local
	c.mu.Unlock()
	if c.KubernetesVersion() != "" && !c.cfg.VersionFromEKS {
		c.setVersion(c.KubernetesVersion())
	}
	asking, cancel := c.patienceWithEKS(ctx)
	defer cancel()
	described, err := c.describeCluster(asking)
	if err != nil {
		return c.withoutEKS(local, err)
	}
	if err := c.compare(local, described); err != nil {
		return err
	}
	return c.learn(described)
}

// eksPatience is how long EKS is waited for by who can do without.
const eksPatience = 15 * time.Second

// patienceWithEKS limits how long EKS is waited for where it may be done without: it may be out of reach of an isolated VPC.
func (c *Cloud) patienceWithEKS(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.configured() {
		return context.WithTimeout(ctx, eksPatience)
	}
	return ctx, func() {}
}

// configured tells whether all is known of the cluster that a start needs.
func (c *Cloud) configured() bool {
	known := c.Cluster()
	return known.Endpoint != "" && known.CABundle != "" && c.KubernetesVersion() != ""
}

// withoutEKS compares the API server with what is configured, where EKS does not say what the cluster is.
func (c *Cloud) withoutEKS(local APIServer, cause error) error {
	if local.EKS && awserrors.Code(cause) == clusterUnknown {
		return &IdentityMismatchError{ClusterName: c.cfg.Identity.ClusterName, Local: local.Endpoint, Named: "no EKS cluster of this account and region"}
	}
	if !c.configured() {
		return fmt.Errorf("find the cluster: %w", cause)
	}
	configured := c.Cluster()
	ca, err := base64.StdEncoding.DecodeString(configured.CABundle)
	if err != nil {
		return fmt.Errorf("settings.clusterCABundle: %w", err)
	}
	if _, err := CheckIdentity(c.cfg.Identity.ClusterName, local, APIServer{Endpoint: configured.Endpoint, CA: ca}); err != nil {
		return err
	}
	c.mu.Lock()
	c.withoutCluster = true
	c.mu.Unlock()
	c.cfg.Log.Warn("EKS does not say which cluster settings.clusterName names; that it is this one was not checked", "cluster", c.cfg.Identity.ClusterName, "error", cause)
	return nil
}

// compare finds out whether the API server is that of the cluster which EKS describes.
func (c *Cloud) compare(local APIServer, described *ekstypes.Cluster) error {
	named := APIServer{Endpoint: aws.ToString(described.Endpoint)}
	if ca := described.CertificateAuthority; ca != nil {
		var err error
		if named.CA, err = base64.StdEncoding.DecodeString(aws.ToString(ca.Data)); err != nil {
			return fmt.Errorf("certificate authority of cluster %s: %w", c.cfg.Identity.ClusterName, err)
		}
	}
	doubt, err := CheckIdentity(c.cfg.Identity.ClusterName, local, named)
	if doubt != "" {
		c.cfg.Log.Warn("whether settings.clusterName names this cluster was not checked", "why", doubt)
	}
	return err
}

func (c *Cloud) describeCluster(ctx context.Context) (*ekstypes.Cluster, error) {
	out, err := c.eks.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String(c.cfg.Identity.ClusterName)})
	if err != nil {
		err = session.Explain(session.Call{
			Service: "eks", Action: "DescribeCluster", Otherwise: "set --cluster-endpoint (and, for images of AL2023, allow it all the same: they need the service CIDR)",
		}, c.cfg.Identity.Region, err)
		return nil, fmt.Errorf("describe EKS cluster %s: %w", c.cfg.Identity.ClusterName, err)
	}
	if out.Cluster == nil {
		return nil, fmt.Errorf("describe EKS cluster %s: empty answer", c.cfg.Identity.ClusterName)
	}
	return out.Cluster, nil
}

// learn fills in what was not configured.
func (c *Cloud) learn(described *ekstypes.Cluster) error {
	if version := aws.ToString(described.Version); version != "" && (c.KubernetesVersion() == "" || c.cfg.VersionFromEKS) {
		c.setVersion(version)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withoutCluster = false
	c.cluster.Endpoint = cmp.Or(c.cluster.Endpoint, aws.ToString(described.Endpoint))
	if ca := described.CertificateAuthority; ca != nil {
		c.cluster.CABundle = cmp.Or(c.cluster.CABundle, aws.ToString(ca.Data))
	}
	if net := described.KubernetesNetworkConfig; net != nil {
		c.cluster.ServiceCIDR = cmp.Or(c.cluster.ServiceCIDR, aws.ToString(net.ServiceIpv4Cidr), aws.ToString(net.ServiceIpv6Cidr))
	}
	switch {
	case c.cluster.Endpoint == "":
		return errors.New("EKS does not tell the cluster's endpoint: set --cluster-endpoint, or start again once the cluster is ACTIVE")
	case c.version == "":
		return errors.New("EKS does not tell the cluster's version: leave --eks-control-plane out, and it is asked of the API server")
	}
	return nil
}
