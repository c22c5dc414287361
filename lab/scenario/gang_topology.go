package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
)

// gangTopology has gangs of which all pods must be in one domain.
func gangTopology() Scenario {
	zonal := gangOf{name: "zonal", pool: "gangs", pods: 3, atLeast: 3, key: corev1.LabelTopologyZone}
	return Scenario{
		Name: "gang-topology",
		Summary: "pods of a PodGroup with schedulingConstraints get nodes in one zone, or of one instance type; with a label that comes after the " +
			"launch they get none",
		Configure: servesGangs("TopologyAwareWorkloadScheduling"),
		Steps: []Step{
			startController(),
			installPool(manifests.GangPools, gangPools("20", "20")),
			{
				Name: "create a gang of 3 in one zone, kill the controller at CreateFleet: it runs on 3 nodes in one zone", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					kill := killPoint{name: "CreateFleet has taken effect", nth: 1, call: controllerCall("CreateFleet")}
					err := killAt(ctx, w, kill, func() error { return zonal.create(ctx, w) })
					return errors.Join(err, awaitPodsRunning(ctx, w, "zonal", 3), launchedInAll(w, "gangs", 3), inOneDomain(ctx, w, zonal),
						oneInstancePerClaim(w))
				},
			},
			{
				Name: "add a pod: it runs in the same zone", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					err := w.Scale(ctx, "zonal", 4)
					return errors.Join(err, awaitPodsRunning(ctx, w, "zonal", 4), launchedInAll(w, "gangs", 4), inOneDomain(ctx, w, zonal))
				},
			},
			{
				Name: "create a gang of 3 on one instance type: it runs on nodes of one type", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					equal := gangOf{name: "equal", pool: "mixed", pods: 3, atLeast: 3, key: corev1.LabelInstanceTypeStable}
					err := equal.create(ctx, w)
					return errors.Join(err, awaitPodsRunning(ctx, w, "equal", 3), inOneDomain(ctx, w, equal))
				},
			},
			{
				Name: "create a gang in one domain of a label that comes after the launch: an event says so, and no node is launched", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					before := len(w.History.Claims())
					unknown := gangOf{name: "layer", pool: "gangs", pods: 2, atLeast: 2, key: "topology.k8s.aws/network-node-layer-1"}
					if err := errors.Join(unknown.create(ctx, w), awaitPodEvents(ctx, w, "layer", "no node has the label", 2)); err != nil {
						return err
					}
					if n := len(w.History.Claims()); n != before {
						return fmt.Errorf("%d NodeClaims were created, want none", n-before)
					}
					return nil
				},
			},
		},
	}
}

// inOneDomain returns an error unless all pods of the gang are on nodes with the same value of its key.
func inOneDomain(ctx context.Context, w *World, g gangOf) error {
	all, err := pods(ctx, w, g.name)
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := list(ctx, w, &nodes); err != nil {
		return err
	}
	var values []string
	for _, n := range nodes.Items {
		if slices.ContainsFunc(all, func(p corev1.Pod) bool { return p.Spec.NodeName == n.Name }) {
			values = append(values, n.Labels[g.key])
		}
	}
	w.Note("%s of the nodes: %v", g.key, values)
	slices.Sort(values)
	if values = slices.Compact(values); len(values) != 1 || values[0] == "" {
		return fmt.Errorf("the pods of %s are in the domains %q of %s", g.name, values, g.key)
	}
	return nil
}

// gangNotServed has pods that name a PodGroup in a cluster that serves none, as clusters of EKS do.
func gangNotServed() Scenario {
	return Scenario{
		Name:    "gang-not-served",
		Summary: "where the API server serves no PodGroups, the pods of a group get nodes one by one",
		Steps: []Step{
			startController(),
			installPool(manifests.GangPools, gangPools("6", "0")),
			{
				Name: "create 4 pods that name a PodGroup, with a limit of 3 nodes: 3 run", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					for range 4 {
						if err := w.Client.Create(ctx, gangPod("train", "gangs", "1500m", "train")); err != nil {
							return err
						}
					}
					return errors.Join(awaitSomeRunning(ctx, w, "train", 3), launchedInAll(w, "gangs", 3), awaitPaired(ctx, w), oneInstancePerClaim(w))
				},
			},
		},
	}
}
