package manifest_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// write puts files into a new directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func stdin(t *testing.T, text string) *manifest.ClusterState {
	t.Helper()
	w, err := manifest.Read([]string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func podNames(w *manifest.ClusterState) (out []string) {
	for _, p := range w.Pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

func TestSources(t *testing.T) {
	pod := func(name string) string { return "{apiVersion: v1, kind: Pod, metadata: {name: " + name + "}}\n" }
	dir := write(t, map[string]string{
		"b.yaml": pod(
			"b1",
		) + "---\n# nothing\n---\n" + pod(
			"b2",
		), "a/deep.yml": pod("a"), "c.json": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c1"}}
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c2"}}`,
		"notes.txt": "not read", ".hidden/x.yaml": "not: [read", ".x.yaml": "not: [read",
	})
	w, err := manifest.Read([]string{dir, "-", filepath.Join(dir, "b.yaml")}, strings.NewReader(pod("piped")))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"default/a", "default/b1", "default/b2", "default/c1", "default/c2", "default/piped"}
	if got := podNames(w); !slices.Equal(got, want) {
		t.Errorf("pods %v, want %v", got, want)
	}
	if len(w.Notes) != 2 || !strings.Contains(w.Notes[0], "b.yaml:1: Pod b1 replaces that of") {
		t.Errorf("notes %q: want one for each of the pods that were read twice", w.Notes)
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	const poolHead = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\n"
	const ref = "nodeClassRef: {group: example.com, kind: Machine, name: any}"
	for _, tt := range []struct{ name, text, want string }{
		{"not YAML", "a: [", "stdin:1: "},
		{"neither YAML nor JSON", "\xff\xfeb", "stdin: is not text in UTF-8"},
		{"a template", "{apiVersion: v1, kind: Pod, metadata: {name: {{ .Name }}}}", "stdin:1: yaml: "},
		{"second document is not YAML", "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\na: [", "stdin:3: yaml: line 3: "},
		{"no --- between two", "apiVersion: v1\nkind: Pod\napiVersion: v1\nkind: Node\n", "stdin:1: "},
		{"not an object", "- a\n- b\n", "stdin:1: is not an object"},
		{"no kind", "{apiVersion: v1}", "stdin:1: kind and apiVersion are needed"},
		{"no name", "{apiVersion: v1, kind: Pod}", "stdin:1: Pod: metadata.name is missing"},
		{
			"a quantity",
			"{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: ns}, spec: {nodeSelector: {a: 1}, containers: [{name: first}, {name: second, resources: {requests: {cpu: 1x}}}]}}",
			"stdin:1: Pod ns/a: spec.containers[1].resources.requests.cpu: quantities must match",
		},
		{
			"a type", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: many}}",
			"stdin:1: Deployment d: spec.replicas: is a string, which cannot be int32",
		},
		{
			"an item of a list",
			"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: a}}, {apiVersion: v1, kind: Pod}]}",
			"stdin:1: item 2: Pod: metadata.name is missing",
		},
		{
			"more pods than a plan takes",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 2000000000, template: {}}}",
			"stdin:1: Deployment d: spec.replicas: with its 2000000000 pods the inputs exceed the 1000000 pods of one plan",
		},
		{
			"a quantity below zero",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {template: {spec: {initContainers: [{name: i, resources: {requests: {memory: -1}}}]}}}}",
			"stdin:1: Deployment d: spec.template.spec.initContainers[0].resources.requests[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
		},
		{
			"what a node has below zero", "{apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {capacity: {cpu: -1}}}",
			"stdin:1: Node node-1: status.capacity[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
		},
		{
			"replicas", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: -1}}",
			"stdin:1: Deployment d: spec.replicas: Invalid value: -1: must be greater than or equal to 0",
		},
		{
			"what the schema of a NodePool refuses", poolHead + "spec: {weight: 101, template: {spec: {requirements: [], " + ref + "}}}",
			"stdin:1: NodePool p: spec.weight: Invalid value: 101",
		},
		{
			"what a rule of a NodePool refuses", poolHead + "spec: {template: {spec: {requirements: [{key: a, operator: In}], " + ref + "}}}",
			"stdin:1: NodePool p: spec.template.spec.requirements",
		},
		{
			"a field twice in JSON",
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":2,"replicas":900}}`,
			`stdin:1: Deployment d: field "spec.replicas" is set twice`,
		},
		{
			"a field of a pod twice", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},` + "\n" +
				`"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1","cpu":"64"}}}]}}`,
			`stdin:1: Pod a: field "spec.containers[0].resources.requests.cpu" is set twice`,
		},
		{
			"a field of a NodePool twice, in the second document",
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}` + "\n" +
				`{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":"p"},"spec":{"weight":1,"weight":2}}`,
			`stdin:2: NodePool p: field "spec.weight" is set twice`,
		},
		{
			"the kind twice", `{"apiVersion":"v1","kind":"Pod","kind":"Node","metadata":{"name":"a"}}`,
			`stdin:1: Node a: field "kind" is set twice`,
		},
		{
			"a field of an item twice, whose kind the list has", `{"apiVersion":"v1","kind":"PodList","items":[` +
				`{"metadata":{"name":"a"},"spec":{"priority":1,"priority":2}}]}`,
			`stdin:1: item 1: Pod a: field "spec.priority" is set twice`,
		},
		{
			"the items of a list twice", `{"apiVersion":"v1","kind":"List","items":[],"items":[{"apiVersion":"v1","kind":"Pod"}]}`,
			`stdin:1: List: field "items" is set twice`,
		},
		{
			"a field twice in an object of a cluster",
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"7"},"spec":{"nodeName":"x","nodeName":"y"}}`,
			`stdin:1: Pod a: field "spec.nodeName" is set twice`,
		},
		{"a field twice in YAML", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  priority: 1\n  priority: 2\n", "stdin:1: yaml: unmarshal errors:\n  line 6: key \"priority\" already set in map"},
		{
			"what only the controller refuses",
			poolHead + "spec: {template: {metadata: {labels: {karpenter.sh/initialized: x}}, spec: {requirements: [], " + ref + "}}}",
			"stdin:1: NodePool p: spec.template.metadata.labels",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := manifest.Read([]string{"-"}, strings.NewReader(tt.text))
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestEveryBadDocumentIsNamedAtOnce(t *testing.T) {
	_, err := manifest.Read(
		[]string{"-", "no/such.yaml"},
		strings.NewReader("{apiVersion: v1, kind: Pod}\n---\n{apiVersion: v1, kind: Node}"),
	)
	for _, want := range []string{"stdin:1: Pod", "stdin:3: Node", "no/such.yaml"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

func TestNotes(t *testing.T) {
	w := stdin(t, `
{apiVersion: v1, kind: Pod, metadata: {name: a, resourceVersion: "7"}, spec: {nodeSelectors: {x: y}}}
---
{apiVersion: karpenter.sh/v1beta1, kind: NodePool, metadata: {name: old}}
---
{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: c}, spec: {role: r, amiSelectorTerms: [{id: "${AMI}"}],
  subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}]}}
`)
	for i, want := range []string{`unknown field "spec.nodeSelectors" is ignored`, "amiSelectorTerms[0].id", "stdin:4: NodePool old (karpenter.sh/v1beta1) left out: this kind is read in karpenter.sh/v1"} {
		if i >= len(w.Notes) || !strings.Contains(w.Notes[i], want) {
			t.Errorf("notes %q: number %d lacks %q", w.Notes, i, want)
		}
	}
}

// Whatever makes pods that are not in the plan is named, with what to do about it.
func TestWhatIsLeftOutIsNamed(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "# only words\n---\n", "stdin: holds no objects"},
		{
			"pods that come and go", "{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly, namespace: shop}}",
			"stdin:1: CronJob shop/nightly (batch/v1) left out: its pods come and go; to plan those of a run, add the Job",
		},
		{
			"a kind that makes pods",
			"{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web}, spec: {template: {spec: {containers: [{name: c}]}}}}",
			"stdin:1: Rollout web (argoproj.io/v1alpha1) left out: the number of its pods is unknown",
		},
		{
			"an old version",
			"{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: a}}\n---\n{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: b}}",
			"stdin:1: Deployment a (extensions/v1beta1) and 1 more left out: this kind is read in apps/v1",
		},
		{
			"no part in a plan", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}",
			"stdin:1: ConfigMap c (v1) left out: this kind does not affect a plan",
		},
		{
			"a pod on a node that is not there", "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {nodeName: gone}}",
			"pods bound to nodes that are not among the inputs: 1 left out, the first of them default/p on node gone; to count them, add the nodes",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			notes := stdin(t, tt.text).Notes
			if len(notes) != 1 || !strings.HasPrefix(notes[0], tt.want) {
				t.Errorf("notes %q, want %q", notes, tt.want)
			}
		})
	}
}

func TestFilesThatAreNotObjectsSayWhatToPlan(t *testing.T) {
	for name, want := range map[string]string{
		"kustomization.yaml": "kubectl kustomize", "values.yaml": "helm template", "pod.yaml": "as in every Kubernetes object",
	} {
		dir := write(t, map[string]string{name: "resources: [pod.yaml]"})
		if _, err := manifest.Read([]string{dir}, nil); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), name+":1") {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
	_, err := manifest.Read([]string{"-"}, strings.NewReader("kind: Pod\nmetadata: {name: {{ .Values.name }}}\n"))
	if err == nil || !strings.Contains(err.Error(), "helm template") {
		t.Errorf("a template: error %v lacks the hint to render it", err)
	}
}

// What the API server and the controllers of Kubernetes would have added.
func TestCompletedAsInACluster(t *testing.T) {
	w := stdin(t, `
{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: p}, spec: {template: {spec: {requirements: [], nodeClassRef: {group: example.com, kind: Machine, name: any}}}}}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 7}
---
{apiVersion: v1, kind: Pod, metadata: {generateName: x-}, spec: {priorityClassName: high, containers: [{name: c, resources: {limits: {cpu: 2}, requests: {memory: 1Gi}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {generateName: x-}, spec: {volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {}}}}]}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: std, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}, provisioner: x}
`)
	if got := podNames(w); !slices.Equal(got, []string{"default/x-0", "default/x-1"}) {
		t.Errorf("pods %v", got)
	}
	first := w.Pods[0]
	requests := snapshot.Requests(first)
	cpu, memory := requests[corev1.ResourceCPU], requests[corev1.ResourceMemory]
	if cpu.String() != "2" || memory.String() != "1Gi" || !snapshot.Provisionable(first) || first.UID == "" || first.UID == w.Pods[1].UID {
		t.Errorf(
			"pod %s requests %s cpu, %s memory; UIDs %q, %q; provisionable %v",
			first.Name,
			&cpu,
			&memory,
			first.UID,
			w.Pods[1].UID,
			snapshot.Provisionable(first),
		)
	}
	if p := first.Spec.Priority; p == nil || *p != 7 {
		t.Errorf("priority %v, want that of the class", p)
	}
	claims := w.PersistentVolumeClaims
	if len(claims) != 1 || claims[0].Name != "x-1-scratch" || claims[0].Spec.StorageClassName == nil ||
		*claims[0].Spec.StorageClassName != "std" {
		t.Errorf("volume claims %v, want one of the ephemeral volume, with the default class", claims)
	}
	if mode := w.StorageClasses[0].VolumeBindingMode; mode == nil || *mode != "Immediate" {
		t.Errorf("binding mode %v", mode)
	}
	if len(w.Namespaces) != 1 || w.Namespaces[0].Labels[corev1.LabelMetadataName] != "default" {
		t.Errorf("namespaces %v", w.Namespaces)
	}
	pool := w.NodePools[0].Spec
	if len(pool.Disruption.Budgets) != 1 || pool.Template.Spec.ExpireAfter.String() != "720h" {
		t.Errorf("budgets %v, expireAfter %v: want the defaults of the API", pool.Disruption.Budgets, pool.Template.Spec.ExpireAfter)
	}
}

func TestPodsOfWorkloads(t *testing.T) {
	const one, two = "{replicas: 1, template: {}}", "{replicas: 2, template: {}}"
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"one replica by default", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {template: {}}}", []string{"default/d-0"}},
		{"no replicas", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 0, template: {}}}", nil},
		{
			"a ReplicationController", "{apiVersion: v1, kind: ReplicationController, metadata: {name: rc}, spec: {replicas: 2, template: {}}}",
			[]string{"default/rc-0", "default/rc-1"},
		},
		{"a DaemonSet's come with nodes", "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d}, spec: {template: {}}}", nil},
		{
			"a StatefulSet's ordinals",
			"{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 2, ordinals: {start: 5}, template: {}}}",
			[]string{"default/s-5", "default/s-6"},
		},
		{
			"a Job's completions bound its parallelism",
			"{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 3, completions: 2, template: {}}}",
			[]string{
				"default/j-0",
				"default/j-1",
			},
		},
		{
			"a Job runs as many as are parallel",
			"{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 1, completions: 9, template: {}}}",
			[]string{"default/j-0"},
		},
		{
			"a Job that is done",
			"{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {}}, status: {conditions: [{type: Complete, status: 'True'}]}}", nil,
		},
		{
			"a Deployment whose pods are there, without its ReplicaSet",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: " + two + "}\n---\n" +
				"{apiVersion: v1, kind: Pod, metadata: {name: d-7f9-x, labels: {pod-template-hash: 7f9}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: d-7f9, uid: u, controller: true}]}}",
			[]string{"default/d-7f9-x"},
		},
		{
			"each workload makes its own, in its namespace",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: ns}, spec: " + two + "}\n---\n" +
				"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: other, namespace: ns}, spec: " + one + "}",
			[]string{"ns/d-0", "ns/d-1", "ns/other-0"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, podNames(stdin(t, tt.text))); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

// A slip of the indentation must not make pods that cost nothing without a word.
func TestAWorkloadWithoutContainersIsNoted(t *testing.T) {
	const begin = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, "
	w, err := manifest.Read([]string{"-"}, strings.NewReader(begin+"template: {spec: {}}}}"))
	if err != nil || !slices.ContainsFunc(w.Notes, func(n string) bool {
		return strings.HasPrefix(n, "stdin:1: Deployment web has no containers in spec.template.spec")
	}) {
		t.Errorf("%v", err)
	}
	_, err = manifest.Read([]string{"-"}, strings.NewReader(begin+"containers: [{name: c}], template: {spec: {}}}}"))
	if err == nil || !strings.Contains(err.Error(), `Deployment web: unknown field "spec.containers"`) {
		t.Errorf("containers beside the template: %v", err)
	}
}
