package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/node/heartbeat"
	"github.com/dovetail-k8s/dovetail/lab/store"
)

// Leases that are renewed together are as if each kubelet renewed its own: owned by the node, gone with it, and renewed until the kubelet
// stops.
func TestLeasesAreRenewedTogether(t *testing.T) {
	t.Parallel()
	url, settings, err := world.cluster.Etcd()
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := store.Open(url, settings)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	leases := heartbeat.New(etcd, slog.New(slog.DiscardHandler))
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	running.Go(func() { leases.Run(ctx) })

	const nodes = 150 // more than one transaction has
	create := func(i int) *corev1.Node {
		node, err := world.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("kept-%d", i), Labels: map[string]string{"kept": "true"},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	defer func() {
		err := world.client.CoreV1().Nodes().DeleteCollection(
			context.WithoutCancel(ctx), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "kept=true"})
		if err != nil {
			t.Error(err)
		}
	}()
	var seen [nodes]atomic.Pointer[corev1.Node] // by their kubelets
	var kubelets [nodes]context.CancelFunc
	for i := range nodes {
		seen[i].Store(create(i))
		keeping, end := context.WithCancel(ctx)
		kubelets[i] = end
		running.Go(func() { leases.Keep(keeping, fmt.Sprintf("kept-%d", i), 2*time.Second, seen[i].Load) })
	}
	client := world.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	renewedAfter := func(i int, at time.Time) error {
		lease, err := client.Get(ctx, fmt.Sprintf("kept-%d", i), metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != seen[i].Load().UID:
			return fmt.Errorf("owners of the lease are %v", lease.OwnerReferences)
		case *lease.Spec.HolderIdentity != lease.Name || *lease.Spec.LeaseDurationSeconds != 4:
			return fmt.Errorf("the lease is held by %s for %d s", *lease.Spec.HolderIdentity, *lease.Spec.LeaseDurationSeconds)
		case !lease.Spec.RenewTime.After(at):
			return fmt.Errorf("the lease of %s was renewed at %v", lease.Name, lease.Spec.RenewTime)
		}
		return nil
	}
	written := time.Now()
	eventually(t, func(context.Context) error {
		var errs []error
		for i := range nodes {
			errs = append(errs, renewedAfter(i, written.Add(2*time.Second)))
		}
		return errors.Join(errs...)
	})

	// One node is deleted, one is replaced by another of its name, and one loses its kubelet.
	if err := world.client.CoreV1().Nodes().Delete(ctx, "kept-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	seen[0].Store(nil)
	if err := world.client.CoreV1().Nodes().Delete(ctx, "kept-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	seen[1].Store(create(1))
	kubelets[2]()
	eventually(t, func(context.Context) error {
		if _, err := client.Get(ctx, "kept-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the lease of a deleted node: %w", errors.Join(err, errors.New("still there")))
		}
		return renewedAfter(1, time.Now().Add(-2*time.Second))
	})
	last, err := client.Get(ctx, "kept-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	eventually(t, func(context.Context) error { return renewedAfter(3, at.Add(2*time.Second)) }) // two turns later
	if now, err := client.Get(ctx, "kept-2", metav1.GetOptions{}); err != nil || now.ResourceVersion != last.ResourceVersion {
		t.Errorf("the lease without a kubelet is renewed (error %v)", err)
	}
}
