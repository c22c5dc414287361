package scale

import (
	"errors"
	"fmt"
	"time"
)

// Size is how much there is to measure.
type Size struct {
	Nodes int `json:"nodes"`
	// Pods that are bound, those of daemons included.
	Pods int `json:"pods"`
	// Pending is how many pods become pending at once.
	Pending int `json:"pending"`
	// Churn is how many pods are replaced in a second.
	Churn int `json:"churn"`
	// Window is how long the controller is observed at rest, and while pods are replaced.
	Window time.Duration `json:"window"`
}

// DefaultSize is that of the bars.
func DefaultSize() Size {
	return Size{Nodes: 5000, Pods: 100_000, Pending: 30_000, Churn: 100, Window: time.Minute}
}

// The largest size: instances have addresses of three subnets with 8187 each, and those of pending pods need some, too. More pods on a
// node would be so small that they fit into what others leave, and there would be nodes to consolidate.
const (
	maxNodes   = 15_000
	maxPerNode = 30
)

// CheckObjects reports nodes and pods that cannot be written.
func (s Size) CheckObjects() error {
	if s.Nodes < 6 || s.Nodes > maxNodes {
		return fmt.Errorf("%d nodes are not between 6 and %d", s.Nodes, maxNodes)
	}
	if s.perNode() < 3 || s.Pods > maxPerNode*s.Nodes {
		return fmt.Errorf("%d pods on %d nodes are not between %d and %d per node", s.Pods, s.Nodes, 3+daemons, maxPerNode)
	}
	return nil
}

// Check reports sizes that cannot be measured.
func (s Size) Check() error {
	errs := []error{s.CheckObjects()}
	if s.Pending < 1 || s.Churn < 1 {
		errs = append(errs, fmt.Errorf("%d pending pods, %d replaced in a second: must be at least 1", s.Pending, s.Churn))
	}
	if s.Window < time.Second {
		errs = append(errs, fmt.Errorf("window %s is shorter than a second", s.Window))
	}
	return errors.Join(errs...)
}

// perNode is how many pods of Deployments a node has.
func (s Size) perNode() int { return s.Pods/s.Nodes - daemons }
