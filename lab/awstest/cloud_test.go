package awstest

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dovetail-k8s/dovetail/internal/aws/adapter"
	"github.com/dovetail-k8s/dovetail/internal/aws/bootstrap"
	"github.com/dovetail-k8s/dovetail/internal/aws/ekscluster"
	"github.com/dovetail-k8s/dovetail/internal/aws/interruption"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclaim"
	"github.com/dovetail-k8s/dovetail/internal/aws/nodeclass"
	"github.com/dovetail-k8s/dovetail/internal/aws/offerings"
	"github.com/dovetail-k8s/dovetail/internal/aws/preflight"
	"github.com/dovetail-k8s/dovetail/internal/aws/zonalshift"
)

// cloud has all parts of the AWS adapter under one name, so that a test can use it as any controller does.
type cloud struct {
	*preflight.Checker
	*nodeclass.Resolver
	*nodeclass.Resources
	*nodeclass.JoinChecks
	*offerings.Source
	*nodeclaim.Launcher
	*nodeclaim.DriftDetector
	*zonalshift.Instances
	*zonalshift.Rebooter
	*interruption.StatusReader
	*zonalshift.Follower

	eks *ekscluster.Cluster
	cfg adapter.Config
}

func newCloud(cfg adapter.Config) (*cloud, error) {
	a, err := adapter.New(cfg)
	if err != nil {
		return nil, err
	}
	return &cloud{
		a.Preflight, a.NodeClasses, a.Resources, a.Joins, a.Offerings, a.Launcher, a.Drift, a.Instances, a.Rebooter,
		a.InstanceStatus, a.ZonalShift, a.Cluster, cfg,
	}, nil
}

// Cluster is what nodes need to know of the cluster to join it.
func (c *cloud) Cluster() bootstrap.Cluster { return c.eks.Bootstrap() }

// KubernetesVersion is the minor version that images are chosen for.
func (c *cloud) KubernetesVersion() string { return c.eks.KubernetesVersion() }

// RefreshVersion reads the version of Kubernetes again.
func (c *cloud) RefreshVersion(ctx context.Context) error { return c.eks.RefreshVersion(ctx) }

// InterruptionQueue is the SQS queue of that name.
func (c *cloud) InterruptionQueue(name string) *interruption.Queue {
	return interruption.NewQueue(sqs.NewFromConfig(c.cfg.AWS), name)
}
