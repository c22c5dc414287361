package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

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

// maxAsked is how many nodes a request may ask for: as many as can show their pods on one screen.
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

// Pending are the pods without a node.
type Pending struct {
	At time.Time `json:"at"`
	// Unknown is true if pods may not be read, or have not been yet.
	Unknown bool `json:"unknown"`
	// Planned is when the engine last planned them; null if it has not yet, and the reasons are kube-scheduler's.
	Planned *time.Time `json:"planned"`
	// Stuck is how many pods need a change to run, Fits how many get a node as they are.
	Stuck int `json:"stuck"`
	Fits  int `json:"fits"`
	// Groups are those first that need a change, then by waiting time. More is how many are left out.
	Groups []PendingGroup `json:"groups"`
	More   int            `json:"more"`
}

// PendingGroup are pods of one workload with the same outlook.
type PendingGroup struct {
	Namespace string `json:"namespace"`
	// Kind and Name are those of the workload, or of the pod if it has none.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Pods are the names of the first pods, the oldest first. Count is how many there are.
	Pods  []string `json:"pods"`
	Count int      `json:"count"`
	// Since is when the oldest was created.
	Since time.Time `json:"since"`
	// CPU is the request of the oldest in millicores, Memory in bytes.
	CPU    int64 `json:"cpuMillicores"`
	Memory int64 `json:"memoryBytes"`
	// Why is what becomes of it, or why it gets no node; Fits reports which of the two.
	Why  string `json:"why"`
	Fits bool   `json:"fits"`
}

// mostGroups bounds the page: nobody reads more, and pods without an owner are a group each.
const mostGroups = 500

// namedPods is how many pods of a group are named: as many as a page lists without scrolling.
const namedPods = 20

// pending are the pending pods of the state.
func (s *state) pending() Pending {
	out := Pending{At: s.At, Unknown: s.report == nil || s.observed.Fleet.PodsUnknown, Planned: s.Summary.Planned, Groups: []PendingGroup{}}
	if s.report == nil {
		return out
	}
	groups := map[string]int{}
	for i := range s.report.Pending { // those first that need a change, then the oldest
		p := &s.report.Pending[i]
		kind, name := workloadOf(p.Pod)
		key := fmt.Sprintf("%s/%s/%s %t", p.Namespace, kind, name, p.Fits)
		if p.Fits {
			out.Fits++
		} else {
			out.Stuck++
		}
		at, known := groups[key]
		if !known {
			at = len(groups)
			groups[key] = at
		}
		if at >= mostGroups {
			continue
		}
		if !known {
			out.Groups = append(out.Groups, PendingGroup{
				Namespace: p.Namespace, Kind: kind, Name: name, Since: p.Created, CPU: p.CPU, Memory: p.Memory, Why: p.Why, Fits: p.Fits,
				Pods: []string{},
			})
		}
		g := &out.Groups[at]
		g.Count++
		if len(g.Pods) < namedPods {
			g.Pods = append(g.Pods, p.Name)
		}
	}
	out.More = max(0, len(groups)-mostGroups)
	return out
}

// workloadOf is what makes the pod: the Deployment of its ReplicaSet, else its owner, else the pod.
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
