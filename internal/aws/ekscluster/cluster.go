// Package ekscluster knows the EKS cluster of this controller: its endpoint, CA, service CIDR, Kubernetes version and ARN,
// and whether the API server in use is really that cluster's.
//
// What is configured wins over what EKS returns. The identity check comes first in every process: a controller with another
// cluster's name would terminate that cluster's instances.
package ekscluster

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
)

// ErrCodeNotFound is the error code of EKS, and of services that take a cluster's ARN, for a cluster that they do not have.
const ErrCodeNotFound = "ResourceNotFoundException"

// optionalTimeout limits calls of EKS where its answer is optional: an isolated VPC may have no route to EKS, and such a call
// would otherwise delay the start by the SDK's own timeouts. 15 s is several times what EKS takes to answer.
const optionalTimeout = 15 * time.Second

// Config describes what a Cluster is made of. All but ServerVersion and Known is needed.
type Config struct {
	EKS *eks.Client
	// Name and Region identify the cluster.
	Name, Region string
	// Known holds what is configured; Discover fills in the rest from EKS.
	Known bootstrap.Cluster
	// KubernetesVersion is the minor version of the API server, such as 1.33.
	KubernetesVersion string
	// ServerVersion reads the minor version from the API server again. Nil keeps KubernetesVersion.
	ServerVersion func(ctx context.Context) (string, error)
	// VersionFromEKS takes the version from EKS instead (settings.eksControlPlane).
	VersionFromEKS bool
	// OnlyEKS makes a name that EKS does not know a mismatch, whatever is configured.
	OnlyEKS bool
	// ClusterUID is the UID of the namespace kube-system. Records have it; empty where there are none.
	ClusterUID string
	// Records keep what EKS returns for the next process; nil keeps nothing.
	Records Records
	Log     *slog.Logger
}

// Cluster is the EKS cluster, as far as it is known. It is safe for concurrent use.
type Cluster struct {
	cfg Config

	mu      sync.RWMutex
	known   bootstrap.Cluster
	arn     string // empty until it is first needed
	version string
	// versionJudged is true once version was compared with the supported versions.
	versionJudged bool
	// local is the API server that Discover was called with.
	local APIServer
	// withoutEKS is true while EKS does not answer, and its answer is optional.
	withoutEKS bool
	// unproven states why the name may be that of another cluster; empty once EKS has returned this API server's.
	unproven string
	// verified is true once the API server in use was compared with the cluster's, described once that was with EKS's own answer.
	verified, described bool
	// cause states why EKS has not described the cluster.
	cause error
	// unsaved is true while the last attempt to keep the record has failed.
	unsaved bool
}

// New returns a Cluster that knows what is configured. It makes no calls.
func New(cfg Config) *Cluster {
	return &Cluster{cfg: cfg, known: cfg.Known, version: cfg.KubernetesVersion}
}

// Unproven returns why the name may be that of another cluster than the API server's: nothing may be concluded then from what the account
// and region have under this name. It is empty once EKS has returned this API server for the name.
func (c *Cluster) Unproven() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.unproven
}

// Bootstrap returns what nodes need to know of the cluster to join it, as far as it is known.
func (c *Cluster) Bootstrap() bootstrap.Cluster {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.known
}

// Name is the name of the EKS cluster.
func (c *Cluster) Name() string { return c.cfg.Name }

// Verified reports whether the API server in use was compared with the cluster's: with EKS's answer, with what is configured, or with
// what an earlier process has recorded of EKS's answer. Nothing may be changed in AWS before.
func (c *Cluster) Verified() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.verified
}

// Undescribed returns why EKS itself has not described the cluster yet; nil if it has.
func (c *Cluster) Undescribed() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.described {
		return nil
	}
	return cmp.Or(c.cause, errNotAsked)
}

// errNotAsked is the state before the first answer of EKS.
var errNotAsked = errors.New("EKS has not answered yet")

// Recall believes what an earlier process has recorded of EKS's answer, if it is about this API server's cluster, and reports whether
// it does. EKS's own answer replaces it.
func (c *Cluster) Recall(ctx context.Context, local APIServer) (bool, error) {
	if c.cfg.Records == nil {
		return false, nil
	}
	r, found, err := c.cfg.Records.Load(ctx)
	if err != nil || !found || !r.describes(Record{ClusterName: c.cfg.Name, Region: c.cfg.Region, ClusterUID: c.cfg.ClusterUID}, local) {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local, c.verified = local, true
	c.known.Endpoint, c.known.CABundle = cmp.Or(c.known.Endpoint, r.Endpoint), cmp.Or(c.known.CABundle, r.CA)
	c.known.ServiceCIDR = cmp.Or(c.known.ServiceCIDR, r.ServiceCIDR)
	return true, nil
}

// record keeps what EKS has returned for the next process. A failure costs that process at most what a first start needs.
func (c *Cluster) record(ctx context.Context, described *ekstypes.Cluster) {
	if c.cfg.Records == nil {
		return
	}
	r := Record{
		ClusterName: c.cfg.Name, Region: c.cfg.Region, ClusterUID: c.cfg.ClusterUID,
		Endpoint: aws.ToString(described.Endpoint), ServiceCIDR: serviceCIDR(described),
	}
	if ca := described.CertificateAuthority; ca != nil {
		r.CA = aws.ToString(ca.Data)
	}
	err := c.cfg.Records.Save(ctx, r)
	c.mu.Lock()
	first := err != nil && !c.unsaved
	c.unsaved = err != nil
	c.mu.Unlock()
	if first {
		c.cfg.Log.Warn("what EKS returns of the cluster cannot be kept; a start during an outage of EKS will wait for EKS", "error", err)
	}
}

// serviceCIDR is the range of the addresses of services; empty if EKS does not return it.
func serviceCIDR(described *ekstypes.Cluster) string {
	net := described.KubernetesNetworkConfig
	if net == nil {
		return ""
	}
	return cmp.Or(aws.ToString(net.ServiceIpv4Cidr), aws.ToString(net.ServiceIpv6Cidr))
}

// Discover reads from EKS what is not configured, and compares the API server in use with the cluster's. The error is an
// *IdentityMismatchError when they differ. Where EKS does not answer, and what is configured or recorded suffices, there is none.
func (c *Cluster) Discover(ctx context.Context, local APIServer) error {
	c.mu.Lock()
	c.local = local
	c.mu.Unlock()
	if c.KubernetesVersion() != "" && !c.cfg.VersionFromEKS {
		c.setVersion(c.KubernetesVersion())
	}
	limited, cancel := c.withOptionalTimeout(ctx)
	defer cancel()
	described, err := c.describe(limited)
	if err != nil {
		return c.continueWithoutEKS(local, err)
	}
	return c.accept(ctx, local, described)
}

// accept compares the API server with EKS's answer, and takes it over.
func (c *Cluster) accept(ctx context.Context, local APIServer, described *ekstypes.Cluster) error {
	if err := c.compare(local, described); err != nil {
		return err
	}
	if err := c.complete(described); err != nil {
		return err
	}
	c.record(ctx, described)
	return nil
}

// withOptionalTimeout limits calls of EKS to optionalTimeout where everything that EKS knows is configured.
func (c *Cluster) withOptionalTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.configured() {
		return context.WithTimeout(ctx, optionalTimeout)
	}
	return ctx, func() {}
}

// configured reports whether everything is known that a start needs.
func (c *Cluster) configured() bool {
	known := c.Bootstrap()
	return known.Endpoint != "" && known.CABundle != "" && c.KubernetesVersion() != ""
}

// continueWithoutEKS compares the API server with what is configured, after EKS has failed with cause.
func (c *Cluster) continueWithoutEKS(local APIServer, cause error) error {
	if (local.EKS || c.cfg.OnlyEKS) && awserrors.Code(cause) == ErrCodeNotFound {
		return &IdentityMismatchError{ClusterName: c.cfg.Name, Local: local.Endpoint, Named: "no EKS cluster of this account and region"}
	}
	c.mu.Lock()
	c.cause = cause
	known := c.verified
	c.mu.Unlock()
	switch {
	case known: // by an earlier answer, or by what an earlier process has recorded
		return nil
	case !c.configured():
		return fmt.Errorf("find the cluster: %w", cause)
	}
	configured := c.Bootstrap()
	ca, err := base64.StdEncoding.DecodeString(configured.CABundle)
	if err != nil {
		return fmt.Errorf("settings.clusterCABundle is not base64: %w", err)
	}
	if _, err := CheckIdentity(c.cfg.Name, local, APIServer{Endpoint: configured.Endpoint, CA: ca}); err != nil {
		return err
	}
	c.mu.Lock()
	c.withoutEKS, c.verified, c.unproven = true, true, "EKS did not return the cluster: "+cause.Error()
	c.mu.Unlock()
	c.cfg.Log.Warn("EKS did not return the cluster; whether settings.clusterName names this cluster was not checked",
		"cluster", c.cfg.Name, "error", cause)
	return nil
}

// compare checks that the API server is that of the cluster that EKS describes.
func (c *Cluster) compare(local APIServer, described *ekstypes.Cluster) error {
	named := APIServer{Endpoint: aws.ToString(described.Endpoint)}
	if ca := described.CertificateAuthority; ca != nil {
		var err error
		if named.CA, err = base64.StdEncoding.DecodeString(aws.ToString(ca.Data)); err != nil {
			return fmt.Errorf("certificate authority of cluster %s: %w", c.cfg.Name, err)
		}
	}
	doubt, err := CheckIdentity(c.cfg.Name, local, named)
	c.mu.Lock()
	c.unproven = doubt
	c.mu.Unlock()
	if doubt != "" {
		c.cfg.Log.Warn("whether settings.clusterName names this cluster was not checked", "why", doubt)
	}
	return err
}

func (c *Cluster) describe(ctx context.Context) (*ekstypes.Cluster, error) {
	out, err := c.cfg.EKS.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String(c.cfg.Name)})
	if err != nil {
		err = session.Explain(session.Call{
			Service: "eks", Action: "DescribeCluster",
			Otherwise: "set --cluster-endpoint (AL2023 images need the permission all the same: they need the service CIDR)",
		}, c.cfg.Region, err)
		return nil, fmt.Errorf("describe EKS cluster %s: %w", c.cfg.Name, err)
	}
	if out.Cluster == nil {
		return nil, fmt.Errorf("describe EKS cluster %s: empty response", c.cfg.Name)
	}
	return out.Cluster, nil
}

// complete fills in what is not configured.
func (c *Cluster) complete(described *ekstypes.Cluster) error {
	if version := aws.ToString(described.Version); version != "" && (c.KubernetesVersion() == "" || c.cfg.VersionFromEKS) {
		c.setVersion(version)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withoutEKS = false
	if !c.described { // what was recalled yields to EKS's own answer
		c.known.Endpoint = cmp.Or(c.cfg.Known.Endpoint, aws.ToString(described.Endpoint), c.known.Endpoint)
		c.known.CABundle = c.cfg.Known.CABundle
	}
	if ca := described.CertificateAuthority; ca != nil {
		c.known.CABundle = cmp.Or(c.known.CABundle, aws.ToString(ca.Data))
	}
	c.known.ServiceCIDR = cmp.Or(serviceCIDR(described), c.known.ServiceCIDR)
	switch {
	case c.known.Endpoint == "":
		return errors.New("EKS returns no endpoint for the cluster: set --cluster-endpoint, or start again once the cluster is ACTIVE")
	case c.version == "":
		return errors.New("EKS returns no version for the cluster: remove --eks-control-plane to use the API server's version")
	}
	c.verified, c.described, c.cause = true, true, nil
	return nil
}

// ARN is the ARN of the cluster. EKS is called for it once.
func (c *Cluster) ARN(ctx context.Context) (string, error) {
	c.mu.RLock()
	known := c.arn
	c.mu.RUnlock()
	if known != "" {
		return known, nil
	}
	described, err := c.describe(ctx)
	if err != nil {
		return "", err
	}
	found := aws.ToString(described.Arn)
	if found == "" {
		return "", fmt.Errorf("describe EKS cluster %s: the response has no ARN", c.cfg.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arn = found
	return found, nil
}
