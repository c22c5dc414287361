// Package ccm simulates the node controllers of the AWS cloud controller manager.
//
// It finishes nodes that registered themselves with the taint
// node.cloudprovider.kubernetes.io/uninitialized: as soon as EC2 shows the instance running, it writes
// what only the cloud knows (zone, region, instance type, addresses) and removes the taint. And it deletes
// or taints the Nodes of stopped instances: a node that stopped reporting is deleted if its instance was
// terminated, and tainted if it was stopped.
//
// It ignores Nodes with a provider ID that does not name an EC2 instance.
package ccm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	cloudprovider "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"
)

// EC2 is the part of the EC2 API that the manager calls.
type EC2 interface {
	DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error)
}

// Config is what a manager needs; fields without a default are required.
type Config struct {
	// Client is the user that authn.CloudControllerManager names, or one with its permissions.
	Client kubernetes.Interface
	EC2    EC2
	Region string
	// Delay is the time from a node's registration until it is looked at; default 500 ms.
	Delay time.Duration
	// Rate is how many nodes are initialized in a second at most, one after another, as where EC2 throttles the manager.
	// Zero sets no limit: the manager works on many nodes at a time, and does some hundreds a second.
	Rate float64
	// Monitor is the interval at which nodes that stopped reporting are looked at; default 5 s.
	Monitor time.Duration
	Log     *slog.Logger // default discards
}

// workers is how many nodes are worked on at a time. A node takes three calls to the API server and one to EC2, all of
// which wait.
const workers = 50

// Manager is the cloud controller manager of one cluster.
type Manager struct {
	cfg     Config
	queue   workqueue.TypedRateLimitingInterface[string]
	limiter flowcontrol.RateLimiter
	written versions
}

// New returns a manager that has not talked to anyone.
func New(cfg Config) *Manager {
	if cfg.Delay == 0 {
		cfg.Delay = 500 * time.Millisecond
	}
	if cfg.Monitor == 0 {
		cfg.Monitor = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	pace := flowcontrol.NewFakeAlwaysRateLimiter()
	if cfg.Rate > 0 {
		pace = flowcontrol.NewTokenBucketRateLimiter(float32(cfg.Rate), 1)
	}
	return &Manager{cfg: cfg, limiter: pace, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](200*time.Millisecond, 10*time.Second),
	)}
}

// Run works until ctx is done. A manager runs once.
func (m *Manager) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(m.cfg.Log.Handler()))
	factory := informers.NewSharedInformerFactory(m.cfg.Client, 0)
	nodes := factory.Core().V1().Nodes()
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { m.enqueue(o) },
		UpdateFunc: func(_, o any) { m.enqueue(o) },
		DeleteFunc: m.written.forget,
	}); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	defer factory.Shutdown()
	stop := context.AfterFunc(ctx, m.queue.ShutDown)
	defer stop()
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), nodes.Informer().HasSynced) {
		return nil
	}
	monitored := make(chan struct{})
	go func() {
		defer close(monitored)
		m.monitor(ctx, nodes.Lister())
	}()
	var working sync.WaitGroup
	for range workers {
		working.Go(func() { m.work(ctx, nodes.Lister()) })
	}
	working.Wait()
	<-monitored
	return nil
}

// work takes nodes from the queue until it is shut down.
func (m *Manager) work(ctx context.Context, nodes corelisters.NodeLister) {
	for {
		name, shutdown := m.queue.Get()
		if shutdown {
			return
		}
		m.process(ctx, nodes, name)
	}
}

func (m *Manager) enqueue(o any) {
	node, ok := o.(*corev1.Node)
	if ok && uninitialized(node) && instanceID(node) != "" {
		m.queue.AddAfter(node.Name, m.cfg.Delay)
	}
}

func (m *Manager) process(ctx context.Context, nodes corelisters.NodeLister, name string) {
	defer m.queue.Done(name)
	switch err := m.initialize(ctx, nodes, name); {
	case err == nil:
		m.queue.Forget(name)
	case ctx.Err() == nil:
		m.cfg.Log.Debug("node not initialized yet", "node", name, "reason", err.Error())
		m.queue.AddRateLimited(name)
	}
}

// initialize writes what the cloud knows about a node and then removes the taint, on the condition that nobody changed the node
// meanwhile. The first write returns the node as it is, so it is not read before. An error means that it is to be tried again.
func (m *Manager) initialize(ctx context.Context, nodes corelisters.NodeLister, name string) error {
	// Every change of a node enqueues it until it is seen to be initialized. Most need no request.
	cached, err := nodes.Get(name)
	if apierrors.IsNotFound(err) || err == nil && (!uninitialized(cached) || m.written.newerThan(cached)) {
		return nil
	}
	if err != nil {
		return err
	}
	node := cached.DeepCopy()
	if err := m.limiter.Wait(ctx); err != nil {
		return err
	}
	id := instanceID(node)
	found, err := m.describe(ctx, id)
	if err != nil {
		return err
	}
	if found == nil || found.State.Name != ec2types.InstanceStateNameRunning {
		return fmt.Errorf("instance %s is not running, or not visible yet", id)
	}
	if err := m.patchStatus(ctx, node, func(n *corev1.Node) { setAddresses(n, *found) }); err != nil {
		return fmt.Errorf("set addresses: %w", err)
	}
	if err := m.patch(ctx, node, func(n *corev1.Node) {
		setLabels(n, *found, m.cfg.Region)
		n.Spec.Taints = without(n.Spec.Taints, cloudprovider.TaintExternalCloudProvider)
	}); err != nil {
		return err
	}
	m.written.remember(node)
	return nil
}

// monitor looks, again and again, at the instances of nodes that do not report.
func (m *Manager) monitor(ctx context.Context, nodes corelisters.NodeLister) {
	tick := time.NewTicker(m.cfg.Monitor)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := m.sweep(ctx, nodes); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("look for nodes without instance", "error", err.Error())
		}
	}
}

func (m *Manager) sweep(ctx context.Context, nodes corelisters.NodeLister) error {
	all, err := nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	var failures []error
	for _, node := range all {
		if id := instanceID(node); id != "" && !reports(node) {
			if err := m.check(ctx, node, id); err != nil {
				failures = append(failures, fmt.Errorf("node %s: %w", node.Name, err))
			}
		}
	}
	return errors.Join(failures...)
}

// check stops the node of a terminated instance and marks that of a stopped one.
func (m *Manager) check(ctx context.Context, node *corev1.Node, id string) error {
	found, err := m.describe(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case found == nil || found.State.Name == ec2types.InstanceStateNameTerminated:
		m.cfg.Log.Info("deleting node because it does not exist in the cloud provider", "node", node.Name, "instance", id)
		err := m.cfg.Client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	case found.State.Name == ec2types.InstanceStateNameStopped && !hasTaint(node, cloudprovider.TaintNodeShutdown):
		return m.patch(ctx, node.DeepCopy(), func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: cloudprovider.TaintNodeShutdown, Effect: corev1.TaintEffectNoSchedule})
		})
	}
	return nil
}

// describe returns an instance, or nil if EC2 does not know it.
func (m *Manager) describe(ctx context.Context, id string) (*ec2types.Instance, error) {
	out, err := m.cfg.EC2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	var failure smithy.APIError
	if errors.As(err, &failure) && failure.ErrorCode() == "InvalidInstanceID.NotFound" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("describe instance %s: %w", id, err)
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			if i.State != nil && i.Placement != nil {
				return &i, nil
			}
		}
	}
	return nil, nil
}
