// Package beside boots what a cluster has where Karpenter runs, so that a takeover by Dovetail can be tried: Karpenter's Deployment with a
// stand-in that acts for it (package incumbent), nodes and instances as Karpenter's conventions leave them, and Deployments for Dovetail.
//
// Containers are never started in the lab. A Stage follows these Deployments instead: who scales one up or down starts or stops what it
// would run.
package beside

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/scenario/incumbent"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// Namespace is where Karpenter is installed, and Dovetail beside it.
const Namespace = "karpenter"

// The Deployments that a Stage follows.
const (
	karpenter = "karpenter"
	dovetail  = "dovetail"
	shadow    = "dovetail-shadow"
)

const (
	pool = "default"
	// image begins the names of the images that the alias al2023@latest stands for on amd64.
	image = "amazon-eks-node-al2023-x86_64-standard-"
	// passInterval is how often the stand-in looks at the cluster, and a Stage at its Deployments.
	passInterval = time.Second
)

// Stage is a cluster where Karpenter runs.
type Stage struct {
	cluster *world.Cluster
	loop    *incumbent.Loop
	lease   *lease
	shadow  *world.Shadow
	log     *slog.Logger

	acts, plans bool // the processes of Dovetail run
}

// New writes Karpenter's objects and those of the sample workload, and launches the node on which controllers run. Nothing acts before
// Run.
func New(ctx context.Context, w *world.World, c *world.Cluster, replicas int) (*Stage, error) {
	if replicas < 0 {
		return nil, fmt.Errorf("a workload of %d pods", replicas)
	}
	c.SetLeaderElectionNamespace(Namespace)
	c.RestartControllerOnExit()
	s := &Stage{cluster: c, lease: newLease(c.Client), log: w.Log()}
	if err := s.associateRole(ctx, w); err != nil {
		return nil, err
	}
	for _, name := range []string{manifests.Karpenter, manifests.AsKarpenter, manifests.Sample} {
		text, err := manifests.Render(name, map[string]string{"CLUSTER_NAME": c.Name, "REPLICAS": fmt.Sprint(replicas)})
		if err != nil {
			return nil, err
		}
		if err := c.Apply(ctx, text); err != nil {
			return nil, err
		}
	}
	controller, err := incumbent.New(ctx, incumbent.Config{
		Kube: c.Client, EC2: w.EC2(), IAM: w.IAM(), EKS: w.EKS(), Region: w.Region(), Cluster: c.Name,
	})
	if err != nil {
		return nil, err
	}
	s.loop = &incumbent.Loop{Controller: controller}
	if s.loop.Image, err = w.ImageID(ctx, image+controller.Version()+"-v"); err != nil {
		return nil, err
	}
	if err := s.loop.Begin(ctx, pool); err != nil {
		return nil, err
	}
	if err := controller.LaunchManaged(ctx, pool); err != nil {
		return nil, err
	}
	s.shadow, err = c.NewShadow(ctx)
	return s, err
}

// associateRole gives Karpenter's ServiceAccount the role of the cluster's autoscaler by EKS Pod Identity.
func (s *Stage) associateRole(ctx context.Context, w *world.World) error {
	role, found := w.AWS.IAM().Role(s.cluster.Role())
	if !found {
		return fmt.Errorf("there is no role %s", s.cluster.Role())
	}
	_, err := w.EKS().CreatePodIdentityAssociation(ctx, &eks.CreatePodIdentityAssociationInput{
		ClusterName: &s.cluster.Name, Namespace: aws.String(Namespace), ServiceAccount: aws.String(karpenter), RoleArn: &role.ARN,
	})
	return err
}

// Run follows the Deployments until ctx is done.
func (s *Stage) Run(ctx context.Context) error {
	leads := false
	ticker := time.NewTicker(passInterval)
	defer ticker.Stop()
	for {
		var err error
		if leads, err = s.standIn(ctx, leads); err == nil {
			err = s.follow(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("the next pass tries again", "cluster", s.cluster.Name, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// standIn has the stand-in act once if Karpenter's Deployment has replicas and the stand-in has the leader lease. It reports whether it has
// the lease.
func (s *Stage) standIn(ctx context.Context, led bool) (leads bool, err error) {
	replicas, err := s.replicas(ctx, karpenter)
	if err != nil {
		return led, err
	}
	if replicas == 0 {
		if led {
			return false, s.lease.release(ctx)
		}
		return false, nil
	}
	if leads, err = s.lease.hold(ctx, time.Now()); err != nil || !leads {
		return leads, err
	}
	if !led {
		if err := s.loop.Begin(ctx, pool); err != nil {
			return false, err
		}
	}
	return true, s.loop.Pass(ctx, pool, time.Now())
}

// follow starts and stops the processes of Dovetail.
func (s *Stage) follow(ctx context.Context) error {
	for _, process := range []struct {
		deployment  string
		runs        *bool
		start, stop func(context.Context) error
	}{
		{dovetail, &s.acts, s.cluster.LaunchController, s.cluster.StopController},
		{shadow, &s.plans, s.shadow.Start, s.shadow.Stop},
	} {
		replicas, err := s.replicas(ctx, process.deployment)
		if err != nil {
			return err
		}
		change := process.start
		if *process.runs {
			change = process.stop
		}
		if *process.runs == (replicas > 0) {
			continue
		}
		if err := change(ctx); err != nil {
			return fmt.Errorf("run %s/%s: %w", Namespace, process.deployment, err)
		}
		*process.runs = replicas > 0
	}
	return nil
}

// replicas is what a Deployment is scaled to; 0 if it is gone.
func (s *Stage) replicas(ctx context.Context, name string) (int32, error) {
	d := &appsv1.Deployment{}
	if err := s.cluster.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, d); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return aws.ToInt32(d.Spec.Replicas), nil
}

// Ready waits until every pod runs.
func (s *Stage) Ready(ctx context.Context) error {
	return world.Until(ctx, func() error {
		var pods corev1.PodList
		if err := s.cluster.Reader.List(ctx, &pods); err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return errors.New("there are no pods yet")
		}
		for _, p := range pods.Items {
			if p.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod %s/%s is %s", p.Namespace, p.Name, p.Status.Phase)
			}
		}
		return nil
	})
}
