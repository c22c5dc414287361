package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pod is a pod on a node.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Workload is the name of what makes it, or its own.
	Workload string `json:"workload"`
	// CPU is the request in millicores, Memory in bytes.
	CPU    int64 `json:"cpuMillicores"`
	Memory int64 `json:"memoryBytes"`
	// Daemon is true for a pod of a DaemonSet.
	Daemon bool `json:"daemon"`
}

// NodePods are pods by the ID of their node. Nodes that are gone are left out.
type NodePods struct {
	Nodes map[string][]Pod `json:"nodes"`
}

// maxAsked limits how many nodes a request may request: as many as can show their pods on one screen.
const maxAsked = 500

func (c *Console) pods(r *http.Request) (any, error) {
	ids := requested(r, "node")
	if len(ids) > maxAsked {
		return nil, invalid("node", fmt.Sprintf("%d nodes are asked for; the limit is %d", len(ids), maxAsked))
	}
	s, _ := c.hub.current()
	out := NodePods{Nodes: map[string][]Pod{}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if _, asked := slices.BinarySearch(ids, n.ID); !asked {
			continue
		}
		pods := []Pod{}
		for p := range s.observed.Fleet.PodsOn(n.Node) {
			kind, workload := workloadOf(p.Pod)
			pods = append(pods, Pod{
				Namespace: p.Namespace, Name: p.Name, Workload: workload, CPU: p.CPU, Memory: p.Memory, Daemon: kind == "DaemonSet",
			})
		}
		out.Nodes[n.ID] = pods
	}
	return out, nil
}

// workloadOf returns what makes the pod: the Deployment of its ReplicaSet, else its owner, else the pod.
func workloadOf(p *corev1.Pod) (kind, name string) {
	owner := metav1.GetControllerOf(p)
	if owner == nil {
		return "Pod", p.Name
	}
	if hash := p.Labels["pod-template-hash"]; owner.Kind == "ReplicaSet" && hash != "" {
		if deployment, found := strings.CutSuffix(owner.Name, "-"+hash); found {
			return "Deployment", deployment
		}
	}
	return cmp.Or(owner.Kind, "Pod"), owner.Name
}
