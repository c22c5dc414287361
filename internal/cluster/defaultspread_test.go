package cluster_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	engine "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

const overZones = "{podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]}}"

func soft(config string) string {
	return strings.ReplaceAll(config, "DoNotSchedule", "ScheduleAnyway")
}

// spreadOf plans objects under a scheduler configuration; a pool of all zones is there. It reports the pods per zone,
// those that run already included, and how many are left over.
func spreadOf(t *testing.T, config string, o cluster.Objects) string {
	t.Helper()
	parsed, err := cluster.ParseSchedulerConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if o.Pools == nil {
		p := engine.Pool("general", engine.Types())
		o.Pools = []cluster.Pool{{NodePool: p.NodePool, InstanceTypes: p.InstanceTypes}}
	}
	s := cluster.BuildSnapshot(
		o,
		cluster.Facts{Now: start, Labels: requirement.CoreLabels(), Settings: snapshot.Settings{DefaultSpread: parsed.DefaultSpread}},
	)
	p := schedule.Solve(s, schedule.Budget{})
	if err := validate.Plan(s, p); err != nil {
		t.Error(err)
	}
	zones := map[string]int{}
	for i := range s.Nodes {
		zones[s.Nodes[i].Labels[engine.Zone]] += len(s.Nodes[i].Pods)
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		zone, settled := l.Requirements.Get(engine.Zone).Single()
		if !settled {
			zone = "any"
		}
		zones[zone] += len(l.Pods)
	}
	if len(p.Rejected) > 0 {
		zones["none"] = len(p.Rejected)
	}
	var out []string
	for _, z := range slices.Sorted(maps.Keys(zones)) {
		out = append(out, fmt.Sprintf("%s: %d", z, zones[z]))
	}
	return strings.Join(out, ", ")
}

// replicaSet returns one that selects pods by two labels, and its pods, which no node suits.
func replicaSet(name string, pods int, change ...func(*corev1.Pod)) (*appsv1.ReplicaSet, []*corev1.Pod) {
	labels := map[string]string{"app": "web", "pod-template-hash": name}
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	controls := true
	out := make([]*corev1.Pod, pods)
	for i := range out {
		out[i] = podOf(fmt.Sprintf("%s-%d", name, i), append([]func(*corev1.Pod){unschedulable, halfACore, func(p *corev1.Pod) {
			p.Labels = labels
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, Controller: &controls}}
		}}, change...)...)
	}
	return rs, out
}

func halfACore(p *corev1.Pod) {
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: engine.Resources("cpu", "500m")}}}
}

func service(selector map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Selector: selector}}
}

func TestDefaultSpread(t *testing.T) {
	web := map[string]string{"app": "web"}
	labelled := func(p *corev1.Pod) { p.Labels, p.OwnerReferences = web, nil }
	ofJob := func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j"}}
	}
	rs, pods := replicaSet("a", 4)
	_, owned := replicaSet("a", 4, func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: engine.Zone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		}}
	})
	_, alone := replicaSet("a", 4, labelled)
	_, jobs := replicaSet("a", 4, labelled, ofJob)
	other, later := replicaSet("b", 4)
	zones := func(zones ...string) []cluster.Pool {
		p := engine.Pool("general", engine.Types(), engine.Require(engine.Zone, "In", zones...))
		return []cluster.Pool{{NodePool: p.NodePool, InstanceTypes: p.InstanceTypes}}
	}
	full := nodeOf("full", "", func(n *corev1.Node) {
		n.Labels[engine.Zone] = "z1"
		n.Status.Allocatable = engine.Resources("cpu", "0")
	})
	_, two := replicaSet("a", 2)
	running := func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Conditions = "full", nil }
	_, there := replicaSet("a", 2, running, func(p *corev1.Pod) { p.Name += "-old"; p.UID += "-old" })
	byRack := strings.ReplaceAll(overZones, "topology.kubernetes.io/zone", "rack")
	own := cluster.Owners{ReplicaSets: []*appsv1.ReplicaSet{rs, other}}
	tests := []struct {
		name, config string
		objects      cluster.Objects
		want         string
	}{
		{"none", "", cluster.Objects{Pods: pods, Owners: own}, "any: 4"},
		{"a ReplicaSet's pods", overZones, cluster.Objects{Pods: pods, Owners: own}, "z1: 2, z2: 1, z3: 1"},
		{"pods with a constraint of their own", overZones, cluster.Objects{Pods: owned, Owners: own}, "z1: 4"},
		{"impossible", byRack, cluster.Objects{Pods: pods, Owners: own}, "none: 4"},
		{"impossible, but soft", soft(byRack), cluster.Objects{Pods: pods, Owners: own}, "any: 4"},
		{"neither controller nor Service", overZones, cluster.Objects{Pods: alone, Owners: own}, "any: 4"},
		{"a controller that is not there", overZones, cluster.Objects{Pods: pods}, "any: 4"},
		{
			"a Service without a selector",
			overZones,
			cluster.Objects{Pods: alone, Owners: cluster.Owners{Services: []*corev1.Service{service(nil)}}},
			"any: 4",
		},
		{
			"a Service of others",
			overZones,
			cluster.Objects{Pods: alone, Owners: cluster.Owners{Services: []*corev1.Service{service(map[string]string{"app": "db"})}}},
			"any: 4",
		},
		{
			"a Job's pods behind a Service",
			overZones,
			cluster.Objects{Pods: jobs, Owners: cluster.Owners{Services: []*corev1.Service{service(web)}}},
			"z1: 2, z2: 1, z3: 1",
		},
		// Counted together they would be 3, 3, 2.
		{
			"two ReplicaSets are spread by themselves",
			overZones,
			cluster.Objects{Pods: slices.Concat(pods, later), Owners: own},
			"z1: 4, z2: 2, z3: 2",
		},
		{
			"two run in z1 already",
			overZones,
			cluster.Objects{Pods: slices.Concat(two, there), Nodes: []*corev1.Node{full}, Pools: zones("z1", "z2"), Owners: own},
			"z1: 2, z2: 2",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := make([]*corev1.Pod, len(tt.objects.Pods))
			for i, p := range tt.objects.Pods {
				before[i] = p.DeepCopy()
			}
			if got := spreadOf(t, tt.config, tt.objects); got != tt.want {
				t.Errorf("pods per zone: %s; want %s", got, tt.want)
			}
			if diff := cmp.Diff(before, tt.objects.Pods); diff != "" {
				t.Errorf("objects of others changed:\n%s", diff)
			}
		})
	}
}

// A pod that leaves its node is one pod, wherever the Snapshot shows it.
func TestDefaultSpreadOfPodsThatMove(t *testing.T) {
	rs, pods := replicaSet("a", 1, func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Conditions = "leaving", nil })
	node := nodeOf("leaving", "i-1", joinedNode)
	parsed, err := cluster.ParseSchedulerConfig(overZones)
	if err != nil {
		t.Fatal(err)
	}
	claim := claimOf(
		"a",
		launched("i-1"),
		registered("leaving"),
		func(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{Time: start} },
	)
	s := cluster.BuildSnapshot(cluster.Objects{
		NodeClaims: []*karpv1.NodeClaim{
			claim,
		}, Nodes: []*corev1.Node{node}, Pods: pods, Owners: cluster.Owners{ReplicaSets: []*appsv1.ReplicaSet{rs}},
	}, cluster.Facts{Now: start, Settings: snapshot.Settings{DefaultSpread: parsed.DefaultSpread}})
	if len(s.Pods) != 1 || len(s.Pods[0].Spec.TopologySpreadConstraints) != 1 || s.Nodes[0].Pods[0] != s.Pods[0] {
		t.Errorf("to be placed %+v, on the node %+v", s.Pods, s.Nodes[0].Pods)
	}
}

func TestOwnersAreReadOnlyForDefaultSpread(t *testing.T) {
	rs, pods := replicaSet("a", 1)
	w := newTestCluster(t, rs, pods[0])
	for _, config := range []string{"", overZones} {
		parsed, err := cluster.ParseSchedulerConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		w.settings.DefaultSpread = parsed.DefaultSpread
		s, err := w.state(w.cache, w.live).Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := len(s.Pods[0].Spec.TopologySpreadConstraints); got != len(parsed.DefaultSpread) {
			t.Errorf("%d constraints under %q", got, config)
		}
	}
}

func TestSchedulerConfig(t *testing.T) {
	const prefix = "--scheduler-config: podTopologySpread.defaultConstraints[0]."
	constraint := func(fields string) string {
		return "podTopologySpread: {defaultConstraints: [{" + fields + "}]}"
	}
	const whole = "maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule"
	tests := []struct{ name, config, wrong string }{
		{"nothing", "", ""},
		{"empty", "{}", ""},
		{"a constraint", constraint(whole), ""},
		{
			"as JSON",
			`{"podTopologySpread":{"defaultConstraints":[{"maxSkew":1,"topologyKey":"a/b","whenUnsatisfiable":"ScheduleAnyway"}]}}`,
			"",
		},
		{
			"one key, hard and soft",
			"podTopologySpread: {defaultConstraints: [{" + whole + "}, {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}",
			"",
		},
		{"no YAML", "{", "--scheduler-config: is not YAML: line 1: "},
		{"unknown field", "podTopologySpreads: {}", "podTopologySpreads: is not known here: known are podTopologySpread, profiles"},
		{
			"unknown field of a profile", "profiles: [{}, {nodeAfinity: {}}]",
			"profiles[1].nodeAfinity: is not known here: known are schedulerName, nodeAffinity, nodeResourcesFit",
		},
		{
			"unknown field of Kubernetes", "profiles: [{nodeAffinity: {addedAffinity: {required: {}}}}]",
			"profiles[0].nodeAffinity.addedAffinity.required: is not known here: known are requiredDuringSchedulingIgnoredDuringExecution, pref",
		},
		{"two unknown fields", "{a: 1, b: 2}", "b: is not known here"},
		{"a field of another case", "Profiles: []", "Profiles: is not known here"},
		{"a number in place of a list", "profiles: 7", "profiles: is a number, and must be a list"},
		{"a text in place of a number", constraint(`maxSkew: "1"`), "defaultConstraints.maxSkew: is a text, and must be a number"},
		{"a number in place of a text", "profiles: [{schedulerName: 7}]", "schedulerName: is a number, and must be a text"},
		{"a list in place of an object", "profiles: [{nodeAffinity: []}]", "nodeAffinity: is a list, and must be an object"},
		{"the name of a file", "/etc/scheduler.yaml", `is the text "/etc/scheduler.yaml", and must be the configuration itself`},
		{"a list", "[]", "must be an object, in the form {podTopologySpread: "},
		{
			"a whole configuration", "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, profiles: []}",
			"is a whole KubeSchedulerConfiguration, and takes only what plans depend on",
		},
		{"a field twice", "profiles: [{schedulerName: a, schedulerName: b}]", `key "schedulerName" already set in map`},
		{
			"no terms", "profiles: [{nodeAffinity: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}]",
			"profiles[0].nodeAffinity.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: must not be empty",
		},
		{"labelSelector", constraint(whole + ", labelSelector: {matchLabels: {a: b}}"), prefix + "labelSelector: "},
		{"matchLabelKeys", constraint(whole + ", matchLabelKeys: [a]"), prefix + "matchLabelKeys: "},
		{"maxSkew 0", constraint("maxSkew: 0, topologyKey: zone, whenUnsatisfiable: DoNotSchedule"), prefix + "maxSkew: 0 is not positive"},
		{"no key", constraint("maxSkew: 1, whenUnsatisfiable: DoNotSchedule"), prefix + `topologyKey: "" is not a label key`},
		{
			"a key that is none",
			constraint("maxSkew: 1, topologyKey: a b, whenUnsatisfiable: DoNotSchedule"),
			prefix + `topologyKey: "a b" is not a label key`,
		},
		{
			"twice",
			"podTopologySpread: {defaultConstraints: [{" + whole + "}, {" + whole + "}]}",
			"defaultConstraints[1].topologyKey: zone, DoNotSchedule is set twice",
		},
		{"neither hard nor soft", constraint("maxSkew: 1, topologyKey: zone"), prefix + "whenUnsatisfiable: "},
		{
			"minDomains of a soft one",
			constraint("maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, minDomains: 2"),
			prefix + "minDomains: ",
		},
		{"unknown policy", constraint(whole + ", nodeTaintsPolicy: Maybe"), prefix + "nodeTaintsPolicy: "},
		{
			"a profile",
			"profiles: [{schedulerName: batch, nodeAffinity: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
				"{nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}, " +
				"nodeResourcesFit: {ignoredResources: [example.com/a], ignoredResourceGroups: [example.org]}}]",
			"",
		},
		{
			"a profile twice, once by its default name", "profiles: [{schedulerName: default-scheduler}, {}]",
			"profiles[1].schedulerName: default-scheduler is set twice",
		},
		{
			"an affinity that no node can match",
			"profiles: [{nodeAffinity: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
				"{nodeSelectorTerms: [{matchExpressions: [{key: a b, operator: Exists}]}]}}}}]",
			"profiles[0].nodeAffinity.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key",
		},
		{
			"a resource that is none", "profiles: [{nodeResourcesFit: {ignoredResources: [a/b/c]}}]",
			"profiles[0].nodeResourcesFit.ignoredResources[0]",
		},
		{
			"a group with a name", "profiles: [{nodeResourcesFit: {ignoredResourceGroups: [example.com/a]}}]",
			"profiles[0].nodeResourcesFit.ignoredResourceGroups[0]",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := cluster.ParseSchedulerConfig(tt.config)
			if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("error %v, want %q", err, tt.wrong)
			}
		})
	}
}
