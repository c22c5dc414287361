// Package eks simulates the control plane of Amazon EKS as far as a cluster's own tenants see it: describing clusters,
// and the access entries that map IAM principals to Kubernetes users and groups.
//
// The Kubernetes API servers behind the clusters are real and somewhere else; who runs one reports this package with
// CreateCluster.
package eks

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// The authentication modes of a cluster.
const (
	ModeAPI             = "API"
	ModeAPIAndConfigMap = "API_AND_CONFIG_MAP"
	ModeConfigMap       = "CONFIG_MAP"
)

// Config is what the EKS of a region needs.
type Config struct {
	Region    string
	AccountID string
	Seed      uint64
	IAM       *iam.Account
	Now       func() time.Time
}

// EKS holds the clusters of one account and region. It is safe for concurrent use.
type EKS struct {
	cfg Config

	mu       sync.Mutex
	issued   uint64
	clusters map[string]*cluster
}

type cluster struct {
	Cluster
	entries map[string]*AccessEntry // by principal ARN
	// associations are the pod identity associations, by ID.
	associations map[string]association
}

// Cluster is an EKS cluster.
type Cluster struct {
	Name     string
	ARN      string // assigned by CreateCluster
	Version  string // "1.36"
	Endpoint string
	CA       []byte // PEM
	RoleARN  string
	// Status is CREATING, ACTIVE, UPDATING, DELETING or FAILED; default ACTIVE.
	Status string
	// PlatformVersion defaults to eks.1.
	PlatformVersion string
	// ServiceCIDR is that of services: an IPv6 one makes the cluster one of that family.
	ServiceCIDR string
	VPC         VPC
	// AuthenticationMode defaults to API_AND_CONFIG_MAP.
	AuthenticationMode string
	OIDCIssuer         string
	Created            time.Time // assigned by CreateCluster
	Tags               map[string]string
}

// VPC is how a cluster is attached to its network.
type VPC struct {
	ID                   string
	SubnetIDs            []string
	SecurityGroupIDs     []string
	ClusterSecurityGroup string
	// PrivateAccess and PublicAccess state from where the endpoint can be reached.
	PrivateAccess, PublicAccess bool
}

// New returns a region without clusters.
func New(cfg Config) *EKS { return &EKS{cfg: cfg, clusters: map[string]*cluster{}} }

// CreateCluster adds a cluster. Its name must be free.
func (e *EKS) CreateCluster(c Cluster) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, exists := e.clusters[c.Name]; exists {
		return inUse("Cluster already exists with name: %s", c.Name)
	}
	switch c.AuthenticationMode {
	case "":
		c.AuthenticationMode = ModeAPIAndConfigMap
	case ModeAPI, ModeAPIAndConfigMap, ModeConfigMap:
	default:
		return invalid("Unsupported authentication mode %q", c.AuthenticationMode)
	}
	c.ARN = "arn:aws:eks:" + e.cfg.Region + ":" + e.cfg.AccountID + ":cluster/" + c.Name
	c.Status, c.PlatformVersion = cmp.Or(c.Status, "ACTIVE"), cmp.Or(c.PlatformVersion, "eks.1")
	c.Created = e.cfg.Now().UTC()
	e.clusters[c.Name] = &cluster{Cluster: c.clone(), entries: map[string]*AccessEntry{}, associations: map[string]association{}}
	return nil
}

// SetEndpoint changes where the API server of a cluster is and which CA signed its certificate.
func (e *EKS) SetEndpoint(name, endpoint string, ca []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.find(name)
	if err != nil {
		return err
	}
	c.Endpoint, c.CA = endpoint, slices.Clone(ca)
	return nil
}

// Cluster returns the cluster of that name.
func (e *EKS) Cluster(name string) (Cluster, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.clusters[name]
	if !ok {
		return Cluster{}, false
	}
	return c.clone(), true
}

func (c Cluster) clone() Cluster {
	c.CA, c.Tags = slices.Clone(c.CA), maps.Clone(c.Tags)
	c.VPC.SubnetIDs, c.VPC.SecurityGroupIDs = slices.Clone(c.VPC.SubnetIDs), slices.Clone(c.VPC.SecurityGroupIDs)
	return c
}

// find returns the named cluster. The caller holds the lock.
func (e *EKS) find(name string) (*cluster, error) {
	c, ok := e.clusters[name]
	if !ok {
		return nil, notFound("No cluster found for name: %s.", name)
	}
	return c, nil
}

// newUUID makes a unique ID. The caller holds the lock.
func (e *EKS) newUUID() string {
	e.issued++
	sum := sha256.Sum256(fmt.Appendf(nil, "eks %d %d", e.cfg.Seed, e.issued))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

func notFound(format string, args ...any) error {
	return protocol.Errorf("ResourceNotFoundException", format, args...).WithStatus(http.StatusNotFound)
}

func inUse(format string, args ...any) error {
	return protocol.Errorf("ResourceInUseException", format, args...).WithStatus(http.StatusConflict)
}

func invalid(format string, args ...any) error {
	return protocol.Errorf("InvalidParameterException", format, args...)
}
