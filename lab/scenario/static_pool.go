package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// staticPoolName is the NodePool of manifests.Static, staticPoolLimit its limit on nodes.
const (
	staticPoolName  = "fixed"
	staticPoolLimit = 3
)

// staticPool scales a NodePool with replicas, with only a CapacityBuffer on its nodes.
func staticPool() Scenario {
	return Scenario{
		Name:    "static-pool",
		Summary: "a NodePool with replicas: 2 -> 4 (its limit allows 3) -> 1; with a NodeOverlay and a CapacityBuffer",
		Steps: []Step{
			{
				Name: "start the controller with the feature gates StaticCapacity, NodeOverlay and CapacityBuffer", Timeout: 30 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					w.SetFeatureGates("StaticCapacity=true,NodeOverlay=true,CapacityBuffer=true")
					return w.StartController(ctx)
				},
			},
			installPool(manifests.Static, nil),
			{
				Name: "without any pod, two nodes are launched", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					return errors.Join(awaitStaticNodes(ctx, w, 2), awaitPaired(ctx, w))
				},
			},
			{
				Name: "the NodeOverlay applies: each NodeClaim has the extended resource", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					return world.Until(ctx, func() error { return overlayDevices(ctx, w) })
				},
			},
			{
				Name: "the CapacityBuffer fits on them: no node is launched for it", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					return world.Until(ctx, func() error { return bufferFits(ctx, w) })
				},
			},
			{
				Name: "create a CapacityBuffer for a missing Deployment: a condition reports it", Timeout: 20 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Client.Create(ctx, lateBuffer()); err != nil {
						return err
					}
					return world.Until(ctx, func() error {
						return bufferCondition(ctx, w, bufferv1.ConditionReadyForProvisioning, metav1.ConditionFalse, bufferv1.ReasonScalableRefNotFound)
					})
				},
			},
			{
				// Periodic reconciliation alone would take up to half a minute.
				Name: "create the Deployment: the CapacityBuffer fits within 20 seconds", Timeout: 20 * time.Second, Exact: true,
				Run: func(ctx context.Context, w *World) error {
					if err := w.Client.Create(ctx, lateDeployment()); err != nil {
						return err
					}
					return world.Until(ctx, func() error {
						return bufferCondition(ctx, w, bufferv1.ConditionProvisioning, metav1.ConditionTrue, bufferv1.ReasonFitsExistingCapacity)
					})
				},
			},
			{
				Name: "delete that CapacityBuffer", Timeout: 10 * time.Second,
				Run: func(ctx context.Context, w *World) error {
					return errors.Join(w.Client.Delete(ctx, lateBuffer()), w.Client.Delete(ctx, lateDeployment()))
				},
			},
			{
				Name: "scale to 4 by the scale subresource: the limit stops at 3", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := w.ScalePool(ctx, staticPoolName, 4); err != nil {
						return err
					}
					return awaitStaticNodes(ctx, w, staticPoolLimit)
				},
			},
			{
				Name: "scale to 1: the other nodes terminate", Timeout: time.Minute,
				Run: func(ctx context.Context, w *World) error {
					if err := w.ScalePool(ctx, staticPoolName, 1); err != nil {
						return err
					}
					return errors.Join(awaitStaticNodes(ctx, w, 1), awaitPaired(ctx, w))
				},
			},
			{
				Name: "the limit was never exceeded", Timeout: 10 * time.Second,
				Run: func(_ context.Context, w *World) error {
					if n := len(w.History.Claims()); n != staticPoolLimit {
						return fmt.Errorf("%d NodeClaims were created in total, want %d", n, staticPoolLimit)
					}
					return oneInstancePerClaim(w)
				},
			},
			removePool(manifests.Static, nil),
		},
	}
}

// awaitStaticNodes waits until the NodePool has exactly want nodes, all initialized, and status.nodes agrees.
func awaitStaticNodes(ctx context.Context, w *World, want int) error {
	return world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		var nodes corev1.NodeList
		if err := list(ctx, w, &claims, &nodes); err != nil {
			return err
		}
		up := 0
		for i := range claims.Items {
			if condition.IsTrue(&claims.Items[i], karpv1.ConditionInitialized) {
				up++
			}
		}
		pool := &karpv1.NodePool{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: staticPoolName}, pool); err != nil {
			return err
		}
		reported := int64(-1)
		if pool.Status.Nodes != nil {
			reported = *pool.Status.Nodes
		}
		if up != want || len(claims.Items) != want || len(nodes.Items) != want || reported != int64(want) {
			return fmt.Errorf(
				"%d NodeClaims (%d initialized), %d Nodes, status.nodes %d; want %d",
				len(claims.Items),
				up,
				len(nodes.Items),
				reported,
				want,
			)
		}
		return nil
	})
}

// overlayDevices checks that the NodeOverlay is Ready, and that every NodeClaim has the extended resource that it adds.
func overlayDevices(ctx context.Context, w *World) error {
	o := &v1alpha1.NodeOverlay{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: "devices"}, o); err != nil {
		return err
	}
	if !condition.IsReady(o) {
		return fmt.Errorf("NodeOverlay devices is not ready: %s", notReady(o.Status.Conditions))
	}
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return err
	}
	for _, c := range claims.Items {
		if q := c.Status.Allocatable["example.com/device"]; q.Value() != 2 {
			return fmt.Errorf("NodeClaim %s has %s of example.com/device, want 2", c.Name, q.String())
		}
	}
	return nil
}

// lateBuffer is a CapacityBuffer for one pod of a Deployment that is created later.
func lateBuffer() *bufferv1.CapacityBuffer {
	b := &bufferv1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "late"}}
	b.Spec.Replicas = new(int32(1))
	b.Spec.ScalableRef = &bufferv1.ScalableRef{APIGroup: appsv1.GroupName, Kind: "Deployment", Name: "late"}
	return b
}

// lateDeployment is that Deployment, without pods.
func lateDeployment() *appsv1.Deployment {
	labels := map[string]string{"app": "late"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "late"}}
	d.Spec.Replicas = new(int32(0))
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "late", Image: "registry.k8s.io/pause:3.10",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
	}}
	return d
}

// bufferCondition checks a condition of lateBuffer.
func bufferCondition(ctx context.Context, w *World, typ string, status metav1.ConditionStatus, reason string) error {
	b := lateBuffer()
	if err := w.Client.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
		return err
	}
	if c := meta.FindStatusCondition(b.Status.Conditions, typ); c == nil || c.Status != status || c.Reason != reason {
		return fmt.Errorf("CapacityBuffer late: %s is %+v, want %s %s", typ, c, status, reason)
	}
	return nil
}

// bufferFits checks that the CapacityBuffer is resolved and fits on existing nodes.
func bufferFits(ctx context.Context, w *World) error {
	b := &bufferv1.CapacityBuffer{}
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "room"}, b); err != nil {
		return err
	}
	for typ, reason := range map[string]string{
		bufferv1.ConditionReadyForProvisioning: bufferv1.ReasonResolved,
		bufferv1.ConditionProvisioning:         bufferv1.ReasonFitsExistingCapacity,
	} {
		if c := meta.FindStatusCondition(b.Status.Conditions, typ); c == nil || c.Status != metav1.ConditionTrue || c.Reason != reason {
			return fmt.Errorf("CapacityBuffer room: %s is %+v, want True %s", typ, c, reason)
		}
	}
	if n := b.Status.Replicas; n == nil || *n != 2 {
		return fmt.Errorf("CapacityBuffer room: %v replicas, want 2", n)
	}
	return nil
}
