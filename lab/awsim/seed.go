package awsim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/dovetail-k8s/dovetail/lab/awsim/eks"
	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
)

// How a seeded cluster maps its node role to a Kubernetes identity.
const (
	// MapByAccessEntry creates an access entry of type EC2_LINUX.
	MapByAccessEntry = "access-entry"
	// MapByConfigMap creates nothing in AWS: who runs the cluster puts the role into its aws-auth ConfigMap.
	MapByConfigMap = "aws-auth"
	// MapNone leaves the role unmapped, so that nodes cannot join.
	MapNone = "none"
)

// ClusterSpec is an EKS cluster and what an operator sets up around it before installing a node autoscaler.
type ClusterSpec struct {
	Name     string
	Version  string // "1.36"
	Endpoint string // of the API server
	CA       []byte // PEM
	// ServiceCIDR defaults to 10.100.0.0/16.
	ServiceCIDR string
	// AuthenticationMode is API, API_AND_CONFIG_MAP (the default) or CONFIG_MAP.
	AuthenticationMode string
	// NodeRoleMapping is MapByAccessEntry, MapByConfigMap or MapNone; default MapByAccessEntry, or MapByConfigMap where
	// the authentication mode knows no access entries.
	NodeRoleMapping string
	// OIDCIssuer is the URL of the issuer of service account tokens; the controller role trusts its tokens for the
	// service accounts dovetail and karpenter in kube-system. Optional.
	OIDCIssuer string
	// TakeOver lets a cluster that exists already point to this Endpoint and CA.
	TakeOver bool
}

// NodeRole and ControllerRole are the names of the roles that SeedCluster creates for a cluster.
func NodeRole(cluster string) string { return "KarpenterNodeRole-" + cluster }

// ControllerRole is the role of the node autoscaler; see NodeRole.
func ControllerRole(cluster string) string { return "KarpenterControllerRole-" + cluster }

// FISRole is the role in which the Fault Injection Service interrupts Spot instances. An account has one, whatever its
// clusters.
const FISRole = "FISInterruptionRole"

// fisPolicy is what that role may do.
const fisPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` +
	`"Action":["ec2:DescribeInstances","ec2:SendSpotInstanceInterruptions"],"Resource":"*"}]}`

// seeds are the clusters that were seeded.
type seeds struct {
	mu       sync.Mutex
	clusters map[string]bool
	vpcs     []seededVPC
}

// SeedCluster puts into the account what a real one holds for a cluster: subnets in three zones and security groups,
// tagged for discovery (karpenter.sh/discovery), the roles of nodes, controller and control plane, an interruption
// queue of the cluster's name, and the EKS cluster with its access entries. Several clusters share a VPC.
//
// In AWS a name exists once. Seeding it again changes nothing, or with TakeOver the endpoint.
func (s *Sim) SeedCluster(spec ClusterSpec) error {
	s.seeds.mu.Lock()
	defer s.seeds.mu.Unlock()
	if s.seeds.clusters[spec.Name] {
		if spec.TakeOver {
			return s.eks.SetEndpoint(spec.Name, spec.Endpoint, spec.CA)
		}
		return nil
	}
	spec, err := spec.withDefaults()
	if err != nil {
		return fmt.Errorf("seed cluster: %w", err)
	}
	if err := s.seed(spec); err != nil {
		return fmt.Errorf("seed cluster %q: %w", spec.Name, err)
	}
	if s.seeds.clusters == nil {
		s.seeds.clusters = map[string]bool{}
	}
	s.seeds.clusters[spec.Name] = true
	return nil
}

var clusterName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]*$`)

const longestRoleName = 64 // in IAM

func (c ClusterSpec) withDefaults() (ClusterSpec, error) {
	c.ServiceCIDR = cmp.Or(c.ServiceCIDR, "10.100.0.0/16")
	c.AuthenticationMode = cmp.Or(c.AuthenticationMode, eks.ModeAPIAndConfigMap)
	if c.NodeRoleMapping == "" {
		c.NodeRoleMapping = MapByAccessEntry
		if c.AuthenticationMode == eks.ModeConfigMap {
			c.NodeRoleMapping = MapByConfigMap
		}
	}
	switch c.NodeRoleMapping {
	case MapByAccessEntry, MapByConfigMap, MapNone:
	default:
		return c, fmt.Errorf("node role mapping %q: none of %s, %s, %s", c.NodeRoleMapping, MapByAccessEntry, MapByConfigMap, MapNone)
	}
	if !clusterName.MatchString(c.Name) || len(ControllerRole(c.Name)) > longestRoleName {
		return c, fmt.Errorf("name %q: not letters, digits, - and _, or too long for the names of its roles", c.Name)
	}
	if c.Version == "" || c.Endpoint == "" {
		return c, fmt.Errorf("version %q, endpoint %q: must not be empty", c.Version, c.Endpoint)
	}
	return c, nil
}

func (s *Sim) seed(spec ClusterSpec) error {
	net, err := s.seedNetwork(spec.Name)
	if err != nil {
		return err
	}
	controlPlane, err := s.seedRoles(spec)
	if err != nil {
		return err
	}
	if err := s.sqs.CreateQueue(spec.Name, map[string]string{"MessageRetentionPeriod": "300", "SqsManagedSseEnabled": "true"}); err != nil {
		return err
	}
	err = s.eks.CreateCluster(eks.Cluster{
		Name: spec.Name, Version: spec.Version, Endpoint: spec.Endpoint, CA: spec.CA, RoleARN: controlPlane, ServiceCIDR: spec.ServiceCIDR,
		AuthenticationMode: spec.AuthenticationMode, OIDCIssuer: spec.OIDCIssuer,
		VPC: eks.VPC{
			ID: net.vpc, SubnetIDs: net.subnets, SecurityGroupIDs: []string{}, ClusterSecurityGroup: net.clusterGroup,
			PrivateAccess: true, PublicAccess: true,
		},
	})
	if err != nil || spec.NodeRoleMapping != MapByAccessEntry {
		return err
	}
	role, _ := s.iam.Role(NodeRole(spec.Name))
	_, err = s.eks.CreateAccessEntry(spec.Name, eks.AccessEntry{PrincipalARN: role.ARN, Type: eks.EC2Linux})
	return err
}

// seedRoles creates the roles of a cluster and returns the ARN of the control plane's.
func (s *Sim) seedRoles(spec ClusterSpec) (string, error) {
	controllerTrust := []trust{{service: "pods.eks.amazonaws.com", actions: []string{"sts:AssumeRole", "sts:TagSession"}}}
	if spec.OIDCIssuer != "" {
		issuer := strings.TrimPrefix(spec.OIDCIssuer, "https://")
		controllerTrust = append(controllerTrust, trust{
			federated: "arn:aws:iam::" + s.options.AccountID + ":oidc-provider/" + issuer, actions: []string{"sts:AssumeRoleWithWebIdentity"},
			equals: map[string][]string{
				issuer + ":aud": {"sts.amazonaws.com"},
				issuer + ":sub": {"system:serviceaccount:kube-system:dovetail", "system:serviceaccount:kube-system:karpenter"},
			},
		})
	}
	nodePolicies := []string{
		"AmazonEC2ContainerRegistryPullOnly", "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonSSMManagedInstanceCore",
	}
	if _, err := s.seedRole(NodeRole(spec.Name), nodePolicies, trust{
		service: "ec2.amazonaws.com",
		actions: []string{"sts:AssumeRole"},
	}); err != nil {
		return "", err
	}
	if _, err := s.seedRole(ControllerRole(spec.Name), nil, controllerTrust...); err != nil {
		return "", err
	}
	if err := s.seedFISRole(); err != nil {
		return "", err
	}
	return s.seedRole("EKSClusterRole-"+spec.Name, []string{"AmazonEKSClusterPolicy"},
		trust{service: "eks.amazonaws.com", actions: []string{"sts:AssumeRole", "sts:TagSession"}})
}

// seedFISRole creates the role of the Fault Injection Service with the account's first cluster.
func (s *Sim) seedFISRole() error {
	if _, exists := s.iam.Role(FISRole); exists {
		return nil
	}
	if _, err := s.seedRole(FISRole, nil, trust{service: "fis.amazonaws.com", actions: []string{"sts:AssumeRole"}}); err != nil {
		return err
	}
	return s.iam.PutRolePolicy(FISRole, "interrupt", fisPolicy)
}

// seedRole creates a role with managed policies and returns its ARN.
func (s *Sim) seedRole(name string, policies []string, trusts ...trust) (string, error) {
	document, err := trustPolicy(trusts)
	if err != nil {
		return "", err
	}
	role, err := s.iam.CreateRole(iam.Role{Name: name, TrustPolicy: document})
	if err != nil {
		return "", err
	}
	for _, policy := range policies {
		if err := s.iam.AttachRolePolicy(name, "arn:aws:iam::aws:policy/"+policy); err != nil {
			return "", err
		}
	}
	return role.ARN, nil
}

// trust is a statement of a trust policy: a service or an identity provider that may assume the role.
type trust struct {
	service, federated string
	actions            []string
	equals             map[string][]string // values that condition keys may have
}

func trustPolicy(trusts []trust) (string, error) {
	type statement struct {
		Effect    string
		Principal map[string]string
		Action    []string
		Condition map[string]map[string][]string `json:",omitempty"`
	}
	policy := struct {
		Version   string
		Statement []statement
	}{Version: "2012-10-17"}
	for _, t := range trusts {
		st := statement{Effect: "Allow", Action: t.actions, Principal: map[string]string{"Service": t.service}}
		if t.federated != "" {
			st.Principal = map[string]string{"Federated": t.federated}
		}
		if len(t.equals) > 0 {
			st.Condition = map[string]map[string][]string{"StringEquals": t.equals}
		}
		policy.Statement = append(policy.Statement, st)
	}
	document, err := json.Marshal(policy)
	return string(document), err
}
