package manifest_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

const kata = `
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: kata}, handler: kata, overhead: {podFixed: {cpu: 250m, memory: 160Mi}},
 scheduling: {nodeSelector: {runtime: kata}, tolerations: [{key: kata, operator: Exists}]}}
---
`

// A pod of a RuntimeClass is planned with what its runtime takes, on nodes that have the runtime, as in a cluster.
func TestRuntimeClassCountsOffline(t *testing.T) {
	w := stdin(t, kata+`
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, template: {spec: {runtimeClassName: kata, nodeSelector: {disk: fast},
 containers: [{name: c, resources: {requests: {cpu: 1, memory: 1Gi}}}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {template: {spec: {runtimeClassName: kata, containers: [{name: c}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: unknown}, spec: {runtimeClassName: gvisor, containers: [{name: c}]}}
`)
	specs := []*corev1.PodSpec{&w.DaemonSets[0].Spec.Template.Spec}
	for _, pod := range w.Pods {
		if strings.HasPrefix(pod.Name, "web") {
			requests := snapshot.Requests(pod)
			cpu, memory := requests[corev1.ResourceCPU], requests[corev1.ResourceMemory]
			if cpu.String() != "1250m" || memory.String() != "1184Mi" || pod.Spec.NodeSelector["disk"] != "fast" {
				t.Errorf("%s requests %s cpu and %s memory, on nodes with %v", pod.Name, &cpu, &memory, pod.Spec.NodeSelector)
			}
			specs = append(specs, &pod.Spec)
		}
	}
	if len(specs) != 3 {
		t.Fatalf("%d pods", len(specs)-1)
	}
	for _, spec := range specs {
		if spec.NodeSelector["runtime"] != "kata" || len(spec.Tolerations) != 1 || spec.Tolerations[0].Key != "kata" ||
			len(spec.Overhead) != 2 {
			t.Errorf("nodeSelector %v, tolerations %v, overhead %v", spec.NodeSelector, spec.Tolerations, spec.Overhead)
		}
	}
	if notes := strings.Join(w.Notes, "\n"); !strings.Contains(notes, `runtime class "gvisor" is not among the inputs`) {
		t.Errorf("notes: %s", notes)
	}
	_, err := manifest.Read([]string{"-"}, strings.NewReader(kata+`
{apiVersion: v1, kind: Pod, metadata: {name: torn}, spec: {runtimeClassName: kata, nodeSelector: {runtime: runc}, containers: [{name: c}]}}
`))
	if err == nil ||
		!strings.Contains(
			err.Error(),
			"pod default/torn: spec.nodeSelector has runtime=runc, and runtime class \"kata\" selects nodes with runtime=kata",
		) {
		t.Errorf("error %v", err)
	}
}

// Ports of pods in the host's network are ports of the node, whether or not the manifest has the host port.
func TestHostNetworkPortsAreHostPortsOffline(t *testing.T) {
	w := stdin(t, `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: proxy}, spec: {replicas: 2, template: {spec: {hostNetwork: true,
 containers: [{name: c, ports: [{containerPort: 80}, {containerPort: 81, hostPort: 81}]}], initContainers: [{name: i, restartPolicy: Always, ports: [{containerPort: 82}]}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {template: {spec: {hostNetwork: true, containers: [{name: c, ports: [{containerPort: 9100}]}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: plain}, spec: {containers: [{name: c, ports: [{containerPort: 80}]}]}}
`)
	for _, pod := range w.Pods {
		ports, sidecar := pod.Spec.Containers[0].Ports, int32(0)
		if pod.Name != "plain" {
			sidecar = pod.Spec.InitContainers[0].Ports[0].HostPort
		}
		if want := pod.Name != "plain"; (ports[0].HostPort == 80) != want || (sidecar == 82) != want {
			t.Errorf("%s: host ports %d, %d", pod.Name, ports[0].HostPort, sidecar)
		}
	}
	if got := w.DaemonSets[0].Spec.Template.Spec.Containers[0].Ports[0].HostPort; got != 9100 {
		t.Errorf("the daemon's host port is %d", got)
	}
}
