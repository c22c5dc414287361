package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/node/heartbeat"
	"github.com/dovetail-k8s/dovetail/lab/node/kubelet"
	"github.com/dovetail-k8s/dovetail/lab/store"
)

const (
	// leaseInterval is how often the lease of a node is renewed, as the simulated kubelet does.
	leaseInterval = 20 * time.Second
	// readyInterval is how long a node that is not Ready waits for its next report.
	readyInterval = 10 * time.Second
)

// kubelets does the work of the kubelets of all written nodes. A node of its own simulator has connections, watches and
// requests of its own; here one loop writes the leases of all nodes to etcd, one loop reports their statuses, and the
// watch of the world shows the pods of all. Only a node with a pod that starts or finishes gets goroutines.
type kubelets struct {
	client kubernetes.Interface
	store  *store.Store
	stages *kubelet.Stages
	log    *slog.Logger

	mu    sync.Mutex
	nodes map[string]*writtenNode // by name, until their instances stop
}

// writtenNode is a node that was written, with an instance that has not stopped.
type writtenNode struct {
	host
	allocatable corev1.ResourceList
	created     metav1.Time
	needed      chan struct{} // closed when a pod needs kubelet

	// The lock of kubelets is for these.
	running           bool                      // the instance runs
	node              *corev1.Node              // as the API server has it, not to be changed; nil if it does not
	renewed, reported time.Time                 // when the lease and the status were written last
	resting           map[types.UID]*corev1.Pod // the node's pods, while none of them needs kubelet
	pods              *kubelet.Pods             // nil while none needs it
}

func newKubelets(c kubernetes.Interface, s *store.Store, log *slog.Logger) (*kubelets, error) {
	defaults, err := kubelet.DefaultStages()
	if err != nil {
		return nil, err
	}
	stages, err := kubelet.NewStages(defaults)
	return &kubelets{client: c, store: s, stages: stages, log: log, nodes: map[string]*writtenNode{}}, err
}

// add takes over a node that is about to be written, like a sample.
func (k *kubelets) add(h host, s *sample) *writtenNode {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := &writtenNode{
		host: h, allocatable: s.nodeObject.Status.Allocatable, created: metav1.Now(), needed: make(chan struct{}),
		resting: map[types.UID]*corev1.Pod{},
	}
	k.nodes[h.name] = n
	return n
}

// power is what the instance of a node runs, until it stops.
func (k *kubelets) power(ctx context.Context, n *writtenNode) {
	k.mu.Lock()
	n.running = true
	k.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-n.needed:
		n.pods.Run(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.nodes, n.name) // the next instance with its address is another node
}

// see takes note of an object of the cluster. It never waits.
func (k *kubelets) see(o client.Object, gone bool) {
	switch o := o.(type) {
	case *corev1.Node:
		k.seeNode(o, gone)
	case *corev1.Pod:
		k.seePod(o, gone)
	}
}

func (k *kubelets) seeNode(node *corev1.Node, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[node.Name]
	switch {
	case n == nil || node.UID != nodeUID(n.name):
	case gone:
		n.node = nil
	default:
		n.node = node
	}
}

func (k *kubelets) seePod(pod *corev1.Pod, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[pod.Spec.NodeName]
	switch {
	case n == nil:
	case n.pods != nil:
		n.pods.Observe(pod, gone)
	case gone:
		delete(n.resting, pod.UID)
	default:
		n.resting[pod.UID] = pod
		if !atRest(pod) {
			k.startPods(n)
		}
	}
}

// atRest reports whether a kubelet has nothing to do for a pod until it is deleted: it is Ready, and does not end by
// itself.
func atRest(p *corev1.Pod) bool {
	return ready(p) && p.Spec.RestartPolicy == corev1.RestartPolicyAlways
}

// startPods has a node run its pods from now on. The lock must be held.
func (k *kubelets) startPods(n *writtenNode) {
	ip, err := netip.ParseAddr(n.instance.PrivateIP)
	if err != nil {
		k.log.Error("address of a written node", "node", n.name, "error", err)
		return
	}
	n.pods = kubelet.NewPods(kubelet.Config{
		Client: k.client, Name: n.name, IP: ip, PodIPs: laterPodRange(n.number), Allocatable: n.allocatable, Stages: k.stages,
	})
	for _, pod := range n.resting {
		n.pods.Observe(pod, false)
	}
	n.resting = nil
	close(n.needed)
}

// run renews leases and reports statuses until ctx is done. What fails is tried again with the next turn.
func (k *kubelets) run(ctx context.Context) error {
	var group sync.WaitGroup
	for what, do := range map[string]func(context.Context) error{"renew leases": k.renewDue, "report statuses": k.reportDue} {
		group.Go(func() {
			_ = eachSecond(ctx, func(ctx context.Context, _ int) error {
				if err := do(ctx); err != nil && ctx.Err() == nil {
					k.log.Warn("kubelets of written nodes", "task", what, "error", err)
				}
				return nil
			})
		})
	}
	group.Wait()
	return nil
}

// due returns the nodes of which something is due.
func (k *kubelets) due(is func(n *writtenNode) bool) []*writtenNode {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []*writtenNode
	for _, n := range k.nodes {
		if is(n) {
			out = append(out, n)
		}
	}
	return out
}

// begin writes the leases of all nodes. The turns of the nodes are spread over the intervals from then on.
func (k *kubelets) begin(ctx context.Context) error {
	now := time.Now()
	all := k.due(func(*writtenNode) bool { return true })
	if err := k.renew(ctx, all, now); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	spread := func(n *writtenNode, interval time.Duration) time.Time {
		return now.Add(-time.Duration(n.number) * time.Second % interval)
	}
	for _, n := range all {
		n.renewed, n.reported = spread(n, leaseInterval), spread(n, statusInterval)
	}
	return nil
}

func (k *kubelets) renewDue(ctx context.Context) error {
	now := time.Now()
	// A node without an object has no lease: the garbage collector deletes it.
	return k.renew(ctx, k.due(func(n *writtenNode) bool {
		return n.running && n.node != nil && now.Sub(n.renewed) >= leaseInterval
	}), now)
}

func (k *kubelets) renew(ctx context.Context, nodes []*writtenNode, now time.Time) error {
	err := k.store.Write(ctx, len(nodes), func(i int) (store.Object, error) { return nodes[i].lease(now) })
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range nodes {
		n.renewed = now
	}
	return nil
}

func (n *writtenNode) lease(now time.Time) (store.Object, error) {
	key := heartbeat.Key(n.name)
	return heartbeat.Lease{Node: n.name, NodeUID: nodeUID(n.name), UID: newUID(key), Created: n.created, Interval: leaseInterval}.Renewed(now)
}

// reportDue posts the status of nodes that have their turn, and of those that are not Ready, such as after the host slept.
func (k *kubelets) reportDue(ctx context.Context) error {
	now := time.Now()
	nodes := k.due(func(n *writtenNode) bool {
		if !n.running || n.node == nil {
			return false
		}
		since := now.Sub(n.reported)
		if since < statusInterval && (nodeReady(n.node) || since < readyInterval) {
			return false
		}
		n.reported = now
		return true
	})
	for _, n := range nodes {
		if err := k.report(ctx, n, now); err != nil {
			return err
		}
	}
	return nil
}

func (k *kubelets) report(ctx context.Context, n *writtenNode, now time.Time) error {
	k.mu.Lock()
	node := n.node
	k.mu.Unlock()
	if node == nil {
		return nil
	}
	before := corev1.Node{Status: corev1.NodeStatus{Conditions: node.Status.Conditions}}
	after := corev1.Node{Status: corev1.NodeStatus{Conditions: slices.Clone(node.Status.Conditions)}}
	kubelet.SetConditions(&after.Status, true /* ready */, now)
	patch, err := mergePatch(before, after)
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Nodes().Patch(ctx, n.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("report the status of node %s: %w", n.name, err)
	}
	return nil
}

func mergePatch(before, after corev1.Node) ([]byte, error) {
	old, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	now, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(old, now, corev1.Node{})
}

func nodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
