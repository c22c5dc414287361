package noderepair

import (
	"fmt"
	"slices"
	"testing"
)

// The conditions of EKS nodes, and how long each is tolerated.
func TestPolicies(t *testing.T) {
	var got []string
	for _, p := range Policies() {
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
