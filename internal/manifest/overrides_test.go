package manifest_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// A snapshot need not hold what its pods were made by, and admission has added to them.
func TestWorkloadsBesideASnapshotThatHasOnlyTheirPods(t *testing.T) {
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: shop, labels: {app: a, pod-template-hash: 7f9, injected: "yes"},
  ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: u, controller: true}]}, spec: {nodeName: node-1, priority: 0, schedulerName: default-scheduler,
  tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}], terminationGracePeriodSeconds: 30,
  volumes: [{name: kube-api-access, projected: {}}], restartPolicy: %s,
  containers: [{name: c, image: mirror/c, resources: {requests: {cpu: 1}, limits: {cpu: 1}}, ports: [{containerPort: 80, protocol: TCP}]}, {name: sidecar, image: s}]}, status: {phase: Running}}
---
`
	now := "{apiVersion: dovetail.sh/v1, kind: Snapshot, takenAt: '2026-08-01T12:00:00Z'}\n---\n"
	for i := range 3 {
		now += fmt.Sprintf(pod, fmt.Sprintf("web-7f9-%d", i), "apps/v1", "ReplicaSet", "web-7f9", "Always")
	}
	now += fmt.Sprintf(pod, "report-x", "batch/v1", "Job", "report", "OnFailure")
	dir := write(t, map[string]string{"now.yaml": now})
	const spec = "metadata: {labels: {app: a}}, spec: {%scontainers: [{name: c, image: c, ports: [{containerPort: 80}], resources: {limits: {cpu: %s}}}]}"
	web := func(replicas int, extra, cpu string) string {
		return fmt.Sprintf(
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: %d, template: {%s}}}",
			replicas,
			fmt.Sprintf(spec, extra, cpu),
		)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"as it is", web(3, "", "1"), ""},
		{"more", web(5, "", "1000m"), "{Deployment shop/web 3 5 2 0 0 []}"},
		{
			"another limit", web(3, "", "2"),
			"{Deployment shop/web 3 3 0 0 3 [spec.template.spec.containers[0].resources.limits.cpu spec.template.spec.containers[0].resources.requests.cpu]}",
		},
		{"a selector", web(3, "nodeSelector: {a: b}, ", "1"), "{Deployment shop/web 3 3 0 0 3 [spec.template.spec.nodeSelector.a]}"},
		{"a toleration", web(3, "tolerations: [{operator: Exists}], ", "1"), "{Deployment shop/web 3 3 0 0 3 [spec.template.spec.tolerations]}"},
		{"a priority", web(3, "priorityClassName: high, ", "1"), "{Deployment shop/web 3 3 0 0 3 [spec.template.spec.priorityClassName]}"},
		{
			"a Job", fmt.Sprintf("{apiVersion: batch/v1, kind: Job, metadata: {name: report, namespace: shop}, spec: {parallelism: 4, template: {%s}}}", fmt.Sprintf(spec, "restartPolicy: OnFailure, ", "1")),
			"{Job shop/report 1 4 3 0 0 []}",
		},
		{"of another namespace", strings.ReplaceAll(web(3, "", "1"), "shop", "other"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := manifest.Read([]string{"-", filepath.Join(dir, "now.yaml")}, strings.NewReader(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, c := range w.Changes {
				got += fmt.Sprint(c)
			}
			if got != tt.want {
				t.Errorf("changes %s, want %s", got, tt.want)
			}
		})
	}
}

// A pod of a StatefulSet has the name of the one that it replaces.
func TestAStatefulSetOfAnotherTemplateBesideASnapshotHasItsPodsPlanned(t *testing.T) {
	const pod = `{apiVersion: v1, kind: Pod, metadata: {name: db-%d, namespace: shop, labels: {app: db},
  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: u, controller: true}]},
  spec: {nodeName: node-1, containers: [{name: c, image: c, resources: {requests: {cpu: 1}}}]}, status: {phase: Running}}
---
`
	now := "{apiVersion: dovetail.sh/v1, kind: Snapshot, takenAt: '2026-08-01T12:00:00Z'}\n---\n"
	for i := range 3 {
		now += fmt.Sprintf(pod, i)
	}
	dir := write(t, map[string]string{"now.yaml": now})
	const set = `{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db, namespace: shop}, spec: {replicas: 3, template: {metadata: {labels: {app: db}},
  spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 2}}}]}}}}`
	w, err := manifest.Read([]string{"-", filepath.Join(dir, "now.yaml")}, strings.NewReader(set))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(waiting(w)); got != "[shop/db-0 shop/db-1 shop/db-2]" {
		t.Errorf("pods that wait for a node: %s", got)
	}
}

// Pods are identified by their names, and those of Deployments and Jobs are made up.
func TestWorkloadsOfOneNameHaveAllTheirPodsPlanned(t *testing.T) {
	const spec = "template: {metadata: {labels: {app: %s}}, spec: {restartPolicy: %s, containers: [{name: c, image: c}]}}"
	text := "{apiVersion: v1, kind: Pod, metadata: {name: web-4, namespace: shop}, spec: {containers: [{name: c, image: c}]}}"
	for _, w := range []string{
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 2, " + fmt.Sprintf(spec, "a",
			"Always") + "}}",
		"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: web, namespace: shop}, spec: {replicas: 2, " + fmt.Sprintf(spec, "b",
			"Always") + "}}",
		"{apiVersion: batch/v1, kind: Job, metadata: {name: web, namespace: shop}, spec: {parallelism: 2, " + fmt.Sprintf(spec, "c",
			"Never") + "}}",
	} {
		text += "\n---\n" + w
	}
	w, err := manifest.Read([]string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(waiting(w)); got != "[shop/web-0 shop/web-1 shop/web-2 shop/web-3 shop/web-4 shop/web-5 shop/web-6]" {
		t.Errorf("pods that wait for a node: %s", got)
	}
}

// waiting are the pods that the scheduler has found no node for, by name.
func waiting(w *manifest.ClusterState) []string {
	var out []string
	for _, pod := range w.Pods {
		unschedulable := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable
		})
		if unschedulable {
			out = append(out, pod.Namespace+"/"+pod.Name)
		}
	}
	slices.Sort(out)
	return out
}
