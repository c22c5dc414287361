package controlplane

import (
	"context"
	"crypto/tls"

	"golang.org/x/sync/errgroup"

	"github.com/dovetail-k8s/dovetail/lab/process"
)

// StopClients stops the scheduler and the controller manager until StartClients: what is written meanwhile, nobody but
// the caller acts on.
func (c *Cluster) StopClients(ctx context.Context) error {
	c.restartMu.Lock()
	defer c.restartMu.Unlock()
	c.mu.Lock()
	var running []*process.Process
	for _, component := range []string{scheduler, controllerManager} {
		c.stopped[component] = true
		if p := c.processes[component]; p != nil {
			running = append(running, p)
		}
	}
	c.mu.Unlock()
	var group errgroup.Group
	for _, p := range running {
		group.Go(func() error { return p.Stop(ctx) })
	}
	return group.Wait()
}

// StartClients starts the scheduler and the controller manager after StopClients, and returns when both are healthy.
func (c *Cluster) StartClients(ctx context.Context) error {
	c.restartMu.Lock()
	defer c.restartMu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.run(ctx, controllerManager, c.controllerManagerArgs(), c.podsAccepted) })
	group.Go(func() error {
		return c.run(ctx, scheduler, c.schedulerArgs(), respondsOK(anonymousHTTP(c.ca), c.ports[scheduler].url()+"/readyz"))
	})
	return group.Wait()
}

// Etcd is the URL of the cluster's etcd, and the certificate that it accepts.
func (c *Cluster) Etcd() (string, *tls.Config, error) {
	settings, err := c.state.etcdTLS()
	return c.ports[etcd].url(), settings, err
}
