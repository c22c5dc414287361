package manifest_test

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// zeros is a device that never finishes.
type zeros struct{ with byte }

func (z zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = z.with
	}
	return len(p), nil
}

func TestPlanRefusesByFieldWhatTheAPIServerRefuses(t *testing.T) {
	pod := func(spec string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {" + spec + "}}"
	}
	podGroup := func(spec string) string {
		return "{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, metadata: {name: a}, spec: {" + spec + "}}"
	}
	container := func(fields string) string { return pod("containers: [{name: c, " + fields + "}]") }
	required := func(expression string) string {
		return pod(
			"affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [" + expression + "]}]}}}",
		)
	}
	for _, tt := range []struct{ name, text, want string }{
		{
			"a host port beyond the last", container("ports: [{containerPort: 80, hostPort: 70000}]"),
			"spec.containers[0].ports[0].hostPort: Invalid value: 70000",
		},
		{
			"a host port below zero", container("ports: [{containerPort: 80, hostPort: -1}]"),
			"spec.containers[0].ports[0].hostPort: Invalid value: -1",
		},
		{
			"a host port twice", container("ports: [{containerPort: 80, hostPort: 90}, {containerPort: 81, hostPort: 90}]"),
			"spec.containers[0].ports[1].hostPort: Duplicate value: 90",
		},
		{
			"another port on the host's network", pod("hostNetwork: true, containers: [{ports: [{containerPort: 80, hostPort: 81}]}]"),
			"spec.containers[0].ports[0].hostPort: Invalid value: 81: must match",
		},
		{
			"a protocol", container("ports: [{containerPort: 80, protocol: ICMP}]"),
			`spec.containers[0].ports[0].protocol: Unsupported value: "ICMP"`,
		},
		{"an address of a host", container("ports: [{containerPort: 80, hostIP: here}]"), `hostIP: Invalid value: "here"`},
		{
			"a skew below zero", pod("topologySpreadConstraints: [{maxSkew: -1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]"),
			"spec.topologySpreadConstraints[0].maxSkew: Invalid value: -1: must be greater than zero",
		},
		{
			"a skew of zero", pod("topologySpreadConstraints: [{topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]"),
			"spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
		},
		{
			"what a spread does", pod("topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Never}]"),
			`whenUnsatisfiable: Unsupported value: "Never"`,
		},
		{
			"no domains", pod("topologySpreadConstraints: [{maxSkew: 1, minDomains: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]"),
			"minDomains: Invalid value: 0",
		},
		{
			"no topology", pod("affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{}]}}"),
			"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value",
		},
		{
			"a weight",
			pod("affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, podAffinityTerm: {topologyKey: a}}]}}"),
			"weight: Invalid value: 101",
		},
		{
			"an empty name of a quantity", container("resources: {requests: {'': 1}}"),
			`spec.containers[0].resources.requests[]: Invalid value: "": the name of the resource is empty`,
		},
		{
			"a name of a quantity", container("resources: {requests: {gpu: 1}}"),
			`spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource`,
		},
		{
			"half a device", container("resources: {limits: {example.com/gpu: 500m}}"),
			`spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "500m": must be an integer`,
		},
		{
			"a device without a limit", container("resources: {requests: {example.com/gpu: 1}}"),
			"spec.containers[0].resources.limits[example.com/gpu]: Required value",
		},
		{
			"a request above its limit", container("resources: {requests: {cpu: 2}, limits: {cpu: 1}}"),
			`spec.containers[0].resources.requests[cpu]: Invalid value: "2": must be less than or equal to cpu limit of 1`,
		},
		{"an operator", required("{key: a, operator: Equals, values: [b]}"), `matchExpressions[0].operator: Invalid value: "Equals"`},
		{"no values", required("{key: a, operator: In}"), "matchExpressions[0].values: Required value"},
		{"a value of a label", required("{key: a, operator: In, values: ['team a']}"), `matchExpressions[0].values[0]: Invalid value: "team a"`},
		{"a key of a selector", pod("nodeSelector: {'a b': c}"), `spec.nodeSelector: Invalid value: "a b"`},
		{"a toleration", pod("tolerations: [{operator: Equal, value: x}]"), "spec.tolerations[0].operator: Invalid value"},
		{"an effect", pod("tolerations: [{key: a, operator: Exists, effect: Never}]"), `spec.tolerations[0].effect: Unsupported value: "Never"`},
		{"an operating system", pod("os: {name: plan9}"), `spec.os.name: Unsupported value: "plan9"`},
		{"a name", "{apiVersion: v1, kind: Pod, metadata: {name: A_B}}", `metadata.name: Invalid value: "A_B"`},
		{"a label", "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {app: 'a b'}}}", `metadata.labels[app]: Invalid value: "a b"`},
		{
			"in a template",
			"{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {containers: [{ports: [{containerPort: 0}]}]}}}}",
			"spec.template.spec.containers[0].ports[0].containerPort: Required value",
		},
		{
			"a budget of both kinds",
			"{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a}, spec: {minAvailable: 1, maxUnavailable: 1}}",
			"cannot both be set",
		},
		{"a PodGroup of no policy", podGroup("schedulingPolicy: {}"), "spec.schedulingPolicy: Required value: exactly one of gang and basic"},
		{"a PodGroup of both", podGroup("schedulingPolicy: {gang: {minCount: 2}, basic: {}}"), "exactly one of gang and basic must be set"},
		{
			"a gang of none", podGroup("schedulingPolicy: {gang: {minCount: 0}}"),
			"spec.schedulingPolicy.gang.minCount: Invalid value: 0: must be at least 1",
		},
		{
			"a PodGroup in a domain of nothing", podGroup("schedulingPolicy: {basic: {}}, schedulingConstraints: {topology: [{key: ''}]}"),
			`spec.schedulingConstraints.topology[0].key: Invalid value: ""`,
		},
		{
			"a PodGroup in two domains", podGroup("schedulingPolicy: {basic: {}}, schedulingConstraints: {topology: [{key: a}, {key: b}]}"),
			"spec.schedulingConstraints.topology: Too many: 2: must have at most 1 item",
		},
		{
			"ordinals of a StatefulSet", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {ordinals: {start: -1}}}",
			"spec.ordinals.start: Invalid value: -1",
		},
		{
			"completions of a Job", "{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {completions: -3}}",
			"spec.completions: Invalid value: -3",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := manifest.Read([]string{"-"}, strings.NewReader(tt.text))
			if err == nil || !strings.Contains(err.Error(), " a: ") && !strings.Contains(err.Error(), "A_B: ") ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want the object and %q", err, tt.want)
			}
		})
	}
	// An API server lets these through.
	for _, text := range []string{
		required("{key: a, operator: Gt, values: ['5']}"), pod("tolerations: [{operator: Exists}]"),
		container("resources: {limits: {cpu: 1, example.com/gpu: 1}}"),
		pod("affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: ['team a']}]}}]}}"),
		container("ports: [{containerPort: 80, hostPort: 90}, {containerPort: 80, hostPort: 90, protocol: UDP}]"),
	} {
		if _, err := manifest.Read([]string{"-"}, strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestABadDocumentHidesNoOther(t *testing.T) {
	text := "{apiVersion: v1, kind: Pod, metadata: {name: good}}\n---\nmetadata: {name: kindless}\n---\na: [\n---\n# only words\n---\n" +
		"apiVersion: v1\nkind: Pod\nkind: Pod\n---\n{apiVersion: v1, kind: List, items: [{kind: Pod}, {apiVersion: v1, kind: Pod}]}\n--- {apiVersion: v1, kind: Node}\n"
	_, err := manifest.Read([]string{"-"}, strings.NewReader(text))
	if err == nil {
		t.Fatal("nothing is wrong with it")
	}
	want := []string{
		"stdin:3: kindless: kind and apiVersion are needed", "stdin:5: yaml: line 5:", "stdin:9: ", `line 11: key "kind" already set`,
		"stdin:13: item 1: kind and apiVersion are needed", "stdin:13: item 2: Pod: metadata.name is missing",
		"stdin:14: Node: metadata.name is missing",
	}
	for _, want := range want {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

func TestInputIsBounded(t *testing.T) {
	big := write(t, map[string]string{"a.yaml": "# " + strings.Repeat("x", 600), "b.yaml": "# " + strings.Repeat("x", 600)})
	for _, tt := range []struct {
		name string
		in   manifest.Input
		want string
	}{
		{"zeros without end", manifest.Input{Paths: []string{"-"}, Stdin: zeros{}}, "stdin: is not text in UTF-8"},
		{
			"text without end",
			manifest.Input{Paths: []string{"-"}, Stdin: zeros{'a'}, MaxBytes: 1 << 21},
			"stdin: with it the inputs exceed 2Mi: pass fewer files with -f, or raise --max-input",
		},
		{"a device", manifest.Input{Paths: []string{"/dev/zero"}}, "/dev/zero: is not text in UTF-8"},
		{"files together", manifest.Input{Paths: []string{big}, MaxBytes: 1 << 10}, filepath.Join(big,
			"b.yaml") + ": with it the inputs exceed 1Ki"},
		{"no name", manifest.Input{Paths: []string{""}}, `-f "": no file is named`},
		{"no stdin", manifest.Input{Paths: []string{"-"}}, "stdin: is closed"},
		{"stdin that fails", manifest.Input{Paths: []string{"-"}, Stdin: io.MultiReader(strings.NewReader("{"), failing{})}, "stdin: no more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.in.Read(); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("no more") }

// Hostile input causes an error, and soon.
func TestNonsenseIsAnErrorAndNoMore(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	lists := "{apiVersion: v1, kind: Pod, metadata: {name: a}}"
	for range 40 {
		lists = "{apiVersion: v1, kind: List, items: [" + lists + "]}"
	}
	many := strings.Repeat("a\n---\n", 100_000)
	for _, tt := range []struct{ name, text, want string }{
		{"aliases of aliases", bomb, "excessive aliasing"},
		{"brackets", strings.Repeat("[", 1_000_000), "stdin:1: "},
		{"braces", strings.Repeat(`{"a":`, 1_000_000), "stdin:1: "},
		{"lists in lists", lists, "Lists are nested more than 8 deep"},
		{"too many documents", many, "99950 more errors omitted"},
		{"an image", "\x89PNG\r\n\x1a\n\x00\x00", "is not text"},
		{"a name as long as a file", "{apiVersion: v1, kind: Pod, metadata: {name: " + strings.Repeat("x", 100_000) + "}}", "xx ..."},
		{"half a document", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"`, "stdin:1: "},
		{
			"a wrong item of many",
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"tolerations":[` + strings.Repeat(`{"key":"a"},`,
				100_000) + `{"key":1}]}}`, "spec.tolerations[100000].key",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := manifest.Read([]string{"-"}, strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %.300v, want %q", err, tt.want)
			}
		})
	}
	// These are only unusual.
	for name, text := range map[string]string{
		"a byte order mark":  "\ufeff{apiVersion: v1, kind: Pod, metadata: {name: a}}",
		"of Windows":         "apiVersion: v1\r\nkind: Pod\r\nmetadata:\r\n  name: a\r\n---\r\n",
		"with a directive":   "%YAML 1.1\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}}\n...\n",
		"empty at both ends": "---\n---\n{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n",
	} {
		t.Run(name, func(t *testing.T) {
			if got := podNames(stdin(t, text)); len(got) != 1 || got[0] != "default/a" {
				t.Errorf("pods %v", got)
			}
		})
	}
}
