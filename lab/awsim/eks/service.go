package eks

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Service returns the API handlers of EKS.
func (e *EKS) Service() protocol.Service {
	const (
		clusters = "/clusters"
		named    = clusters + "/{name}"
		entries  = named + "/access-entries"
		entry    = entries + "/{principalArn}"
		policies = entry + "/access-policies"
		pods     = named + "/pod-identity-associations"
	)
	paging := []string{"maxResults", "nextToken"}
	return protocol.Service{
		Name: "eks", Protocol: protocol.RESTJSON, Permissions: e.requiredPermissions,
		Routes: []protocol.Route{
			{Method: http.MethodGet, Path: clusters, Action: "ListClusters", Query: append(paging, "include")},
			{Method: http.MethodGet, Path: named, Action: "DescribeCluster"},
			{Method: http.MethodPost, Path: entries, Action: "CreateAccessEntry"},
			{Method: http.MethodGet, Path: entries, Action: "ListAccessEntries", Query: append(paging, "associatedPolicyArn")},
			{Method: http.MethodGet, Path: entry, Action: "DescribeAccessEntry"},
			{Method: http.MethodPost, Path: entry, Action: "UpdateAccessEntry"},
			{Method: http.MethodDelete, Path: entry, Action: "DeleteAccessEntry"},
			{Method: http.MethodGet, Path: policies, Action: "ListAssociatedAccessPolicies", Query: paging},
			{Method: http.MethodPost, Path: pods, Action: "CreatePodIdentityAssociation"},
			{Method: http.MethodGet, Path: pods, Action: "ListPodIdentityAssociations", Query: append(paging, "namespace", "serviceAccount")},
			{Method: http.MethodGet, Path: pods + "/{associationId}", Action: "DescribePodIdentityAssociation"},
			{Method: http.MethodPost, Path: policies, Action: "AssociateAccessPolicy"},
			{Method: http.MethodDelete, Path: policies + "/{policyArn}", Action: "DisassociateAccessPolicy"},
		},
		Handlers: map[string]protocol.Handler{
			"AssociateAccessPolicy":          protocol.JSON(e.associateAccessPolicy),
			"CreateAccessEntry":              protocol.JSON(e.createAccessEntry),
			"CreatePodIdentityAssociation":   protocol.JSON(e.createPodIdentityAssociation),
			"DescribePodIdentityAssociation": protocol.JSON(e.describePodIdentityAssociation),
			"ListPodIdentityAssociations":    protocol.JSON(e.listPodIdentityAssociations),
			"DeleteAccessEntry":              protocol.JSON(e.deleteAccessEntry),
			"DescribeAccessEntry":            protocol.JSON(e.describeAccessEntry),
			"DescribeCluster":                protocol.JSON(e.describeCluster),
			"DisassociateAccessPolicy":       protocol.JSON(e.disassociateAccessPolicy),
			"ListAccessEntries":              protocol.JSON(e.listAccessEntries),
			"ListAssociatedAccessPolicies":   protocol.JSON(e.listAssociatedAccessPolicies),
			"ListClusters":                   protocol.JSON(e.listClusters),
			"UpdateAccessEntry":              protocol.JSON(e.updateAccessEntry),
		},
	}
}

// nothing is the body of a request that has none, and of an answer that states no more than that it was done.
type nothing struct{}

type clusterOutput struct {
	Cluster jsonCluster `json:"cluster"`
}

type jsonCluster struct {
	Name                    string            `json:"name"`
	ARN                     string            `json:"arn"`
	CreatedAt               float64           `json:"createdAt"`
	Version                 string            `json:"version"`
	Endpoint                string            `json:"endpoint,omitempty"`
	RoleARN                 string            `json:"roleArn"`
	ResourcesVPCConfig      jsonVPC           `json:"resourcesVpcConfig"`
	KubernetesNetworkConfig jsonNetwork       `json:"kubernetesNetworkConfig"`
	Identity                *jsonIdentity     `json:"identity,omitempty"`
	Status                  string            `json:"status"`
	CertificateAuthority    jsonCA            `json:"certificateAuthority"`
	PlatformVersion         string            `json:"platformVersion"`
	Tags                    map[string]string `json:"tags"`
	Health                  jsonHealth        `json:"health"`
	AccessConfig            jsonAccess        `json:"accessConfig"`
}

type (
	jsonVPC struct {
		SubnetIDs              []string `json:"subnetIds"`
		SecurityGroupIDs       []string `json:"securityGroupIds"`
		ClusterSecurityGroupID string   `json:"clusterSecurityGroupId"`
		VPCID                  string   `json:"vpcId"`
		EndpointPublicAccess   bool     `json:"endpointPublicAccess"`
		EndpointPrivateAccess  bool     `json:"endpointPrivateAccess"`
		PublicAccessCIDRs      []string `json:"publicAccessCidrs"`
	}
	jsonNetwork struct {
		ServiceIPv4CIDR string `json:"serviceIpv4Cidr,omitempty"`
		ServiceIPv6CIDR string `json:"serviceIpv6Cidr,omitempty"`
		IPFamily        string `json:"ipFamily"`
	}
	jsonIdentity struct {
		OIDC struct {
			Issuer string `json:"issuer"`
		} `json:"oidc"`
	}
	// jsonCA holds the base64 of the PEM, absent while the cluster is created.
	jsonCA struct {
		Data string `json:"data,omitempty"`
	}
	jsonHealth struct {
		Issues []string `json:"issues"`
	}
	jsonAccess struct {
		AuthenticationMode string `json:"authenticationMode"`
	}
)

func (c Cluster) json() jsonCluster {
	out := jsonCluster{
		Name: c.Name, ARN: c.ARN, CreatedAt: epoch(c.Created), Version: c.Version, Endpoint: c.Endpoint, RoleARN: c.RoleARN,
		ResourcesVPCConfig: jsonVPC{
			SubnetIDs: list(c.VPC.SubnetIDs), SecurityGroupIDs: list(c.VPC.SecurityGroupIDs), VPCID: c.VPC.ID,
			ClusterSecurityGroupID: c.VPC.ClusterSecurityGroup, EndpointPublicAccess: c.VPC.PublicAccess,
			EndpointPrivateAccess: c.VPC.PrivateAccess, PublicAccessCIDRs: []string{},
		},
		KubernetesNetworkConfig: jsonNetwork{ServiceIPv4CIDR: c.ServiceCIDR, IPFamily: "ipv4"},
		Status:                  c.Status, PlatformVersion: c.PlatformVersion, Tags: c.Tags, Health: jsonHealth{Issues: []string{}},
		CertificateAuthority: jsonCA{Data: base64.StdEncoding.EncodeToString(c.CA)},
		AccessConfig:         jsonAccess{AuthenticationMode: c.AuthenticationMode},
	}
	if strings.Contains(c.ServiceCIDR, ":") {
		out.KubernetesNetworkConfig = jsonNetwork{ServiceIPv6CIDR: c.ServiceCIDR, IPFamily: "ipv6"}
	}
	if c.VPC.PublicAccess {
		out.ResourcesVPCConfig.PublicAccessCIDRs = []string{"0.0.0.0/0"}
	}
	if c.OIDCIssuer != "" {
		out.Identity = &jsonIdentity{}
		out.Identity.OIDC.Issuer = c.OIDCIssuer
	}
	if out.Tags == nil {
		out.Tags = map[string]string{}
	}
	if c.Status == "CREATING" {
		out.Endpoint, out.CertificateAuthority.Data = "", ""
	}
	return out
}

func (e *EKS) describeCluster(r *protocol.Request, _ *nothing) (*clusterOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.find(r.Path["name"])
	if err != nil {
		return nil, err
	}
	return &clusterOutput{c.json()}, nil
}

type listClustersOutput struct {
	Clusters  []string `json:"clusters"`
	NextToken string   `json:"nextToken,omitempty"`
}

func (e *EKS) listClusters(r *protocol.Request, _ *nothing) (*listClustersOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	names, next, err := page(r, slices.Collect(maps.Keys(e.clusters)))
	if err != nil {
		return nil, err
	}
	return &listClustersOutput{Clusters: names, NextToken: next}, nil
}

// page cuts one page out of keys, by the query parameters maxResults and nextToken.
func page(r *protocol.Request, keys []string) (page []string, next string, err error) {
	query := r.HTTP.URL.Query()
	slices.Sort(keys)
	if token := query.Get("nextToken"); token != "" {
		last, err := base64.URLEncoding.DecodeString(token)
		at, found := slices.BinarySearch(keys, string(last))
		if err != nil || !found {
			return nil, "", invalid("The nextToken is invalid.")
		}
		keys = keys[at+1:]
	}
	size := 100
	if given := query.Get("maxResults"); given != "" {
		size, err = strconv.Atoi(given)
		if err != nil || size < 1 || size > 100 {
			return nil, "", invalid("maxResults must be between 1 and 100, not %s", given)
		}
	}
	if len(keys) <= size {
		return list(keys), "", nil
	}
	return keys[:size], base64.URLEncoding.EncodeToString([]byte(keys[size-1])), nil
}

// list makes an empty list of none, which JSON would call null.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// epoch is how AWS writes a time in JSON: seconds since 1970.
func epoch(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
