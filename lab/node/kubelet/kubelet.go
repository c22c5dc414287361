// Package kubelet simulates kubelet: it makes the API calls of a kubelet without running containers.
//
// A [Kubelet] registers its node, renews the node's Lease, posts its status, and takes the pods that
// are bound to it through their lives: admission, start, readiness, completion, graceful deletion.
// What pods go through is data: stages in the format of kwok, see stages.yaml, which a caller may
// replace. All calls are made with the node's own client, so the API server's Node authorizer and
// NodeRestriction plugin decide what is allowed, as for a real node.
package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// callTimeout bounds a call, or the calls of one stage of a pod, to an API server that does not answer.
const callTimeout = 30 * time.Second

// Timing is how long a kubelet takes for things; zero fields have kubelet's defaults.
type Timing struct {
	// Ready is the time from registration until the container network is up and the node is Ready; default 500 ms.
	Ready time.Duration
	// Lease is the interval between renewals of the Lease; default 20 s. It expires after two of them, which is kubelet's
	// default, too. kubelet renews twice as often by default. Kubernetes notices a node that stops after 50 s without a renewal, so that
	// one may still fail; and in a fleet of a thousand, renewals are a fifth of all requests.
	Lease time.Duration
	// Status is the interval at which the node's status is compared with what it should be; default 10 s.
	Status time.Duration
	// Report is the interval at which the status is posted although nothing changed; default 5 min.
	Report time.Duration
	// Unmount is how long it takes to unmount a volume; default 1 s.
	Unmount time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		field    *time.Duration
		fallback time.Duration
	}{
		{&t.Ready, 500 * time.Millisecond},
		{&t.Lease, 20 * time.Second},
		{&t.Status, 10 * time.Second},
		{&t.Report, 5 * time.Minute},
		{&t.Unmount, time.Second},
	} {
		if *f.field == 0 {
			*f.field = f.fallback
		}
	}
	return t
}

// Config is a kubelet's configuration and knowledge of its instance.
type Config struct {
	// Client talks to the API server as the node.
	Client kubernetes.Interface
	// Name of the node; the API server holds the client to it.
	Name       string
	ProviderID string
	// IP is the node's address.
	IP netip.Addr
	// PodIPs is the range that pods get their addresses from.
	PodIPs netip.Prefix
	// Labels and Taints that the node is registered with, beside those that every kubelet sets.
	Labels map[string]string
	Taints []corev1.Taint
	// Capacity and Allocatable as they are from the start.
	Capacity, Allocatable corev1.ResourceList
	// Devices are extended resources, which a device plugin reports when the node is ready.
	Devices corev1.ResourceList
	Info    corev1.NodeSystemInfo
	Stages  *Stages
	Timing  Timing
	// Network is closed when the network plugin has come up; nil if it comes up in time. Until then the node reports that
	// it is not Ready: cni plugin not initialized.
	Network <-chan struct{}
	// Leases renews the lease of the node; nil has the kubelet renew it by requests.
	Leases Leases
	// PodFault returns what is wrong with a pod on this node, see stages.yaml; empty if nothing is. Nil has all pods run.
	PodFault func(*corev1.Pod) string
	// Pressure are conditions of the node that become True so long after kubelet has started.
	Pressure map[corev1.NodeConditionType]time.Duration
	// Log receives what a kubelet logs, a line at a time: a severity (I, W, E, F), and the text.
	Log func(severity byte, text string)
}

// Leases renews leases of nodes.
type Leases interface {
	// Keep keeps the lease of a node alive until ctx is done, while there is a Node. Two renewals are an interval apart.
	Keep(ctx context.Context, name string, interval time.Duration, node func() *corev1.Node)
}

// Kubelet is the agent of one node.
type Kubelet struct {
	cfg  Config
	own  ownNode
	pods *pods
	// started is when Run was called.
	started time.Time
	// reported is the last problem of the status loop, so that it is logged once.
	reported string
}

// New returns a kubelet that has not talked to anyone.
func New(cfg Config) *Kubelet {
	cfg.Timing = cfg.Timing.withDefaults()
	if cfg.Log == nil {
		cfg.Log = func(byte, string) {}
	}
	return &Kubelet{cfg: cfg, pods: newPods(cfg)}
}

// Run registers the node and works until ctx is done, as when the instance loses power: nothing is stated
// to the API server about it. It does not register again if the Node is deleted.
func (k *Kubelet) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.Discard())
	k.started = time.Now()
	if !k.register(ctx) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { k.own.watch(ctx, k.cfg) })
	wg.Go(func() { k.renewLease(ctx) })
	wg.Go(func() { k.postStatus(ctx) })
	wg.Go(func() { k.pods.run(ctx) })
	wg.Wait()
}

func (k *Kubelet) logf(severity byte, format string, args ...any) {
	k.cfg.Log(severity, fmt.Sprintf(format, args...))
}

// pause waits for d and reports false if ctx is done first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
