package resources_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/resources"
)

func TestHostPorts(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Name: "init", Ports: []corev1.ContainerPort{{HostPort: 1}}},
			{Name: "sidecar", RestartPolicy: &always, Ports: []corev1.ContainerPort{{HostPort: 2, Protocol: "UDP"}}},
		},
		Containers: []corev1.Container{
			{Name: "a", Ports: []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 3, HostIP: "10.0.0.1"}}},
		},
	}}
	want := []resources.HostPort{{IP: "0.0.0.0", Port: 2, Protocol: "UDP"}, {IP: "10.0.0.1", Port: 3, Protocol: "TCP"}}
	if got := resources.HostPorts(pod); !slices.Equal(got, want) {
		t.Errorf("ports %v, want those of sidecars and containers that name a host port: %v", got, want)
	}
}

// TestConflicts follows kube-scheduler's plugin NodePorts: port and protocol are equal, and the addresses are equal or
// one of them is all addresses.
func TestConflicts(t *testing.T) {
	port := func(ip string, number int32, protocol corev1.Protocol) resources.HostPort {
		return resources.HostPort{IP: ip, Port: number, Protocol: protocol}
	}
	tests := []struct {
		name     string
		a, b     resources.HostPort
		conflict bool
	}{
		{"equal", port("10.0.0.1", 80, "TCP"), port("10.0.0.1", 80, "TCP"), true},
		{"other address", port("10.0.0.1", 80, "TCP"), port("10.0.0.2", 80, "TCP"), false},
		{"all addresses", port("0.0.0.0", 80, "TCP"), port("10.0.0.2", 80, "TCP"), true},
		{"to kube-scheduler, all IPv6 addresses are one", port("::", 80, "TCP"), port("10.0.0.2", 80, "TCP"), false},
		{"all IPv6 addresses twice", port("::", 80, "TCP"), port("::", 80, "TCP"), true},
		{"all addresses and all IPv6 addresses", port("::", 80, "TCP"), port("0.0.0.0", 80, "TCP"), true},
		{"other protocol", port("0.0.0.0", 80, "TCP"), port("0.0.0.0", 80, "UDP"), false},
		{"other port", port("0.0.0.0", 80, "TCP"), port("0.0.0.0", 81, "TCP"), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, pair := range [][2]resources.HostPort{{tt.a, tt.b}, {tt.b, tt.a}} {
				if got := resources.PortsConflict(pair[:1], pair[1:]); got != tt.conflict {
					t.Errorf("%v and %v: conflict = %v", pair[0], pair[1], got)
				}
				// A set of many ports is searched by number and must answer the same.
				few := resources.NewPortSet(pair[:1])
				ports := slices.Clone(pair[:1])
				for i := range int32(30) {
					ports = append(ports, port("0.0.0.0", 1000+i, "TCP"))
				}
				many := resources.NewPortSet(ports)
				if few.Clash(pair[1:]) != tt.conflict || many.Clash(pair[1:]) != tt.conflict {
					t.Errorf("%v and %v: Clash of few ports = %v, of many = %v", pair[0], pair[1], few.Clash(pair[1:]), many.Clash(pair[1:]))
				}
			}
		})
	}
	var none resources.PortSet
	if none.Len() != 0 || none.Clash([]resources.HostPort{port("0.0.0.0", 80, "TCP")}) {
		t.Error("the empty set clashes")
	}
}
