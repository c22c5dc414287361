package kubelet

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Pods takes the pods of one node through their lives, for a caller that watches pods itself and does the rest of
// kubelet's work. It makes no request until a pod needs one. Observe is safe for concurrent use.
type Pods struct {
	pods *pods

	mu       sync.Mutex
	observed []podEvent
	more     chan struct{} // holds a token while something was observed
}

// NewPods returns the pods of a node that has none yet. Of cfg, it needs Client, Name, IP, PodIPs, Allocatable and
// Stages.
func NewPods(cfg Config) *Pods {
	cfg.Timing = cfg.Timing.withDefaults()
	if cfg.Log == nil {
		cfg.Log = func(byte, string) {}
	}
	return &Pods{pods: newPods(cfg), more: make(chan struct{}, 1)}
}

// Observe takes note of a pod of the node as the API server has it, or had it when it was deleted (gone). It never
// waits.
func (p *Pods) Observe(pod *corev1.Pod, gone bool) {
	p.mu.Lock()
	p.observed = append(p.observed, podEvent{pod: pod, gone: gone})
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// Run works until ctx is done.
func (p *Pods) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { p.deliver(ctx) })
	p.pods.work(ctx)
	wg.Wait()
}

// deliver passes on what was observed, in its order.
func (p *Pods) deliver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.more:
		}
		p.mu.Lock()
		events := p.observed
		p.observed = nil
		p.mu.Unlock()
		for _, e := range events {
			select {
			case <-ctx.Done():
				return
			case p.pods.events <- e:
			}
		}
	}
}
