// Package preflight checks, when a process starts, that AWS can be used for this cluster: EC2 answers, the cluster's name is
// this cluster's, and the controller's role has the permissions to read EC2.
package preflight

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/session"
)

// Checker makes the checks.
type Checker struct {
	ec2     *ec2.Client
	cluster *ekscluster.Cluster
	region  string
}

// New returns a Checker for a cluster in a region. It makes no calls.
func New(api *ec2.Client, cluster *ekscluster.Cluster, region string) *Checker {
	return &Checker{ec2: api, cluster: cluster, region: region}
}

// Preflight checks that EC2 can be called, then has the cluster discovered: see ekscluster.Cluster.Discover. The error is an
// *ekscluster.IdentityMismatchError when the cluster's name belongs to another cluster.
func (c *Checker) Preflight(ctx context.Context, local ekscluster.APIServer) error {
	_, err := c.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)})
	if err != nil && !awserrors.Is(err, awserrors.DryRun) {
		return session.Explain(session.Call{Service: "ec2", Action: "DescribeInstanceTypes"}, c.region, err)
	}
	return c.cluster.Discover(ctx, local)
}
