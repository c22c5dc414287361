package world

import (
	"context"
	"fmt"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/process"
)

// superviseInterval is how often the supervisor checks for a new controller process.
const superviseInterval = time.Second

// A controller that finishes by itself is started again: at once if it lived for backoffResetAfter, else after minBackoff,
// and after twice as long each time, up to maxBackoff, as a kubelet does with a container in CrashLoopBackOff.
const (
	backoffResetAfter = 10 * time.Second
	minBackoff        = time.Second
	maxBackoff        = 30 * time.Second
)

// ControllerExits counts the unexpected exits of a controller.
type ControllerExits struct {
	// Times is their number since the cluster booted.
	Times int
	// Last is the exit status of the last one, At its time.
	Last string
	At   time.Time
}

// UnexpectedExits returns the unexpected exits of the controller.
func (c *Cluster) UnexpectedExits() ControllerExits {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exits
}

// awaitFailure waits for the end of a process of the cluster that nobody has stopped, or of ctx. It starts a controller
// that is kept (see RestartControllerOnExit) again.
func (c *Cluster) awaitFailure(ctx context.Context) error {
	var pause time.Duration
	for {
		c.mu.Lock()
		p, since := c.controller, c.startedAt
		c.mu.Unlock()
		var exited <-chan struct{}
		if p != nil {
			exited = p.Done()
		}
		// A controller that is started or stopped meanwhile is noticed at the next look.
		look := time.NewTimer(superviseInterval)
		select {
		case <-ctx.Done():
			look.Stop()
			return nil
		case <-c.controlPlane.Done():
			look.Stop()
			return c.controlPlane.Err()
		case <-exited:
			look.Stop()
			unexpected, restart := c.recordExit(p)
			switch {
			case unexpected && !restart:
				return fmt.Errorf("cluster %s: %w", c.Name, p.ExitError())
			case unexpected:
				pause = nextBackoff(pause, time.Since(since))
				c.restart(ctx, p, pause)
			}
		case <-look.C:
		}
	}
}

// nextBackoff is how long to wait before the next start of a controller that lived that long; the last wait was pause.
func nextBackoff(pause, lived time.Duration) time.Duration {
	if lived >= backoffResetAfter {
		return 0
	}
	return min(max(2*pause, minBackoff), maxBackoff)
}

// recordExit records an exit. It reports whether the exit was unexpected, and whether the controller restarts.
func (c *Cluster) recordExit(p *process.Process) (unexpected, restart bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if unexpected = c.controller == p; unexpected {
		c.exits = ControllerExits{Times: c.exits.Times + 1, Last: p.ExitStatus(), At: time.Now()}
	}
	return unexpected, c.restartOnExit
}

// restart restarts an exited controller after a pause. It retries until one starts, since the API server
// may be away; or until somebody stops the controller, the control plane finishes, or ctx does.
func (c *Cluster) restart(ctx context.Context, exited *process.Process, pause time.Duration) {
	c.world.log.Warn("the controller exited and restarts", "cluster", c.Name, "error", exited.ExitError(), "pause", pause)
	for ; ; pause = superviseInterval {
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-c.controlPlane.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		c.mu.Lock()
		stopped := c.controller != exited
		c.mu.Unlock()
		if stopped {
			return
		}
		err := c.LaunchController(ctx)
		if err == nil {
			return
		}
		c.world.log.Warn("the controller cannot be started", "cluster", c.Name, "error", err)
	}
}
