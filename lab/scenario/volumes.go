package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// databaseApp is the workload with one volume per pod.
const databaseApp = "database"

// tolerations of the EBS CSI driver's DaemonSet, as newer and older charts have them.
const (
	toleratesAll  = `[{"operator":"Exists"}]`
	toleratesNone = `[{"key":"CriticalAddonsOnly","operator":"Exists"}]`
)

// volumeDetach replaces nodes under pods with volumes.
func volumeDetach() Scenario {
	const replicas = 6
	steps := []Step{startController(), installPool(manifests.MediumInstances, nil)}
	for _, daemon := range []struct{ name, tolerations string }{
		{"with a toleration for every taint", toleratesAll},
		{"without a toleration for karpenter.sh/disrupted", toleratesNone},
	} {
		steps = append(steps,
			installStorage(daemon.name, daemon.tolerations),
			runDatabase(replicas, "gp3"),
			replaceNode(replicas))
	}
	steps = append(steps, holdVolumes(replicas), removeDatabase("gp3"), removeStorage(), removePool(manifests.MediumInstances, nil))
	return Scenario{
		Name:    "volume-detach-on-disruption",
		Summary: "nodes under pods with EBS volumes are replaced: every volume detaches, whatever the CSI DaemonSet tolerates",
		Long:    true,
		Steps:   steps,
	}
}

// immediateVolume runs pods with volumes of immediate binding mode, which have a zone before their pods have a node.
func immediateVolume() Scenario {
	const many = 50
	return Scenario{
		Name:    "immediate-volume",
		Summary: "volumes that bind before their pods are scheduled: each pod gets one node, in the zone of its volume",
		Steps: []Step{
			startController(),
			installPool(manifests.MediumInstances, nil),
			installStorage("with a toleration for every taint", toleratesAll),
			runDatabase(1, "gp3-immediate"),
			{Name: "exactly one node was launched, in the volume's zone", Timeout: 10 * time.Second, Run: oneNodeInZone},
			runDatabase(many, "gp3-immediate"),
			{
				Name:    "each pod runs in the zone of its volume, no node is empty, and each NodeClaim has one instance",
				Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					return errors.Join(podsInVolumeZones(ctx, w), noIdleNodes(ctx, w, databaseApp), oneInstancePerClaim(w))
				},
			},
			removeDatabase("gp3-immediate"),
			removeStorage(),
			removePool(manifests.MediumInstances, nil),
		},
	}
}

// oneNodeInZone checks that only one node was ever launched, in the zone of the volume.
func oneNodeInZone(ctx context.Context, w *World) error {
	if claims, instances := len(w.History.Claims()), len(w.Instances()); claims != 1 || instances != 1 {
		return fmt.Errorf("%d NodeClaims were created and %d instances launched, want one of each", claims, instances)
	}
	return podsInVolumeZones(ctx, w)
}

func installStorage(what, tolerations string) Step {
	return Step{
		// The daemon pod of a deleted node counts as unavailable and blocks the rollout on the other nodes, until Kubernetes
		// garbage-collects pods without a node: after 40 s of quarantine, checked every 20 s.
		Name: "install the EBS CSI driver " + what, Timeout: 2 * time.Minute,
		Run: func(ctx context.Context, w *World) error {
			if err := apply(ctx, w, manifests.Storage, map[string]string{"TOLERATIONS": tolerations}); err != nil {
				return err
			}
			return awaitDaemonsUpdated(ctx, w)
		},
	}
}

// awaitDaemonsUpdated waits until the DaemonSet's rollout is complete.
func awaitDaemonsUpdated(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		ds, err := w.DaemonSet(ctx, "kube-system", "ebs-csi-node")
		if err != nil {
			return err
		}
		if s := ds.Status; s.ObservedGeneration < ds.Generation || s.UpdatedNumberScheduled < s.DesiredNumberScheduled ||
			s.NumberReady < s.DesiredNumberScheduled {
			return fmt.Errorf("%d of %d daemons are up to date, %d ready", s.UpdatedNumberScheduled, s.DesiredNumberScheduled, s.NumberReady)
		}
		return nil
	})
}

func runDatabase(replicas int, class string) Step {
	return Step{
		Name: fmt.Sprintf("create %d pods with one volume each of StorageClass %s: all run", replicas, class), Timeout: 3 * time.Minute,
		Run: func(ctx context.Context, w *World) error {
			if err := apply(ctx, w, manifests.Database, database(replicas, class)); err != nil {
				return err
			}
			return awaitPodsRunning(ctx, w, databaseApp, replicas)
		},
	}
}

func database(replicas int, class string) map[string]string {
	return map[string]string{"REPLICAS": fmt.Sprint(replicas), "STORAGE_CLASS": class}
}

// replaceNode deletes the NodeClaim of a node with volumes, and waits until its pods run elsewhere with them.
func replaceNode(replicas int) Step {
	return Step{
		Name: "delete a NodeClaim: its pods run on other nodes with their volumes, and no VolumeAttachment is left", Timeout: 90 * time.Second,
		Run: func(ctx context.Context, w *World) error {
			begin := time.Now()
			node, claim, err := busiest(ctx, w)
			if err != nil {
				return err
			}
			if err := w.Client.Delete(ctx, claim); err != nil {
				return err
			}
			err = world.Until(ctx, func() error {
				err := w.Client.Get(ctx, client.ObjectKey{Name: node}, &corev1.Node{})
				if client.IgnoreNotFound(err) == nil && err != nil {
					return nil
				}
				return errors.Join(err, fmt.Errorf("node %s still exists; attachments: %s", node, attachmentsOf(ctx, w, node)))
			})
			if err != nil {
				return err
			}
			w.Note("the Node was deleted after %.1f s", time.Since(begin).Seconds())
			if err := awaitPodsRunning(ctx, w, databaseApp, replicas); err != nil {
				return err
			}
			w.Note("all pods ran again after %.1f s", time.Since(begin).Seconds())
			if left := attachmentsOf(ctx, w, node); left != "" {
				return fmt.Errorf("VolumeAttachments left on %s: %s", node, left)
			}
			return noMultiAttach(ctx, w)
		},
	}
}

// busiest returns the node with the most database pods, and its NodeClaim.
func busiest(ctx context.Context, w *World) (string, *karpv1.NodeClaim, error) {
	all, err := pods(ctx, w, databaseApp)
	if err != nil {
		return "", nil, err
	}
	on := map[string]int{}
	node := ""
	for _, p := range all {
		if on[p.Spec.NodeName]++; on[p.Spec.NodeName] > on[node] {
			node = p.Spec.NodeName
		}
	}
	var claims karpv1.NodeClaimList
	if err := w.Client.List(ctx, &claims); err != nil {
		return "", nil, err
	}
	for i := range claims.Items {
		if claims.Items[i].Status.NodeName == node {
			return node, &claims.Items[i], nil
		}
	}
	return "", nil, fmt.Errorf("node %q has no NodeClaim", node)
}

// attachmentsOf returns the names of a node's VolumeAttachments.
func attachmentsOf(ctx context.Context, w *World, node string) string {
	var list storagev1.VolumeAttachmentList
	if err := w.Client.List(ctx, &list); err != nil {
		return err.Error()
	}
	var names []string
	for _, a := range list.Items {
		if a.Spec.NodeName == node {
			names = append(names, a.Name)
		}
	}
	return strings.Join(names, ", ")
}

// waitingForDetach is what Kubernetes 1.37 states where earlier versions stated "Multi-Attach error".
const waitingForDetach = "Waiting for detach"

// noMultiAttach checks that no event reports a volume that is attached to another node.
func noMultiAttach(ctx context.Context, w *World) error {
	var events corev1.EventList
	if err := w.Client.List(ctx, &events); err != nil {
		return err
	}
	for _, e := range events.Items {
		if strings.Contains(e.Message, "Multi-Attach error") || strings.Contains(e.Message, waitingForDetach) {
			return fmt.Errorf("pod %s: %s", e.InvolvedObject.Name, e.Message)
		}
	}
	return nil
}

// podsInVolumeZones checks that each pod of the database runs in the zone of its volume.
func podsInVolumeZones(ctx context.Context, w *World) error {
	var nodes corev1.NodeList
	var volumes corev1.PersistentVolumeList
	if err := errors.Join(w.Client.List(ctx, &nodes), w.Client.List(ctx, &volumes)); err != nil {
		return err
	}
	all, err := pods(ctx, w, databaseApp)
	if err != nil {
		return err
	}
	perZone := map[string]int{}
	for _, p := range all {
		n := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == p.Spec.NodeName })
		v := slices.IndexFunc(volumes.Items, func(v corev1.PersistentVolume) bool {
			return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.Name == "data-"+p.Name
		})
		if n < 0 || v < 0 {
			return fmt.Errorf("pod %s has no node, or no volume", p.Name)
		}
		want := volumes.Items[v].Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
		if got := nodes.Items[n].Labels[corev1.LabelTopologyZone]; got != want {
			return fmt.Errorf("pod %s runs in %s, its volume is in %s", p.Name, got, want)
		}
		perZone[want]++
	}
	w.Note("%d pods on %d nodes, volumes in %d zones", len(all), len(nodes.Items), len(perZone))
	return nil
}

func removeDatabase(class string) Step {
	return Step{
		Name: "delete the workload: all nodes, instances and volumes are deleted", Timeout: 2 * time.Minute,
		Run: func(ctx context.Context, w *World) error {
			text, err := render(w, manifests.Database, database(0, class))
			if err != nil {
				return err
			}
			if err := w.Delete(ctx, text); err != nil {
				return err
			}
			if err := awaitEmpty(ctx, w, databaseApp); err != nil {
				return err
			}
			return awaitNoVolumes(ctx, w)
		},
	}
}

// awaitNoVolumes waits until no PersistentVolume, VolumeAttachment and EBS volume is left.
func awaitNoVolumes(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		var volumes corev1.PersistentVolumeList
		var attachments storagev1.VolumeAttachmentList
		if err := errors.Join(w.Client.List(ctx, &volumes), w.Client.List(ctx, &attachments)); err != nil {
			return err
		}
		left := w.AWS.EC2().Volumes()
		if len(volumes.Items)+len(attachments.Items)+len(left) > 0 {
			return fmt.Errorf(
				"still exist: %d PersistentVolumes, %d VolumeAttachments, %d EBS volumes",
				len(volumes.Items),
				len(attachments.Items),
				len(left),
			)
		}
		return nil
	})
}

func removeStorage() Step {
	return Step{Name: "remove the EBS CSI driver", Timeout: 10 * time.Second, Run: func(ctx context.Context, w *World) error {
		text, err := render(w, manifests.Storage, map[string]string{"TOLERATIONS": toleratesAll})
		if err != nil {
			return err
		}
		return w.Delete(ctx, text)
	}}
}
