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

// reservedCapacity runs a workload that is larger than its capacity reservation.
func reservedCapacity() Scenario {
	const (
		app      = "training"
		reserved = 3
		onDemand = 2
	)
	var id string
	return Scenario{
		Name: "reserved-capacity",
		Summary: fmt.Sprintf(
			"%d pods with one instance each, %d of them reserved; then the reservation is canceled",
			reserved+onDemand,
			reserved,
		),
		Steps: []Step{
			{
				Name: fmt.Sprintf("create a capacity reservation for %d instances", reserved), Timeout: 10 * time.Second,
				Run: func(_ context.Context, w *World) (err error) {
					id, err = w.AWS.AddCapacityReservation(awsim.CapacityReservation{
						InstanceType: "m5.large", Zone: w.AWS.EC2().Zones()[0].Name, Total: reserved, Targeted: true,
						Tags: map[string]string{"karpenter.sh/discovery": w.Name},
					})
					w.Note("reservation %s", id)
					return err
				},
			},
			startController(),
			installPool(manifests.Reserved, nil),
			{
				Name: "create the pods: all run, on reserved and on-demand instances", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := apply(ctx, w, manifests.ReservedWorkload, nil); err != nil {
						return err
					}
					if err := w.Scale(ctx, app, reserved+onDemand); err != nil {
						return err
					}
					return awaitPodsRunning(ctx, w, app, reserved+onDemand)
				},
			},
			{
				Name: "instances, NodeClaims and Nodes agree on which are reserved", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error { return checkReservation(ctx, w, id, reserved, onDemand) },
			},
			{
				Name: "cancel the reservation: its nodes stay and become on-demand", Timeout: 100 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := w.AWS.CancelCapacityReservation(id); err != nil {
						return err
					}
					return world.Until(ctx, func() error { return checkReservation(ctx, w, id, 0, reserved+onDemand) })
				},
			},
			{
				Name: "scale to 0: all nodes and instances terminate", Timeout: time.Minute,
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

// checkReservation checks how many nodes are in the reservation and how many are not, by EC2, NodeClaims and Nodes
// alike.
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
		return fmt.Errorf("%d of %d instances are in the reservation, want %d of %d", len(in), n, inside, inside+outside)
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
	w.Note("%d nodes are in the reservation, %d are not", inside, outside)
	return nil
}

// checkReservationLabels checks the labels of a NodeClaim or Node, given whether its instance is in the reservation.
func checkReservationLabels(what string, labels map[string]string, in bool, id string) error {
	want := map[string]string{
		karpv1.LabelCapacityType:            "on-demand",
		awsv1.LabelReservationID:            "",
		awsv1.LabelReservationType:          "",
		awsv1.LabelReservationInterruptible: "",
	}
	if in {
		want = map[string]string{
			karpv1.LabelCapacityType: "reserved", awsv1.LabelReservationID: id, awsv1.LabelReservationType: "default",
			awsv1.LabelReservationInterruptible: "false",
		}
	}
	for key, value := range want {
		if labels[key] != value {
			return fmt.Errorf("%s has the label %s=%q, want %q", what, key, labels[key], value)
		}
	}
	return nil
}
