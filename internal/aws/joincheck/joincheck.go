// Package joincheck reads from AWS and from the API server what decides whether nodes join, and has package join
// judge it. It only reads. What may not be read, or does not answer in time, counts as not checked and keeps
// nothing from going on.
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
	"github.com/dovetail-k8s/dovetail/internal/aws/memo"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

const (
	// healthyTTL is how long a class in which no certain fault was found is not looked at again.
	healthyTTL = 5 * time.Minute
	// faultyTTL is the same for one with a certain fault, so that it recovers soon after it was mended.
	faultyTTL = 5 * time.Second
	// clusterTTL is how long what is true of the whole cluster is believed.
	clusterTTL = 4 * time.Second
	// patience bounds the calls of one look.
	checkTimeout = 15 * time.Second
	// identityTTL is how long the controller's own role is believed.
	identityTTL = time.Hour
)

// EC2 is what a Checker calls of EC2.
type EC2 interface {
	ec2.DescribeSubnetsAPIClient
	ec2.DescribeSecurityGroupsAPIClient
	ec2.DescribeRouteTablesAPIClient
	ec2.DescribeInstancesAPIClient
	GetConsoleOutput(context.Context, *ec2.GetConsoleOutputInput, ...func(*ec2.Options)) (*ec2.GetConsoleOutputOutput, error)
}

// EKS is what a Checker calls of EKS.
type EKS interface {
	DescribeCluster(context.Context, *eks.DescribeClusterInput, ...func(*eks.Options)) (*eks.DescribeClusterOutput, error)
	eks.ListAccessEntriesAPIClient
	DescribeAccessEntry(context.Context, *eks.DescribeAccessEntryInput, ...func(*eks.Options)) (*eks.DescribeAccessEntryOutput, error)
}

// IAM is what a Checker calls of IAM.
type IAM interface {
	GetInstanceProfile(context.Context, *iam.GetInstanceProfileInput, ...func(*iam.Options)) (*iam.GetInstanceProfileOutput, error)
	GetRole(context.Context, *iam.GetRoleInput, ...func(*iam.Options)) (*iam.GetRoleOutput, error)
}

// STS tells who the controller is.
type STS interface {
	GetCallerIdentity(context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error)
}

// APIServer reads of the cluster itself.
type APIServer interface {
	// AuthMap is the data of ConfigMap kube-system/aws-auth; found is false if there is none.
	AuthMap(ctx context.Context) (data map[string]string, found bool, err error)
	// NodesOfRole counts the nodes that have joined with a node role, by the role's name or that of an instance profile.
	NodesOfRole(ctx context.Context, role, profile string) (join.Running, error)
	// NodeWebhooks are the admission webhooks that are asked about writes of nodes.
	NodeWebhooks(ctx context.Context) ([]join.Webhook, error)
}

// Config is what a Checker is made of.
type Config struct {
	EC2 EC2
	EKS EKS
	IAM IAM
	STS STS
	// APIServer may be nil: what it would tell is not checked then.
	APIServer APIServer
	Cluster   join.Cluster
	// Version is the minor version of Kubernetes as it is now.
	Version func() string
	// NoIAM is true where IAM cannot be reached.
	NoIAM bool
	Now   func() time.Time
}

// Checker looks for what keeps nodes from joining. It is safe for concurrent use.
type Checker struct {
	cfg      Config
	findings *memo.Memo[string, []cloudprovider.Finding]
	clusters *memo.Memo[string, *ekstypes.Cluster]
	callers  *memo.Memo[string, caller]
	// roles are the names of the roles of instance profiles, by profile.
	roles *memo.Memo[string, string]
}

// New returns a Checker. It calls nobody.
func New(cfg Config) *Checker {
	return &Checker{
		cfg:      cfg,
		findings: memo.New[string, []cloudprovider.Finding](healthyTTL, cfg.Now),
		clusters: memo.New[string, *ekstypes.Cluster](clusterTTL, cfg.Now),
		callers:  memo.New[string, caller](identityTTL, cfg.Now),
		roles:    memo.New[string, string](identityTTL, cfg.Now),
	}
}

// Class is a node class as it was resolved, with its image family.
type Class struct {
	*awsv1.EC2NodeClass
	// Family is the image family.
	Family string
	// Status is what the class has come to; it may be newer than that of the object.
	Status awsv1.EC2NodeClassStatus
}

// NodeClass says what keeps the instances of a class from joining, as far as that shows before one is launched. key
// names the class and its generation; an answer is believed for a while, a fault not for long.
func (c *Checker) NodeClass(ctx context.Context, key string, class Class) []cloudprovider.Finding {
	if known, ok := c.findings.Get(key); ok {
		return known
	}
	found := c.Look(ctx, class)
	ttl := healthyTTL
	if f, ok := cloudprovider.First(found); ok && f.Certainty == cloudprovider.Certain {
		ttl = faultyTTL
	}
	c.findings.SetWithTTL(key, found, ttl)
	return found
}

// ForgetAll makes the next call of NodeClass look again, whatever the class.
func (c *Checker) ForgetAll() { c.findings.Clear() }

// Look says what keeps the instances of a class from joining, as of now.
func (c *Checker) Look(ctx context.Context, class Class) []cloudprovider.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var out []cloudprovider.Finding
	out = append(out, join.CheckRole(c.access(ctx, class))...)
	out = append(out, join.CheckNetwork(c.network(ctx, class))...)
	out = append(out, join.CheckBoot(c.bootConfig(class))...)
	return append(out, c.webhooks(ctx)...)
}

// Instance says why an instance of a class has not become a node: by what became of it, by its console, and by
// everything that is asked before a launch, anew.
func (c *Checker) Instance(ctx context.Context, id string, class Class) []cloudprovider.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	instance, err := c.instance(ctx, id, class)
	if err != nil {
		return append(c.Look(ctx, class), cloudprovider.Finding{Cause: join.InstanceUnchecked, Certainty: cloudprovider.Unchecked, Message: "instance " + id + " could not be described: " + errorText(err)})
	}
	if ended := join.CheckState(instance); len(ended) > 0 {
		return ended
	}
	roles := join.CheckRole(c.access(ctx, class))
	out := append(roles[:len(roles):len(roles)], c.webhooks(ctx)...)
	text, err := c.console(ctx, id)
	if err != nil {
		out = append(out, cloudprovider.Finding{Cause: join.ConsoleUnchecked, Certainty: cloudprovider.Unchecked, Message: "the console of instance " + id + " could not be read: " + errorText(err)})
	}
	for _, f := range join.CheckConsole(instance, text) {
		if !slices.ContainsFunc(roles, func(r cloudprovider.Finding) bool { return !r.Joins }) && f.Cause == join.NodeUnauthorized {
			// The role is mapped as it should be, as of now: the refusal may be over, or the API server's own trouble.
			f.Certainty = cloudprovider.Likely
		}
		out = append(out, f)
	}
	out = append(out, join.CheckNetwork(c.network(ctx, class))...)
	return append(out, join.CheckBoot(c.bootConfig(class))...)
}

// ClassScope is the scope of what a class itself is to blame for; an edit makes another of it.
func ClassScope(class *awsv1.EC2NodeClass) string {
	return fmt.Sprintf("nodeclass/%s/%s/%d", class.Name, class.UID, class.Generation)
}

// Scopes are what instances of a class have in common with others: a fault in one of them concerns the class.
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

// plain is the text of an error; empty if there is none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return awserrors.Plain(err).Error()
}

func deref(s *string) string { return aws.ToString(s) }
