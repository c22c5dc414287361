package world

import (
	"context"
	"sync"

	"github.com/dovetail-k8s/dovetail/lab/node/ccm"
)

// cloudController is the cloud controller manager of a cluster, which a scenario can stop, restart and slow down.
type cloudController struct {
	mu   sync.Mutex
	rate float64                          // of the next one, see ccm.Config
	run  func(rate float64) (stop func()) // starts a manager; stop returns after its exit
	stop func()                           // nil while none runs
}

// newCloudController returns a manager that does not run yet. What it starts works until working finishes.
func (w *World) newCloudController(working context.Context, cfg ccm.Config) *cloudController {
	return &cloudController{run: func(rate float64) func() {
		cfg.Rate = rate
		ctx, cancel := context.WithCancel(working)
		exited := make(chan struct{})
		w.background.Go(func() error {
			defer close(exited)
			return ccm.New(cfg).Run(ctx)
		})
		return func() {
			cancel()
			<-exited
		}
	}}
}

// StartCloudController starts the cloud controller manager, if it does not run.
func (c *Cluster) StartCloudController() {
	c.cloudController.mu.Lock()
	defer c.cloudController.mu.Unlock()
	if c.cloudController.stop == nil {
		c.cloudController.stop = c.cloudController.run(c.cloudController.rate)
	}
}

// StopCloudController stops the cloud controller manager: nodes that join from now on stay uninitialized.
func (c *Cluster) StopCloudController() {
	c.cloudController.mu.Lock()
	defer c.cloudController.mu.Unlock()
	if c.cloudController.stop != nil {
		c.cloudController.stop()
		c.cloudController.stop = nil
	}
}

// SlowCloudController limits how many nodes per second the cloud controller manager initializes from now on; zero
// removes the limit. Without a limit it initializes some hundreds per second.
func (c *Cluster) SlowCloudController(rate float64) {
	c.StopCloudController()
	c.cloudController.mu.Lock()
	c.cloudController.rate = rate
	c.cloudController.mu.Unlock()
	c.StartCloudController()
}
