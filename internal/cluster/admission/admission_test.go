package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/yaml"
)

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func limitRange(t *testing.T, name, limits string) *corev1.LimitRange {
	l := parse[corev1.LimitRange](t, "spec: {limits: "+limits+"}")
	l.Namespace, l.Name = "shop", name
	return l
}

func runtimeClass(t *testing.T, text string) *nodev1.RuntimeClass {
	class := parse[nodev1.RuntimeClass](t, text)
	class.Name = "kata"
	return class
}

// A pod of a template is as large, and as choosy, as the pod that the API server makes of it.
func TestPodsOfTemplatesAreWhatTheAPIServerMakesOfThem(t *testing.T) {
	kata := runtimeClass(t, "{overhead: {podFixed: {cpu: 250m}}, scheduling: {nodeSelector: {kata: 'yes'}, tolerations: [{key: kata, operator: Exists}]}}")
	container := func(resources string) string { return "containers: [{name: c, resources: " + resources + "}]" }
	for _, c := range []struct {
		name        string
		limitRanges []*corev1.LimitRange
		spec, want  string
	}{
		{"limits are requests", nil, "{" + container("{limits: {cpu: 2}}") + "}", "{" + container("{limits: {cpu: 2}, requests: {cpu: 2}}") + "}"},
		{
			"defaults of the namespace, for init containers, too",
			[]*corev1.LimitRange{limitRange(t, "a",
				"[{type: Container, defaultRequest: {cpu: 1}, default: {cpu: 2, memory: 1Gi}}]")},
			"{initContainers: [{name: i}], " + container("{requests: {memory: 3Gi}}") + "}",
			"{initContainers: [{name: i, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}], " +
				container("{requests: {cpu: 1, memory: 3Gi}, limits: {cpu: 2, memory: 1Gi}}") + "}",
		},
		{
			"a container's own limit comes before the default request",
			[]*corev1.LimitRange{limitRange(t, "a", "[{type: Container, defaultRequest: {cpu: 100m}}]")},
			"{" + container("{limits: {cpu: 2}}") + "}", "{" + container("{limits: {cpu: 2}, requests: {cpu: 2}}") + "}",
		},
		{
			"the maximum is the default limit, the minimum the default request",
			[]*corev1.LimitRange{limitRange(t, "a", "[{type: Container, max: {cpu: 4}, min: {memory: 64Mi}}]")},
			"{" + container("{}") + "}", "{" + container("{limits: {cpu: 4}, requests: {cpu: 4, memory: 64Mi}}") + "}",
		},
		{
			"the first LimitRange by name counts", []*corev1.LimitRange{
				limitRange(t, "b", "[{type: Container, defaultRequest: {cpu: 8, memory: 1Gi}}]"),
				limitRange(t, "a", "[{type: Container, defaultRequest: {cpu: 1}}]"),
			}, "{" + container("{}") + "}", "{" + container("{requests: {cpu: 1, memory: 1Gi}}") + "}",
		},
		{
			"limits of pods and claims are none of containers",
			[]*corev1.LimitRange{limitRange(t, "a", "[{type: Pod, max: {cpu: 4}}, {type: PersistentVolumeClaim, min: {storage: 1Gi}}]")},
			"{" + container("{}") + "}", "{" + container("{}") + "}",
		},
		{
			"a pod's own request defaults to that of its containers, which have those of the namespace",
			[]*corev1.LimitRange{limitRange(t, "a", "[{type: Container, defaultRequest: {cpu: 1}}]")},
			"{resources: {limits: {cpu: 4, memory: 8Gi}}, " + container("{}") + "}",
			"{resources: {limits: {cpu: 4, memory: 8Gi}, requests: {cpu: 1, memory: 8Gi}}, " + container("{requests: {cpu: 1}}") + "}",
		},
		{
			"overhead, selector and tolerations of the runtime class", nil,
			"{runtimeClassName: kata, nodeSelector: {team: a}, tolerations: [{key: team}]}",
			"{runtimeClassName: kata, nodeSelector: {team: a, kata: 'yes'}, tolerations: [{key: team}, {key: kata, operator: Exists}], overhead: {cpu: 250m}}",
		},
		{
			"host ports of the host network", nil, "{hostNetwork: true, containers: [{name: c, ports: [{containerPort: 9100}]}]}",
			"{hostNetwork: true, containers: [{name: c, ports: [{containerPort: 9100, hostPort: 9100}]}]}",
		},
		{"the priority of a class", nil, "{priorityClassName: high}", "{priorityClassName: high, priority: 7}"},
		{"a class of the system", nil, "{priorityClassName: system-node-critical}", "{priorityClassName: system-node-critical, priority: 2000001000}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := New(Objects{
				LimitRanges: c.limitRanges, RuntimeClasses: []*nodev1.RuntimeClass{kata},
				PriorityClasses: []*schedulingv1.PriorityClass{named("high", 7)},
			})
			spec, want := parse[corev1.PodSpec](t, c.spec), parse[corev1.PodSpec](t, c.want)
			for _, time := range []string{"once", "twice"} {
				if err := rules.Complete("shop", spec); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, spec); diff != "" {
					t.Errorf("%s: -want +got\n%s", time, diff)
				}
			}
		})
	}
}

func named(name string, value int32) *schedulingv1.PriorityClass {
	class := &schedulingv1.PriorityClass{Value: value}
	class.Name = name
	return class
}

func TestAPodWithoutAPriorityClassHasTheDefaultOne(t *testing.T) {
	high, low := named("high", 9), named("low", 5)
	high.GlobalDefault, low.GlobalDefault = true, true
	spec := &corev1.PodSpec{}
	if err := New(Objects{PriorityClasses: []*schedulingv1.PriorityClass{high, low}}).Complete("shop", spec); err != nil {
		t.Fatal(err)
	}
	if spec.PriorityClassName != "low" || spec.Priority == nil || *spec.Priority != 5 {
		t.Errorf("class %q, priority %v; want low, 5", spec.PriorityClassName, spec.Priority)
	}
}

// Files share the containers of equal pods, in whichever namespace they are.
func TestDefaultsOfANamespaceDoNotReachPodsOfAnother(t *testing.T) {
	rules := New(Objects{LimitRanges: []*corev1.LimitRange{limitRange(t, "a", "[{type: Container, defaultRequest: {cpu: 1}}]")}})
	mine := parse[corev1.PodSpec](t, "{containers: [{name: c}], resources: {limits: {cpu: 4}}}")
	theirs := *mine
	for namespace, spec := range map[string]*corev1.PodSpec{"shop": mine, "other": &theirs} {
		if err := rules.Complete(namespace, spec); err != nil {
			t.Fatal(err)
		}
	}
	if got := theirs.Containers[0].Resources.Requests; len(got) > 0 {
		t.Errorf("a pod without a LimitRange requests %v", got)
	}
	if got := theirs.Resources.Requests.Cpu().String(); got != "4" {
		t.Errorf("the other pod as a whole requests cpu %s, want 4", got)
	}
	if got := mine.Resources.Requests.Cpu().String(); got != "1" {
		t.Errorf("the pod as a whole requests cpu %s, want 1", got)
	}
}

func TestPodsThatTheAPIServerRejects(t *testing.T) {
	rules := New(Objects{RuntimeClasses: []*nodev1.RuntimeClass{
		runtimeClass(t, "{overhead: {podFixed: {cpu: 250m}}, scheduling: {nodeSelector: {arch: amd64}}}"),
	}})
	for spec, want := range map[string]string{
		"{runtimeClassName: none}":                              `runtime class "none" does not exist`,
		"{runtimeClassName: kata, overhead: {cpu: 1}}":          `spec.overhead differs from that of runtime class "kata"; remove it`,
		"{runtimeClassName: kata, nodeSelector: {arch: arm64}}": `spec.nodeSelector has arch=arm64, and runtime class "kata" selects nodes with arch=amd64; remove one of them`,
	} {
		if err := rules.Complete("shop", parse[corev1.PodSpec](t, spec)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
}

func TestDaemonPodsTolerateWhatTheirControllerAdds(t *testing.T) {
	spec := parse[corev1.PodSpec](t, "{hostNetwork: true}")
	if err := New(Objects{}).CompleteDaemon("shop", spec); err != nil {
		t.Fatal(err)
	}
	got := map[string]corev1.TaintEffect{}
	for _, toleration := range spec.Tolerations {
		got[toleration.Key] = toleration.Effect
	}
	want := map[string]corev1.TaintEffect{
		"node.kubernetes.io/not-ready": "NoExecute", "node.kubernetes.io/unreachable": "NoExecute",
		"node.kubernetes.io/disk-pressure": "NoSchedule", "node.kubernetes.io/memory-pressure": "NoSchedule",
		"node.kubernetes.io/pid-pressure": "NoSchedule", "node.kubernetes.io/unschedulable": "NoSchedule",
		"node.kubernetes.io/network-unavailable": "NoSchedule",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
