package scale

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// GCPercent is GOGC of the control plane of a world that is filled: it keeps the API server, which caches every pod
// as it was written, below 8 GiB at 100,000 pods.
const GCPercent = 50

// Fill writes the nodes and pods of a size into the first cluster of a world, which must be empty and unwatched, and is
// watched then. Its controller does not run before and after, and must have no interruption queue. From then on the
// nodes take part like all others: kubelets keeps them alive and runs their pods until the world closes. progress is
// informed what comes next.
func Fill(ctx context.Context, w *world.World, size Size, progress func(text string)) error {
	f := &fleet{Cluster: w.Clusters[0], aws: w.AWS, size: size}
	var err error
	if f.store, err = f.Cluster.Store(); err != nil {
		return err
	}
	clients, err := f.Clientset()
	if err != nil {
		return errors.Join(err, f.store.Close())
	}
	k, err := newKubelets(clients, f.store, w.Log())
	if err != nil {
		return errors.Join(err, f.store.Close())
	}
	w.Background(func(ctx context.Context) error {
		return errors.Join(k.run(ctx), f.store.Close())
	})
	f.launched = func(h host, s *sample) {
		n := k.add(h, s)
		w.RunJoined(h.instance.ID, func(ctx context.Context) { k.power(ctx, n) })
	}
	for _, phase := range []struct {
		text string
		run  func(context.Context) error
	}{
		{"one node in each zone joins, and one pod of each workload runs", f.run},
		{"scheduler and controller manager stop", f.StopClients},
		{"the samples are read", f.readLean},
		{fmt.Sprintf("%d nodes and %d pods are written", size.Nodes, size.Pods), f.grow},
		{"the leases of the nodes are written", k.begin},
		{"the API server reads what was written", f.awaitListed},
		{"the lab reads it", func(ctx context.Context) error { return f.Watch(ctx, k.see) }},
		{"scheduler and controller manager start", f.StartClients},
		{"nodes may be disrupted", func(ctx context.Context) error { return f.apply(ctx, "10%", nil) }},
	} {
		progress(phase.text)
		if err := phase.run(ctx); err != nil {
			return fmt.Errorf("fill the cluster: %s: %w", phase.text, err)
		}
	}
	return nil
}

// readLean reads the samples, and leaves out which client manages which field of the pods: nothing in the cluster
// applies pods, and it is a good part of what the API server keeps of each.
func (f *fleet) readLean(ctx context.Context) error {
	err := f.read(ctx)
	for _, pod := range slices.Concat(f.kinds, f.daemonPods) {
		if pod != nil {
			pod.ManagedFields = nil
		}
	}
	return err
}
