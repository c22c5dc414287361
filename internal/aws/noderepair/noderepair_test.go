package noderepair

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
)

// The conditions of EKS nodes, and how long each is tolerated.
func TestLegacyPolicies(t *testing.T) {
	var got []string
	for _, p := range Legacy() {
		got = append(got, fmt.Sprintf("%s=%s for %v", p.Type, p.Status, p.Toleration))
	}
	want := []string{
		"Ready=False for 30m0s", "Ready=Unknown for 30m0s", "AcceleratedHardwareReady=False for 10m0s", "StorageReady=False for 30m0s",
		"NetworkingReady=False for 30m0s", "KernelReady=False for 30m0s", "ContainerRuntimeReady=False for 30m0s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("policies %q, want %q", got, want)
	}
}

// What is done about the faults of EKS nodes: after how long, with which bound of the drain.
func TestPolicies(t *testing.T) {
	const gpu = acceleratedHardwareReady
	for _, tc := range []struct {
		condition  corev1.NodeConditionType
		status     corev1.ConditionStatus
		reason     string
		toleration int // minutes
		bound      time.Duration
		action     karpv1.RepairAction
	}{
		{corev1.NodeReady, "False", "KubeletNotReady", 30, 10 * time.Minute, "ReplaceNode"},
		{corev1.NodeReady, "Unknown", "", 30, 10 * time.Minute, "ReplaceNode"},
		{"StorageReady", "False", "EBSDelay", 30, 10 * time.Minute, "ReplaceNode"},
		{"NetworkingReady", "False", "IPAMDNotReady", 30, 10 * time.Minute, "ReplaceNode"},
		{"KernelReady", "False", "", 30, 10 * time.Minute, "ReplaceNode"},
		{"ContainerRuntimeReady", "False", "x", 30, 10 * time.Minute, "ReplaceNode"},
		{gpu, "False", "NvidiaXID63Error", 10, 5 * time.Minute, "RebootNode"},
		{gpu, "False", "XID158", 10, 5 * time.Minute, "RebootNode"},
		{gpu, "False", "NvidiaXID79Error", 10, 5 * time.Minute, "ReplaceNode"},
		{gpu, "False", "XID631", 30, 10 * time.Minute, "ReplaceNode"}, // another number: the fallback
		{gpu, "False", "NvidiaNVLinkError", 30, 10 * time.Minute, "ReplaceNode"},
	} {
		for _, reboot := range []bool{true, false} {
			set, err := repair.Compile(Policies(reboot))
			if err != nil {
				t.Fatal(err)
			}
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: tc.condition, Status: tc.status, Reason: tc.reason, LastTransitionTime: metav1.NewTime(start)},
			}}}
			faults := set.Faults(node)
			due := start.Add(time.Duration(tc.toleration) * time.Minute)
			if _, early := repair.Decide(faults, &repair.Reboots{}, due.Add(-time.Second)); early {
				t.Errorf("%s %s: repaired before %d minutes", tc.condition, tc.reason, tc.toleration)
			}
			want := tc.action
			if !reboot {
				want = karpv1.RepairReplace
			}
			d, ok := repair.Decide(faults, &repair.Reboots{}, due)
			if !ok || d.Action != want || d.Bound == nil || *d.Bound != tc.bound {
				t.Errorf("%s=%s %s: due %t, %+v; want %s within %s", tc.condition, tc.status, tc.reason, ok, d, want, tc.bound)
			}
		}
	}
}

// The hardware that is lost comes first, then what a reboot may clear.
func TestFatalFaultsComeFirst(t *testing.T) {
	set, err := repair.Compile(Policies(true))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type scored struct {
		name  string
		score float64
	}
	var order []scored
	for _, c := range []corev1.NodeCondition{
		{Type: "StorageReady", Status: "False"},
		{Type: acceleratedHardwareReady, Status: "False", Reason: "XID63"},
		{Type: acceleratedHardwareReady, Status: "False", Reason: "XID79"},
		{Type: corev1.NodeReady, Status: "Unknown"},
	} {
		// Each has been due for a minute.
		set := set.Faults(&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{c}}})
		at := start.Add(time.Hour)
		d, _ := repair.Decide(set, &repair.Reboots{Ended: at.Add(-time.Minute - set[0].Policy().Toleration.Duration)}, at)
		order = append(order, scored{string(c.Type) + c.Reason, d.Score})
	}
	slices.SortStableFunc(order, func(a, b scored) int { return int(100 * (b.score - a.score)) })
	var names []string
	for _, o := range order {
		names = append(names, o.name)
	}
	want := "AcceleratedHardwareReadyXID79 Ready AcceleratedHardwareReadyXID63 StorageReady"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}
