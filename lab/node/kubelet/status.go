package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

// renewLease keeps the node's Lease alive. The Lease is owned by the Node, so it goes with it, and it
// is not made again while the Node is missing.
func (k *Kubelet) renewLease(ctx context.Context) {
	if k.cfg.Leases != nil {
		k.cfg.Leases.Keep(ctx, k.cfg.Name, k.cfg.Timing.Lease, k.own.get)
		return
	}
	own := func(l *coordinationv1.Lease) error {
		if len(l.OwnerReferences) > 0 {
			return nil
		}
		node := k.own.get()
		if node == nil {
			return fmt.Errorf("no node %q to own its lease", k.cfg.Name)
		}
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
		return nil
	}
	interval := k.cfg.Timing.Lease
	seconds := int32(max(1, (2 * interval).Seconds()))
	lease.NewController(clock.RealClock{}, k.cfg.Client, k.cfg.Name, seconds, nil, interval,
		k.cfg.Name, corev1.NamespaceNodeLease, own).Run(ctx)
}

// postStatus makes the node Ready after a while, and then keeps its status as it should be.
func (k *Kubelet) postStatus(ctx context.Context) {
	if !pause(ctx, k.cfg.Timing.Ready) || !k.networkUp(ctx) {
		return
	}
	var last time.Time
	for {
		now := time.Now()
		posted, err := k.reconcileStatus(ctx, now, now.Sub(last) >= k.cfg.Timing.Report)
		if posted {
			last = now
		}
		k.reportOnce(ctx, err)
		wait := k.cfg.Timing.Status
		if err != nil && last.IsZero() {
			wait = time.Second // the first report is urgent
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// networkUp waits for the network plugin and reports false if ctx is done first.
func (k *Kubelet) networkUp(ctx context.Context) bool {
	if k.cfg.Network == nil {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-k.cfg.Network:
		return true
	}
}

// reportOnce logs a problem of the status loop when it appears or changes.
func (k *Kubelet) reportOnce(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		k.reported = ""
		return
	}
	if text := oneLine(err); text != k.reported {
		k.reported = text
		k.logf('E', `"Error updating node status, will retry" err="%s"`, text)
	}
}

// reconcileStatus posts the node's status if it is not as it should be, or in any case if forced.
func (k *Kubelet) reconcileStatus(ctx context.Context, now time.Time, force bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// What the watch has shown may be a moment old, which does no harm: the patch has only what kubelet writes.
	node := k.own.get()
	if node == nil {
		return false, fmt.Errorf("error getting node %q: it was deleted", k.cfg.Name)
	}
	want := node.DeepCopy()
	k.setStatus(&want.Status, true /* ready */, now)
	if !force && !changed(node.Status, want.Status) {
		return false, nil
	}
	before, err := json.Marshal(node)
	if err != nil {
		return false, err
	}
	after, err := json.Marshal(want)
	if err != nil {
		return false, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return false, err
	}
	patched, err := k.cfg.Client.CoreV1().Nodes().Patch(ctx, k.cfg.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		k.own.gone(node)
	}
	if err != nil {
		return false, fmt.Errorf("failed to patch status for node %q: %w", k.cfg.Name, err)
	}
	k.own.see(patched)
	return true, nil
}

// changed reports whether two statuses differ in more than the time of the last heartbeat.
func changed(a, b corev1.NodeStatus) bool {
	a, b = *a.DeepCopy(), *b.DeepCopy()
	for _, s := range []*corev1.NodeStatus{&a, &b} {
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return !equality.Semantic.DeepEqual(a, b)
}

// setStatus writes what a kubelet knows into the status and leaves what others wrote there.
func (k *Kubelet) setStatus(s *corev1.NodeStatus, ready bool, now time.Time) {
	if s.Capacity == nil {
		s.Capacity, s.Allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	}
	maps.Copy(s.Capacity, k.cfg.Capacity)
	maps.Copy(s.Allocatable, k.cfg.Allocatable)
	if ready {
		maps.Copy(s.Capacity, k.cfg.Devices)
		maps.Copy(s.Allocatable, k.cfg.Devices)
	}
	s.NodeInfo = k.cfg.Info
	s.DaemonEndpoints.KubeletEndpoint.Port = 10250
	for _, c := range conditions(ready) {
		if after, planned := k.cfg.Pressure[c.Type]; planned && now.Sub(k.started) >= after {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, "KubeletHas"+string(c.Type), "kubelet has "+strings.ToLower(string(c.Type))
		}
		setCondition(s, c, metav1.NewTime(now))
	}
}

// SetConditions writes the conditions that a kubelet reports at a time.
func SetConditions(s *corev1.NodeStatus, ready bool, now time.Time) {
	for _, c := range conditions(ready) {
		setCondition(s, c, metav1.NewTime(now))
	}
}

func conditions(ready bool) []corev1.NodeCondition {
	out := []corev1.NodeCondition{
		{
			Type:    corev1.NodeMemoryPressure,
			Status:  corev1.ConditionFalse,
			Reason:  "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available",
		},
		{
			Type:    corev1.NodeDiskPressure,
			Status:  corev1.ConditionFalse,
			Reason:  "KubeletHasNoDiskPressure",
			Message: "kubelet has no disk pressure",
		},
		{
			Type:    corev1.NodePIDPressure,
			Status:  corev1.ConditionFalse,
			Reason:  "KubeletHasSufficientPID",
			Message: "kubelet has sufficient PID available",
		},
	}
	if ready {
		return append(out, corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
		})
	}
	return append(out, corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
		Message: "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
			"message:Network plugin returns error: cni plugin not initialized",
	})
}

func setCondition(s *corev1.NodeStatus, c corev1.NodeCondition, now metav1.Time) {
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	for i, old := range s.Conditions {
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		s.Conditions[i] = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}
