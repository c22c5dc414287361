package scenario

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// reservedCapacity is a workload that is a little larger than what is reserved for it.
func reservedCapacity() Scenario {
	const (
		app    = "training"
		seats  = 3
		bought = 2
	)
	var id string
	return Scenario{
		Name:    "reserved-capacity",
		Summary: fmt.Sprintf("%d pods, a machine each, of which %d are reserved; then the reservation ends", seats+bought, seats),
		Steps: []Step{
			{
				Name: fmt.Sprintf("reserve %d machines in EC2", seats), Timeout: 10 * time.Second,
				Run: func(_ context.Context, w *World) (err error) {
					id, err = w.AWS.AddCapacityReservation(awsim.CapacityReservation{
						InstanceType: "m5.large", Zone: w.AWS.EC2().Zones()[0].Name, Total: seats, Targeted: true,
						Tags: map[string]string{"karpenter.sh/discovery": w.Name},
					})
					w.Note("reservation %s", id)
					return err
				},
			},
			startController(),
			installPool(manifests.Reserved, nil),
			{
				Name: "create the pods: all run at once, on what is reserved and on what is bought", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.ReservedWorkload, nil); err != nil {
						return err
					}
					if err := w.Scale(ctx, app, seats+bought); err != nil {
						return err
					}
					return awaitPodsRunning(ctx, w, app, seats+bought)
				},
			},
			{
				Name: "instances, claims and Nodes say the same of who is in the reservation", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error { return checkReservation(ctx, w, id, seats, bought) },
			},
			{
				Name: "the reservation is cancelled: its nodes stay, and are on-demand", Timeout: 100 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := w.AWS.CancelCapacityReservation(id); err != nil {
						return err
					}
					return world.Until(ctx, func() error { return checkReservation(ctx, w, id, 0, seats+bought) })
				},
			},
			{
				Name: "scale to 0: all nodes and instances go", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
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

// checkReservation checks that so many nodes are in the reservation, and so many are not, by EC2, claims and Nodes alike.
func checkReservation(ctx context.Context, w *World, id string, inside, outside int) error {
	var claims karpv1.NodeClaimList
	var nodes corev1.NodeList
	if err := list(ctx, w, &claims, &nodes); err != nil {
		return err
	}
	in := map[string]bool{} // instances, by ID
	for _, i := range w.Running() {
		if i.CapacityReservationID != "" {
			in[i.ID] = true
		}
	}
	if n := len(w.Running()); len(in) != inside || n != inside+outside {
		return fmt.Errorf("%d of %d instances are in the reservation, %d of %d should be", len(in), n, inside, inside+outside)
	}
	for _, c := range claims.Items {
		if err := checkReservationLabels("claim "+c.Name, c.Labels, in[world.InstanceID(c.Status.ProviderID)], id); err != nil {
			return err
		}
	}
	for _, n := range nodes.Items {
		if err := checkReservationLabels("node "+n.Name, n.Labels, in[world.InstanceID(n.Spec.ProviderID)], id); err != nil {
			return err
		}
	}
	w.Note("%d nodes in the reservation, %d beside it", inside, outside)
	return nil
}

// checkReservationLabels compares labels with whether an instance is in the reservation.
func checkReservationLabels(what string, labels map[string]string, in bool, id string) error {
	want := map[string]string{karpv1.LabelCapacityType: "on-demand", awsv1.LabelReservationID: "", awsv1.LabelReservationType: "", awsv1.LabelReservationInterruptible: ""}
	if in {
		want = map[string]string{
			karpv1.LabelCapacityType: "reserved", awsv1.LabelReservationID: id, awsv1.LabelReservationType: "default", awsv1.LabelReservationInterruptible: "false",
		}
	}
	for key, value := range want {
		if labels[key] != value {
			return fmt.Errorf("%s has the label %s=%q, not %q", what, key, labels[key], value)
		}
	}
	return nil
}
