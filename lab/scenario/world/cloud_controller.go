package world

import (
	"context"
	"sync"

	"github.com/dovetail-k8s/dovetail/lab/node/ccm"
)

// cloudController is the cloud controller manager of a cluster, which a story may be without for a while.
type cloudController struct {
	mu   sync.Mutex
	rate float64                         // of the next one, see ccm.Config
	run  func(rate float64) (end func()) // starts one; end returns when it has ended
	stop func()                          // nil while none runs
}

// newCloudController returns a manager that does not run yet. What it starts works until working ends.
func (w *World) newCloudController(working context.Context, cfg ccm.Config) *cloudController {
	return &cloudController{run: func(rate float64) func() {
		cfg.Rate = rate
		ctx, cancel := context.WithCancel(working)
		ended := make(chan struct{})
		w.background.Go(func() error {
			defer close(ended)
			return ccm.New(cfg).Run(ctx)
		})
		return func() {
			cancel()
			<-ended
		}
	}}
}

// StartCloudController has the cloud controller manager work, if it does not.
func (c *Cluster) StartCloudController() {
	c.cloudController.mu.Lock()
	defer c.cloudController.mu.Unlock()
	if c.cloudController.stop == nil {
		c.cloudController.stop = c.cloudController.run(c.cloudController.rate)
	}
}

// StopCloudController ends the cloud controller manager: nodes that join from now on stay uninitialized.
func (c *Cluster) StopCloudController() {
	c.cloudController.mu.Lock()
	defer c.cloudController.mu.Unlock()
	if c.cloudController.stop != nil {
		c.cloudController.stop()
		c.cloudController.stop = nil
	}
}

// SlowCloudController has the cloud controller manager initialize so many nodes a second at most, from now on; zero sets no limit.
// Without it, some hundreds a second are initialized.
func (c *Cluster) SlowCloudController(rate float64) {
	c.StopCloudController()
	c.cloudController.mu.Lock()
	c.cloudController.rate = rate
	c.cloudController.mu.Unlock()
	c.StartCloudController()
}
