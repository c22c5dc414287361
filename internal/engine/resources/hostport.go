package resources

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// HostPort is what a pod has for itself on a node: a port that a container reserves, or a disk.
type HostPort struct {
	IP       string
	Port     int32
	Protocol corev1.Protocol
	// Disk is a disk that the pod names itself; empty for a port. Pods that only read it share it.
	Disk     string
	ReadOnly bool
}

// HostPorts are the ports that the pod reserves for as long as it runs, and the disks that it names itself. As in Kubernetes, no address
// means all, and no protocol means TCP.
func HostPorts(pod *corev1.Pod) []HostPort {
	var out []HostPort
	add := func(ports []corev1.ContainerPort) {
		for _, p := range ports {
			if p.HostPort == 0 {
				continue
			}
			hp := HostPort{IP: p.HostIP, Port: p.HostPort, Protocol: p.Protocol}
			if hp.IP == "" {
				hp.IP = "0.0.0.0"
			}
			if hp.Protocol == "" {
				hp.Protocol = corev1.ProtocolTCP
			}
			out = append(out, hp)
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c.Ports) // a sidecar runs as long as the pod
		}
	}
	for i := range pod.Spec.Containers {
		add(pod.Spec.Containers[i].Ports)
	}
	return append(out, disks(pod)...)
}

// String is the port as "8080/TCP", or the disk.
func (p HostPort) String() string {
	if p.Disk != "" {
		return p.Disk
	}
	return fmt.Sprintf("%d/%s", p.Port, p.Protocol)
}

// anywhere reports whether the port is taken on all addresses of the node. To kube-scheduler, "::" is an address like any other.
func (p HostPort) anywhere() bool { return p.IP == "0.0.0.0" }

// conflicts reports whether only one of the two can be reserved on a node.
func (p HostPort) conflicts(o HostPort) bool {
	if p.Disk != "" || o.Disk != "" {
		return p.Disk == o.Disk && !(p.ReadOnly && o.ReadOnly)
	}
	return p.Port == o.Port && p.Protocol == o.Protocol && (p.IP == o.IP || p.anywhere() || o.anywhere())
}

// manyPorts is the number of host ports from which conflicts are found by port number instead of pair by pair.
const manyPorts = 16

// PortSet is the host ports that one pod reserves. The zero value has none.
type PortSet struct {
	ports []HostPort
	// byNumber finds the ports by number where there are many; else nil.
	byNumber map[int32][]HostPort
}

// NewPortSet is the set of the ports.
func NewPortSet(ports []HostPort) PortSet {
	s := PortSet{ports: ports}
	if len(ports) >= manyPorts {
		s.byNumber = map[int32][]HostPort{}
		for _, p := range ports {
			s.byNumber[p.Port] = append(s.byNumber[p.Port], p)
		}
	}
	return s
}

// Len is the number of ports.
func (s *PortSet) Len() int { return len(s.ports) }

// All are the ports of the set. The caller must not change them.
func (s *PortSet) All() []HostPort { return s.ports }

// Clash reports whether any port of the set is taken.
func (s *PortSet) Clash(taken []HostPort) bool {
	if s.byNumber == nil {
		return PortsConflict(s.ports, taken)
	}
	return slices.ContainsFunc(taken, func(t HostPort) bool { return slices.ContainsFunc(s.byNumber[t.Port], t.conflicts) })
}

// maxRivals limits of how many lists just one may fit for Rivals to find them: to know about one of them, one looks at all.
const maxRivals = 8

// Rivals finds, for each of the lists, the others of which each conflicts with it and with all of these: only one of them fits on a node.
// Contested are those with conflicts that are not so, or with very many.
//
// Cost: the square of the lists.
func Rivals(lists [][]HostPort) (rivals []Bitset, contested []bool) {
	with := make([]Bitset, len(lists)) // the list itself, and those that it conflicts with
	for i := range lists {
		for k := range lists {
			if i == k || PortsConflict(lists[i], lists[k]) {
				with[i].Add(k)
			}
		}
	}
	rivals, contested = make([]Bitset, len(lists)), make([]bool, len(lists))
	for i := range lists {
		all := with[i].Members()
		contested[i] = len(all) > maxRivals || slices.ContainsFunc(all, func(k int) bool { return !slices.Equal(with[k], with[i]) })
		for _, k := range all {
			if k != i && !contested[i] {
				rivals[i].Add(k)
			}
		}
	}
	return rivals, contested
}

// PortsConflict reports whether any port of a and any of b cannot be reserved on one node. Cost: len(a) times len(b).
func PortsConflict(a, b []HostPort) bool {
	for _, x := range a {
		if slices.ContainsFunc(b, x.conflicts) {
			return true
		}
	}
	return false
}
