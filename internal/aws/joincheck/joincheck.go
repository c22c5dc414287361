// Package joincheck reads from AWS and from the API server what decides whether nodes join, and lets package join check
// it. It only reads. A fact that it is not allowed to read, or that does not arrive in time, counts as unchecked and
// blocks nothing.
package joincheck

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/join"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

const (
	// healthyTTL sets how long a class without a certain finding is not checked again. A check takes about ten calls.
	healthyTTL = 5 * time.Minute
	// faultyTTL is the same for a class with a certain finding, short enough to notice a fix soon.
	faultyTTL = 5 * time.Second
	// clusterTTL sets how long facts about the whole cluster are used. It is just below faultyTTL, so that classes share
	// them and each new check reads them again.
	clusterTTL = 4 * time.Second
	// checkTimeout bounds the calls of one check, because launches wait for it.
	checkTimeout = 15 * time.Second
	// identityTTL sets how long the controller's own role is used. It does not change while the process runs.
	identityTTL = time.Hour
)

// EC2 is the calls of EC2 that a Checker makes.
type EC2 interface {
	ec2.DescribeSubnetsAPIClient
	ec2.DescribeSecurityGroupsAPIClient
	ec2.DescribeRouteTablesAPIClient
	ec2.DescribeInstancesAPIClient
	GetConsoleOutput(context.Context, *ec2.GetConsoleOutputInput, ...func(*ec2.Options)) (*ec2.GetConsoleOutputOutput, error)
}

// EKS is the calls of EKS that a Checker makes.
type EKS interface {
	DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error)
	eks.ListAccessEntriesAPIClient
	DescribeAccessEntry(context.Context, *eks.DescribeAccessEntryInput, ...func(*eks.Options)) (*eks.DescribeAccessEntryOutput, error)
}

// IAM is the calls of IAM that a Checker makes.
type IAM interface {
	GetInstanceProfile(context.Context, *iam.GetInstanceProfileInput, ...func(*iam.Options)) (*iam.GetInstanceProfileOutput, error)
	GetRole(context.Context, *iam.GetRoleInput, ...func(*iam.Options)) (*iam.GetRoleOutput, error)
}

// STS returns the identity of the controller.
type STS interface {
	GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error)
}

// APIServer reads from the cluster itself.
type APIServer interface {
	// AuthMap returns the data of ConfigMap kube-system/aws-auth; found is false if there is none.
	AuthMap(ctx context.Context) (data map[string]string, found bool, err error)
	// NodesOfRole counts the nodes that have joined with a node role, by the name of the role or of an instance
	// profile.
	NodesOfRole(ctx context.Context, role, profile string) (join.Running, error)
	// NodeWebhooks returns the admission webhooks for writes of nodes.
	NodeWebhooks(ctx context.Context) ([]join.Webhook, error)
}

// Config configures a Checker.
type Config struct {
	EC2 EC2
	EKS EKS
	IAM IAM
	STS STS
	// APIServer may be nil: its facts are unchecked then.
	APIServer APIServer
	Cluster   join.Cluster
	// Version returns the current minor version of Kubernetes.
	Version func() string
	// NoIAM is true if IAM cannot be reached.
	NoIAM bool
	Now   func() time.Time
}

// Checker finds what keeps nodes from joining. It is safe for concurrent use.
type Checker struct {
	cfg      Config
	findings *ttlcache.Cache[string, []cloudprovider.Finding]
	clusters *ttlcache.Cache[string, *ekstypes.Cluster]
	callers  *ttlcache.Cache[string, caller]
	// roles are the names of the roles of instance profiles, by profile.
	roles *ttlcache.Cache[string, string]
}

// New returns a Checker. It makes no call.
func New(cfg Config) *Checker {
	return &Checker{
		cfg:      cfg,
		findings: ttlcache.New[string, []cloudprovider.Finding](healthyTTL, cfg.Now),
		clusters: ttlcache.New[string, *ekstypes.Cluster](clusterTTL, cfg.Now),
		callers:  ttlcache.New[string, caller](identityTTL, cfg.Now),
		roles:    ttlcache.New[string, string](identityTTL, cfg.Now),
	}
}

// Class is a resolved node class with its AMI family.
type Class struct {
	*awsv1.EC2NodeClass
	// Family is the AMI family.
	Family string
	// Status is the resolved status; it may be newer than that of the object.
	Status awsv1.EC2NodeClassStatus
}

// CheckNodeClass returns what keeps the instances of a class from joining, as far as that shows before a launch. key
// identifies the class and its generation. The result is cached, a finding only for a short time.
func (c *Checker) CheckNodeClass(ctx context.Context, key string, class Class) []cloudprovider.Finding {
	if known, ok := c.findings.Get(key); ok {
		return known
	}
	found := c.CheckNow(ctx, class)
	ttl := healthyTTL
	if f, ok := cloudprovider.First(found); ok && f.Certainty == cloudprovider.Certain {
		ttl = faultyTTL
	}
	c.findings.SetWithTTL(key, found, ttl)
	return found
}

// InvalidateAll makes the next CheckNodeClass check again, for every class.
func (c *Checker) InvalidateAll() { c.findings.Clear() }

// CheckNow returns what keeps the instances of a class from joining, without the cache.
func (c *Checker) CheckNow(ctx context.Context, class Class) []cloudprovider.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var out []cloudprovider.Finding
	out = append(out, join.CheckRole(c.access(ctx, class))...)
	out = append(out, join.CheckNetwork(c.network(ctx, class))...)
	out = append(out, join.CheckBoot(c.bootConfig(class))...)
	return append(out, c.webhooks(ctx)...)
}

// CheckInstance returns why an instance of a class has not become a node: by its state, its console, and all checks of
// a node class, without the cache.
func (c *Checker) CheckInstance(ctx context.Context, id string, class Class) []cloudprovider.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	instance, err := c.instance(ctx, id, class)
	if err != nil {
		return append(
			c.CheckNow(ctx, class),
			cloudprovider.Finding{
				Cause:     join.InstanceUnchecked,
				Certainty: cloudprovider.Unchecked,
				Message:   "instance " + id + " could not be described: " + errorText(err),
			},
		)
	}
	if ended := join.CheckState(instance); len(ended) > 0 {
		return ended
	}
	roles := join.CheckRole(c.access(ctx, class))
	out := append(roles[:len(roles):len(roles)], c.webhooks(ctx)...)
	text, err := c.console(ctx, id)
	if err != nil {
		out = append(
			out,
			cloudprovider.Finding{
				Cause:     join.ConsoleUnchecked,
				Certainty: cloudprovider.Unchecked,
				Message:   "the console of instance " + id + " could not be read: " + errorText(err),
			},
		)
	}
	for _, f := range join.CheckConsole(instance, text) {
		if !slices.ContainsFunc(roles, func(r cloudprovider.Finding) bool { return !r.NodeJoins }) && f.Cause == join.NodeUnauthorized {
			// The role is mapped correctly now: the rejection may be over, or the API server's own problem.
			f.Certainty = cloudprovider.Likely
		}
		out = append(out, f)
	}
	out = append(out, join.CheckNetwork(c.network(ctx, class))...)
	return append(out, join.CheckBoot(c.bootConfig(class))...)
}

// ClassScope returns the scope of findings about the class itself; each edit makes a new scope.
func ClassScope(class *awsv1.EC2NodeClass) string {
	return fmt.Sprintf("nodeclass/%s/%s/%d", class.Name, class.UID, class.Generation)
}

// Scopes returns the scopes that instances of a class share: a finding in one of them concerns the class.
func (c *Checker) Scopes(class *awsv1.EC2NodeClass) []string {
	out := []string{ClassScope(class), "cluster"}
	if role, known := c.roles.Get(class.Status.InstanceProfile); known {
		out = append(out, join.RoleScope(role))
	} else if class.Spec.Role != "" {
		out = append(out, join.RoleScope(class.Spec.Role))
	}
	if len(class.Status.Subnets) == 1 {
		out = append(out, "subnet/"+class.Status.Subnets[0].ID)
	}
	return out
}

func (c *Checker) webhooks(ctx context.Context) []cloudprovider.Finding {
	if c.cfg.APIServer == nil {
		return join.CheckWebhooks(nil, "access to the API server is not configured")
	}
	hooks, err := c.cfg.APIServer.NodeWebhooks(ctx)
	return join.CheckWebhooks(hooks, errorText(err))
}

// errorText returns the text of an error; empty if there is none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return awserrors.WithoutRequestIDs(err).Error()
}

func deref(s *string) string { return aws.ToString(s) }
