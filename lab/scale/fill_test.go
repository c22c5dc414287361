package scale_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dovetail-k8s/dovetail/lab/labtest"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

const (
	nodes, podsPerNode = 30, 8 // and two of daemons
	fillTimeout        = 3 * time.Minute
	stepTimeout        = 3 * time.Minute
	// leaseDuration is that of the nodes' leases. Kubernetes marks a node 10 s later.
	leaseDuration = 40 * time.Second
)

// filled is a lab that was started with written nodes.
type filled struct {
	kubernetes.Interface
	// written are the UIDs of the written nodes by name; since is when they were first seen.
	written map[string]types.UID
	since   time.Time

	mu       sync.Mutex
	notReady map[string]bool // written nodes that were seen not Ready before they were deleted
}

// Written nodes are nodes like all others: pods start and end on them, Dovetail consolidates them, and they stay Ready.
func TestWrittenNodesTakePart(t *testing.T) {
	s := labtest.Start(t, "up", "--nodes-from", fmt.Sprint(nodes), "--pods-from", fmt.Sprint(nodes*(podsPerNode+2)), "--no-workload")
	s.Await(t, "ready after", fillTimeout)
	f := connect(t, s)
	defer f.checkReady(t)
	f.awaitReplicas(t, "as written", nil)

	// A third of the nodes keeps one small pod each, so that all but few of them go.
	last := "app-06"
	replicas := map[string]int{}
	for i := range podsPerNode {
		if name := fmt.Sprintf("app-%02d", i); name != last {
			replicas[name] = 0
		}
	}
	f.scale(t, replicas)
	f.await(t, "Dovetail consolidates a written node that has a pod", func(ctx context.Context) error {
		left, err := f.left(ctx)
		if err == nil && len(left) > nodes-2 {
			err = fmt.Errorf("%d written nodes are left", len(left))
		}
		return err
	})
	f.awaitReplicas(t, "no pod is lost", replicas)

	for name := range replicas {
		replicas[name] = nodes / 3 * 2
	}
	f.scale(t, replicas)
	f.awaitReplicas(t, "pods start", replicas)
	f.await(t, "pods that started later run on written nodes", f.newPodsOnWrittenNodes)
	f.await(t, "leases are renewed after they would have expired", f.leasesRenewed)
	s.InterruptAndCheck(t, time.Minute)
}

func (f *filled) checkReady(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.notReady) > 0 {
		t.Errorf("%d written nodes were not Ready at some time", len(f.notReady))
	}
}

func connect(t *testing.T, s *labtest.Session) *filled {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), labtest.Binary(t), "env")
	cmd.Env = append(os.Environ(), "TMPDIR="+s.Temp)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, path, _ := strings.Cut(string(out), "export KUBECONFIG=")
	path, _, _ = strings.Cut(path, "\n")
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1 // no limit
	f := &filled{written: map[string]types.UID{}, since: time.Now(), notReady: map[string]bool{}}
	if f.Interface, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	list, err := f.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != nodes {
		t.Errorf("%d nodes, want %d", len(list.Items), nodes)
	}
	for _, n := range list.Items {
		// The others are those that were copied, at least one in each of three zones. They joined, and have simulators
		// of their own.
		if slices.ContainsFunc(n.OwnerReferences, func(o metav1.OwnerReference) bool { return strings.HasPrefix(o.Name, "general-0") }) {
			f.written[n.Name] = n.UID
		}
	}
	if got := len(f.written); got > nodes-3 || got < nodes-6 {
		t.Errorf("%d of %d nodes are written", got, nodes)
	}
	f.watchNodes(t, list.ResourceVersion)
	return f
}

// watchNodes notes which written nodes are not Ready, for the rest of the test.
func (f *filled) watchNodes(t *testing.T, version string) {
	t.Helper()
	w, err := f.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for event := range w.ResultChan() {
			n, ok := event.Object.(*corev1.Node)
			if !ok || f.written[n.Name] != n.UID || n.DeletionTimestamp != nil {
				continue
			}
			if !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
			}) {
				f.mu.Lock()
				f.notReady[n.Name] = true
				f.mu.Unlock()
			}
		}
	}()
	t.Cleanup(w.Stop)
}

func (f *filled) await(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	if err := world.Until(ctx, func() error { return holds(ctx) }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func (f *filled) scale(t *testing.T, replicas map[string]int) {
	t.Helper()
	for name, n := range replicas {
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
		if _, err := f.AppsV1().Deployments("default").Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitReplicas waits until each Deployment has exactly its pods, all of them Ready: one on every third node unless it
// was scaled.
func (f *filled) awaitReplicas(t *testing.T, what string, scaled map[string]int) {
	t.Helper()
	f.await(t, what, func(ctx context.Context) error {
		all, err := f.AppsV1().Deployments("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(all.Items) != 3*podsPerNode {
			return fmt.Errorf("%d Deployments, want %d", len(all.Items), 3*podsPerNode)
		}
		for _, d := range all.Items {
			want, ok := scaled[d.Name]
			if !ok {
				want = nodes / 3
			}
			if got := d.Status; d.Generation != got.ObservedGeneration || int(got.ReadyReplicas) != want || int(got.Replicas) != want {
				return fmt.Errorf("Deployment %s: %d pods, %d of them ready, want %d", d.Name, got.Replicas, got.ReadyReplicas, want)
			}
		}
		return nil
	})
}

// left are the written nodes that exist.
func (f *filled) left(ctx context.Context) ([]string, error) {
	list, err := f.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range list.Items {
		if f.written[n.Name] == n.UID {
			out = append(out, n.Name)
		}
	}
	return out, nil
}

func (f *filled) newPodsOnWrittenNodes(ctx context.Context) error {
	pods, err := f.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	left, err := f.left(ctx)
	if err != nil {
		return err
	}
	addresses := map[string]string{}
	n := 0
	for _, p := range pods.Items {
		if other := addresses[p.Status.PodIP]; other != "" {
			return fmt.Errorf("pods %s and %s have one address", p.Name, other)
		}
		addresses[p.Status.PodIP] = p.Name
		if p.CreationTimestamp.After(f.since) && p.Status.Phase == corev1.PodRunning && slices.Contains(left, p.Spec.NodeName) {
			n++
		}
	}
	if n == 0 {
		return fmt.Errorf("none of %d pods", len(pods.Items))
	}
	return nil
}

// leasesRenewed checks that each written node that is left has been kept alive for longer than its lease lasts.
func (f *filled) leasesRenewed(ctx context.Context) error {
	left, err := f.left(ctx)
	if err != nil {
		return err
	}
	for _, name := range left {
		lease, err := f.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if kept := lease.Spec.RenewTime.Sub(f.since); kept < leaseDuration+15*time.Second {
			return fmt.Errorf("node %s was renewed last %s after the start", name, kept)
		}
	}
	return nil
}
