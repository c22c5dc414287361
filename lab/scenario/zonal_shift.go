package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// zonalShift shifts a cluster away from one of its zones, and back.
func zonalShift() Scenario {
	const (
		app    = "training" // of manifests.ReservedWorkload
		pinned = "pinned"
		nodes  = 4
	)
	var shift zoneShift
	return Scenario{
		Name:    "zonal-shift",
		Summary: "a zonal shift moves the cluster away from a zone: nothing is launched there until the shift is canceled",
		Steps: []Step{
			{
				Name: "start the controller while ARC fails: it becomes ready, and follows zonal shifts later", Timeout: 45 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := w.AWS.InjectSpec("arc-zonal-shift.GetManagedResource=InternalError"); err != nil {
						return err
					}
					defer w.AWS.ClearFaults()
					w.SetEnv("ENABLE_ZONAL_SHIFT", "true")
					return w.StartController(ctx)
				},
			},
			installPool(manifests.Reserved, nil),
			{
				Name: "start a zonal shift: an event on the NodePool reports it", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := shift.start(w); err != nil {
						return err
					}
					w.Note("away from %s (%s)", shift.zone, shift.zoneID)
					return shift.awaitEvent(ctx, w, "ZonalShiftActive")
				},
			},
			{
				Name: "create pods: they get nodes in other zones; a pod that requires the zone stays pending", Timeout: 90 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Client.Create(ctx, podInZone(pinned, shift.zone)); err != nil {
						return err
					}
					if err := apply(ctx, w, manifests.ReservedWorkload, nil); err != nil {
						return err
					}
					if err := w.Scale(ctx, app, nodes); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, app, nodes); err != nil {
						return err
					}
					if n := shift.launched(w); n > 0 {
						return fmt.Errorf("%d instances were launched in %s", n, shift.zone)
					}
					return nil
				},
			},
			{
				Name: "cancel the shift: an event on the NodePool reports it, and the pod gets its node in the zone", Timeout: 2 * time.Minute,
				Run: func(ctx context.Context, w *World) error {
					w.AWS.ZonalShifts().Cancel(shift.cluster)
					if err := shift.awaitEvent(ctx, w, "ZonalShiftCleared"); err != nil {
						return err
					}
					if err := awaitPodsRunning(ctx, w, pinned, 1); err != nil {
						return err
					}
					if n := shift.launched(w); n != 1 {
						return fmt.Errorf("%d instances were launched in %s, want one", n, shift.zone)
					}
					return nil
				},
			},
			{
				Name: "delete the workloads: all nodes and instances terminate", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Client.Delete(ctx, podInZone(pinned, shift.zone)); err != nil {
						return err
					}
					if err := w.Scale(ctx, app, 0); err != nil {
						return err
					}
					return awaitEmpty(ctx, w, app)
				},
			},
			removePool(manifests.Reserved, nil),
		},
	}
}

// zoneShift is a shift of a cluster away from a zone.
type zoneShift struct{ cluster, zone, zoneID string }

func (s *zoneShift) start(w *World) error {
	cluster, ok := w.AWS.EKS().Cluster(w.Name)
	if !ok {
		return fmt.Errorf("no EKS cluster %s", w.Name)
	}
	zone := w.AWS.EC2().Zones()[0]
	s.cluster, s.zone, s.zoneID = cluster.ARN, zone.Name, zone.ID
	return w.AWS.ZonalShifts().Start(s.cluster, s.zoneID, time.Hour)
}

// awaitEvent waits until a NodePool has an event with this reason that names the zone.
func (s *zoneShift) awaitEvent(ctx context.Context, w *World, reason string) error {
	return world.Until(ctx, func() error {
		var events corev1.EventList
		if err := list(ctx, w, &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason && e.InvolvedObject.Kind == "NodePool" && strings.Contains(e.Message, s.zone) &&
				strings.Contains(e.Message, s.zoneID) {
				return nil
			}
		}
		return fmt.Errorf("no event %s on a NodePool", reason)
	})
}

// launched is how many instances were ever launched in the zone.
func (s *zoneShift) launched(w *World) (n int) {
	for _, i := range w.Instances() {
		if i.Zone == s.zone {
			n++
		}
	}
	return n
}

// podInZone returns a pod, an app of its own, that requires a zone and takes an instance of 2 CPUs.
func podInZone(name, zone string) *corev1.Pod {
	none := int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelTopologyZone: zone},
			TerminationGracePeriodSeconds: &none,
			Containers: []corev1.Container{{
				Name: "app", Image: "registry.k8s.io/pause:3.10",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
				}},
			}},
		},
	}
}
