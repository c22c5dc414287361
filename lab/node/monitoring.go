package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Fault is a fault of an instance that the EKS node monitoring agent finds and reports as a condition of the Node with
// status False.
type Fault struct {
	Condition corev1.NodeConditionType // such as StorageReady
	Reason    string                   // such as XID63
	Message   string
	// ClearedByReboot is true if the fault is gone once the instance has booted anew.
	ClearedByReboot bool
}

// hostFault is a fault of one instance.
type hostFault struct {
	Fault
	active  bool
	reboots int // of the instance when the fault began
}

// faults are those of all instances. They belong to the hardware: reboots keep them unless they clear them.
type faults struct {
	byInstance map[string][]hostFault
	// changed is closed, and replaced, when a fault begins or stops.
	changed chan struct{}
}

func newFaults() faults {
	return faults{byInstance: map[string][]hostFault{}, changed: make(chan struct{})}
}

// set replaces the instance's fault of the same condition.
func (f *faults) set(instance string, fault hostFault) {
	all := slices.DeleteFunc(f.byInstance[instance], func(h hostFault) bool { return h.Condition == fault.Condition })
	f.byInstance[instance] = append(all, fault)
	close(f.changed)
	f.changed = make(chan struct{})
}

// Fail gives a running instance a fault, in place of one of the same condition.
func (f *Simulator) Fail(instance string, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.set(instance, hostFault{Fault: fault, active: true, reboots: f.reboots[instance]})
}

// Recover stops the fault of a condition.
func (f *Simulator) Recover(instance string, condition corev1.NodeConditionType) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.set(instance, hostFault{Fault: Fault{Condition: condition}})
}

// conditionsOf returns what the agent on an instance finds, and a channel that is closed when that may have changed.
func (f *Simulator) conditionsOf(instance string, reboots int) ([]corev1.NodeCondition, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []corev1.NodeCondition
	for _, h := range f.faults.byInstance[instance] {
		c := corev1.NodeCondition{Type: h.Condition, Status: corev1.ConditionTrue, Reason: string(h.Condition) + "Healthy"}
		if h.active && (!h.ClearedByReboot || reboots == h.reboots) {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, h.Reason, h.Message
		}
		out = append(out, c)
	}
	return out, f.faults.changed
}

// monitor reports faults until ctx is done, as the EKS node monitoring agent does.
func (m host) monitor(ctx context.Context, client kubernetes.Interface) {
	const retryInterval = time.Second
	for {
		found, changed := m.simulator.conditionsOf(m.instance.ID, m.instance.Reboots)
		var retry <-chan time.Time
		if err := m.report(ctx, client, found); err != nil {
			retry = time.After(retryInterval) // the Node may not exist yet
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-retry:
		}
	}
}

// report sets conditions of the Node that differ from what the agent found.
func (m host) report(ctx context.Context, client kubernetes.Interface, found []corev1.NodeCondition) error {
	if len(found) == 0 {
		return nil
	}
	name := m.instance.PrivateDNSName
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("monitoring agent reads node %q: %w", name, err)
	}
	if node.Status.NodeInfo.BootID != m.info().BootID {
		return fmt.Errorf("kubelet of node %q has not started since the boot: the agent's pod does not run yet", name)
	}
	var differ []corev1.NodeCondition
	now := metav1.NewTime(m.simulator.cfg.Now())
	for _, c := range found {
		i := slices.IndexFunc(node.Status.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
		c.LastTransitionTime, c.LastHeartbeatTime = now, now
		if i >= 0 {
			old := node.Status.Conditions[i]
			if old.Status == c.Status && old.Reason == c.Reason {
				continue
			}
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		differ = append(differ, c)
	}
	if len(differ) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": differ}})
	if err == nil {
		_, err = client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		return fmt.Errorf("monitoring agent writes conditions of node %q: %w", name, err)
	}
	return nil
}
