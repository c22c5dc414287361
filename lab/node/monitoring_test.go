package node_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/node"
)

// The monitoring agent reports faults; those that a reboot clears are gone after it, the others stay until they recover.
func TestFaultsOfAnInstance(t *testing.T) {
	t.Parallel()
	i := launch(t, host{})
	name := joined(t, i).Name
	world.nodes.Fail(i.ID, node.Fault{Condition: "AcceleratedHardwareReady", Reason: "XID63", Message: "row remapping failed", ClearedByReboot: true})
	world.nodes.Fail(i.ID, node.Fault{Condition: "StorageReady", Reason: "EBSVolumeImpaired"})
	boot := reports(t, name, map[corev1.NodeConditionType]string{
		"AcceleratedHardwareReady": "False XID63", "StorageReady": "False EBSVolumeImpaired",
	})
	if _, err := ec2.NewFromConfig(world.aws).RebootInstances(t.Context(), &ec2.RebootInstancesInput{InstanceIds: []string{i.ID}}); err != nil {
		t.Fatal(err)
	}
	again := reports(t, name, map[corev1.NodeConditionType]string{
		"AcceleratedHardwareReady": "True AcceleratedHardwareReadyHealthy", "StorageReady": "False EBSVolumeImpaired",
	})
	if again == boot {
		t.Error("the reboot has no new boot ID")
	}
	world.nodes.Recover(i.ID, "StorageReady")
	reports(t, name, map[corev1.NodeConditionType]string{"StorageReady": "True StorageReadyHealthy"})
}

// reports waits until the Node has these conditions, and returns its boot ID.
func reports(t *testing.T, name string, want map[corev1.NodeConditionType]string) (bootID string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		n, err := world.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		found := 0
		for _, c := range n.Status.Conditions {
			if text := fmt.Sprintf("%s %s", c.Status, c.Reason); want[c.Type] == text {
				found++
			}
		}
		if found < len(want) {
			return fmt.Errorf("conditions of %s are %v, want %v", name, n.Status.Conditions, want)
		}
		bootID = n.Status.NodeInfo.BootID
		return nil
	})
	return bootID
}
