package world

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"

	"github.com/dovetail-k8s/dovetail/lab/store"
)

// ErrNoController means that the controller does not run.
var ErrNoController = errors.New("the controller does not run")

// Halt stops all that acts on objects besides the controller: scheduler, controller manager, cloud controller manager, EBS CSI driver
// and what runs on instances. The API server and AWS go on. Nodes stay Ready as they are, since nobody looks at their leases.
func (c *Cluster) Halt(ctx context.Context) error {
	c.world.stopInstances()
	c.stopStorage()
	c.StopCloudController()
	return c.controlPlane.StopClients(ctx)
}

// StopClients stops Kubernetes' scheduler and controllers until StartClients.
func (c *Cluster) StopClients(ctx context.Context) error { return c.controlPlane.StopClients(ctx) }

// StartClients starts them again, and returns when they are healthy.
func (c *Cluster) StartClients(ctx context.Context) error { return c.controlPlane.StartClients(ctx) }

// Clientset is a client of the administrator for Kubernetes' own kinds, without a limit of requests.
func (c *Cluster) Clientset() (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(withProtobuf(c.RESTConfig()))
}

// Store connects to the cluster's etcd.
func (c *Cluster) Store() (*store.Store, error) {
	url, settings, err := c.controlPlane.Etcd()
	if err != nil {
		return nil, fmt.Errorf("certificate of etcd: %w", err)
	}
	return store.Open(url, settings)
}

// ControllerPID is the process ID of the controller, or ErrNoController.
func (c *Cluster) ControllerPID() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.controller == nil {
		return 0, ErrNoController
	}
	return c.controller.PID(), nil
}
