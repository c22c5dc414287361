package buffer_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/buffer"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// shape is a template with pods that request something.
func shape(pairs ...string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "1"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: Resources(pairs...)}}},
		},
	}
}

func TestChunks(t *testing.T) {
	workload := func(n int32) *int32 { return &n }
	for _, c := range []struct {
		name, spec string
		scalable   *int32
		want       int32
	}{
		{"the larger of both, as far as limits allow", "{replicas: 5, percentage: 20, limits: {cpu: 3}}", workload(10), 3},
		{"the larger of both", "{replicas: 5, percentage: 20}", workload(10), 5},
		{"the larger of both, the other way round", "{replicas: 1, percentage: 20}", workload(10), 2},
		{"a share, rounded up", "{percentage: 25}", workload(5), 2},
		{"a small share of something is one", "{percentage: 1}", workload(1), 1},
		{"a share of nothing", "{percentage: 50}", workload(0), 0},
		{"no share", "{percentage: 0}", workload(10), 0},
		{"more than all", "{percentage: 250}", workload(4), 10},
		{"a share of no workload is none", "{replicas: 2, percentage: 90}", nil, 2},
		{"limits alone", "{limits: {cpu: 3500m, memory: 100Gi}}", nil, 3},
		{"the scarcest limit counts", "{limits: {cpu: 100, memory: 5Gi}}", workload(1), 2},
		{"a number of pods is a limit, too", "{replicas: 9, limits: {pods: 4}}", nil, 4},
		{"limits of what the pods do not ask for bound nothing", "{replicas: 5, limits: {nvidia.com/gpu: 1}}", nil, 5},
		{"and say nothing alone", "{limits: {nvidia.com/gpu: 1}}", nil, 0},
		{"less than one pod", "{replicas: 5, limits: {cpu: 500m}}", nil, 0},
		{"nothing", "{}", workload(10), 0},
		{"zero", "{replicas: 0}", nil, 0},
		{"more than there are numbers", "{percentage: 2000000000}", workload(2_000_000_000), math.MaxInt32},
	} {
		t.Run(c.name, func(t *testing.T) {
			var spec bufferv1.CapacityBufferSpec
			if err := yaml.UnmarshalStrict([]byte(c.spec), &spec); err != nil {
				t.Fatal(err)
			}
			if got := buffer.Chunks(&spec, shape("cpu", "1", "memory", "2Gi"), c.scalable); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// A limit without a request is a request, as it is for the pods that the API server makes of the template.
func TestChunksOfTemplatesWithLimitsOnly(t *testing.T) {
	template := shape()
	template.Spec.Containers[0].Resources.Limits = Resources("cpu", "2")
	if got := buffer.Chunks(&bufferv1.CapacityBufferSpec{Limits: Resources("cpu", "10")}, template, nil); got != 5 {
		t.Errorf("%d, want 5", got)
	}
}

func named(name string) *bufferv1.CapacityBuffer {
	return &bufferv1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
}

func TestPods(t *testing.T) {
	template := shape("cpu", "1")
	spec := &template.Spec
	spec.NodeName, spec.PriorityClassName = "somewhere", "high"
	spec.Volumes = []corev1.Volume{
		{
			Name:         "claimed",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}},
		},
		{Name: "made", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	mounts := []corev1.VolumeMount{{Name: "claimed"}, {Name: "scratch"}, {Name: "made"}}
	spec.Containers[0].VolumeMounts = slices.Clone(mounts)
	spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "claimed"}}
	spec.InitContainers = []corev1.Container{{Name: "first", VolumeMounts: slices.Clone(mounts)}}
	before := template.DeepCopy()

	pods := buffer.Pods(named("b"), template, 2)
	if diff := cmp.Diff(before, template); diff != "" {
		t.Errorf("the template has changed:\n%s", diff)
	}
	if len(pods) != 2 {
		t.Fatalf("%d pods, want 2", len(pods))
	}
	p := pods[1]
	want := metav1.ObjectMeta{
		Namespace: "default", Name: "capacity-buffer-b-2", UID: "uid-b-2", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{
			"note": "1", karpv1.AnnotationCapacityBufferFakePod: "true", karpv1.AnnotationCapacityBufferName: "b",
			karpv1.AnnotationCapacityBufferNamespace: "default",
		},
	}
	if diff := cmp.Diff(want, p.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if *p.Spec.Priority != math.MinInt32 || p.Spec.NodeName != "" || !snapshot.Provisionable(p) {
		t.Errorf("pod %+v", p.Spec)
	}
	left := []corev1.VolumeMount{{Name: "scratch"}}
	if len(p.Spec.Volumes) != 1 || !cmp.Equal(p.Spec.Containers[0].VolumeMounts, left) ||
		!cmp.Equal(p.Spec.InitContainers[0].VolumeMounts, left) ||
		len(p.Spec.Containers[0].VolumeDevices) != 0 {
		t.Errorf("volumes %v, mounts %v and %v", p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts, p.Spec.InitContainers[0].VolumeMounts)
	}
	if !snapshot.IsVirtual(p) || buffer.BufferOf(p).String() != "default/b" || snapshot.IsVirtual(Pod("a")) {
		t.Error("a virtual pod does not say what it is")
	}
	if got := len(buffer.Pods(named("b"), template, math.MaxInt32)); got != buffer.MaxChunks {
		t.Errorf("%d pods, want %d", got, buffer.MaxChunks)
	}
}

// virtual are the pods of a buffer.
func virtual(name string, n int32, pairs ...string) []*corev1.Pod {
	return buffer.Pods(named(name), shape(pairs...), n)
}

// plan returns what Solve and Plan make of a snapshot; the real plan must be the one without buffers.
func plan(t *testing.T, s *snapshot.Snapshot) (schedule.Plan, buffer.Placement) {
	t.Helper()
	real := schedule.Solve(s, schedule.Budget{})
	without := *s
	without.Virtual = nil
	compare := cmp.Options{cmpopts.IgnoreFields(schedule.Stats{}, "Steps"), cmp.Comparer(requirement.Set.Equal)}
	if diff := cmp.Diff(schedule.Solve(&without, schedule.Budget{}), real, compare); diff != "" {
		t.Errorf("buffers change the plan of real pods (-without +with):\n%s", diff)
	}
	return real, buffer.Plan(s, real, schedule.Budget{})
}

// describe is a room in words: nodes, launches, and how each buffer fares.
func describe(r buffer.Placement) string {
	var out []string
	for name, n := range r.Nodes {
		out = append(out, fmt.Sprintf("%s: %d", name, n))
	}
	for i := range r.Launches {
		out = append(
			out,
			fmt.Sprintf("launch %s: %d", r.Launches[i].Offering.Zone+" "+r.Launches[i].InstanceTypes[0].Name, len(r.Launches[i].Pods)),
		)
	}
	for key, o := range r.Buffers {
		out = append(out, fmt.Sprintf("%s here %d coming %d nowhere %d", key.Name, o.OnExisting, o.NeedNew, o.Unschedulable))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func onDemand(np *karpv1.NodePool) {
	Require(Capacity, corev1.NodeSelectorOpIn, karpv1.CapacityTypeOnDemand)(np)
	Require(Zone, corev1.NodeSelectorOpIn, "z1")(np)
}

func pool(edit ...func(*karpv1.NodePool)) []snapshot.Pool {
	return []snapshot.Pool{Pool("general", Types(), append(edit, onDemand)...)}
}

// Where the room is.
func TestRoom(t *testing.T) {
	unlaunched := func(n *snapshot.Node) {
		n.Launched, n.Registered, n.Initialized, n.Name = false, false, false, n.Claim
		n.Allocatable, n.Capacity = nil, nil
	}
	for _, c := range []struct {
		name    string
		pools   []snapshot.Pool
		pods    []*corev1.Pod
		nodes   []snapshot.Node
		virtual []*corev1.Pod
		want    string
	}{
		{name: "no buffers", pods: Pods(3, "a", Requests("cpu", "1")), want: ""},
		{
			name: "it fits nodes that exist", nodes: []snapshot.Node{Node("n", "general")}, virtual: virtual("b", 3, "cpu", "1"),
			want: "b here 3 coming 0 nowhere 0; n: 3",
		},
		{
			name: "it needs a claim", virtual: virtual("b", 4, "cpu", "1"), want: "b here 0 coming 4 nowhere 0; launch z1 m.large: 4",
		},
		{
			name: "partly here", nodes: []snapshot.Node{Node("n", "general")}, virtual: virtual("b", 5, "cpu", "1"),
			want: "b here 4 coming 1 nowhere 0; launch z1 m.small: 1; n: 4",
		},
		{
			name: "real pods first: the room is what they leave", nodes: []snapshot.Node{Node("n", "general")}, pods: Pods(3, "a", Requests("cpu",
				"1")),
			virtual: virtual("b", 1, "cpu", "2"), want: "b here 0 coming 1 nowhere 0; launch z1 m.medium: 1",
		},
		{
			name: "however large the virtual pods and small the real ones", nodes: []snapshot.Node{Node("n", "general")}, pods: Pods(1, "a",
				Requests("cpu", "100m")),
			virtual: virtual("b", 1, "cpu", "4"), want: "b here 0 coming 1 nowhere 0; launch z1 m.large: 1",
		},
		{
			name: "what a new claim of real pods leaves is room, too", pods: Pods(1, "a", Requests("cpu", "2500m")),
			virtual: virtual("b", 1, "cpu", "1"), want: "b here 0 coming 1 nowhere 0",
		},
		{
			name: "a limit is for real pods first", pools: pool(Limit("cpu", "4")), pods: Pods(1, "a", Requests("cpu", "4")),
			virtual: virtual("b", 1, "cpu", "1"), want: "b here 0 coming 0 nowhere 1",
		},
		{
			name: "what the limit allows is launched", pools: pool(Limit("cpu", "5")), pods: Pods(1, "a", Requests("cpu", "4")),
			virtual: virtual("b", 2, "cpu", "1"), want: "b here 0 coming 1 nowhere 1; launch z1 m.small: 1",
		},
		{
			name: "a number of nodes is a limit, too", pools: pool(Limit("nodes", "1")), pods: Pods(1, "a", Requests("cpu", "1")),
			virtual: virtual("b", 1, "cpu", "1"), want: "b here 0 coming 0 nowhere 1",
		},
		{
			name: "too large for any type", virtual: virtual("b", 2, "cpu", "64"), want: "b here 0 coming 0 nowhere 2",
		},
		{
			name: "two buffers side by side", nodes: []snapshot.Node{Node("n", "general")}, virtual: slices.Concat(virtual("b", 2, "cpu", "1"),
				virtual("c", 2, "cpu", "1")),
			want: "b here 2 coming 0 nowhere 0; c here 2 coming 0 nowhere 0; n: 4",
		},
		{
			name:    "a launched node in flight has room; an unlaunched claim only for its nominated pods",
			nodes:   []snapshot.Node{Node("n", "general", unlaunched, func(n *snapshot.Node) { n.NominatedVirtual = []types.UID{"uid-b-1"} })},
			virtual: virtual("b", 2, "cpu", "1"), want: "b here 0 coming 2 nowhere 0; launch z1 m.small: 1; n-claim: 1",
		},
		{
			name: "a node that goes is none, and its pods go before virtual ones",
			nodes: []snapshot.Node{Node("gone", "general", func(n *snapshot.Node) {
				n.Deleting = true
				n.Pods = []*corev1.Pod{Bound(Pod("a", Requests("cpu", "3")), "gone")}
			}), Node("n", "general")},
			pods:    []*corev1.Pod{Bound(Pod("a", Requests("cpu", "3")), "gone")},
			virtual: virtual("b", 2, "cpu", "1"), want: "b here 1 coming 1 nowhere 0; launch z1 m.small: 1; n: 1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			pools := c.pools
			if pools == nil {
				pools = pool()
			}
			s := World(pools, c.pods...)
			s.Nodes, s.Virtual = c.nodes, c.virtual
			_, room := plan(t, s)
			if got := describe(room); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// Virtual pods keep to the constraints of their template, and to those of the pods that exist.
func TestRoomRespectsConstraints(t *testing.T) {
	template := shape("cpu", "1")
	template.Spec.TopologySpreadConstraints = Pod("x", Spread(Zone, 1, "web")).Spec.TopologySpreadConstraints
	s := World([]snapshot.Pool{Pool("general", Types())}, Pod("real", Requests("cpu", "1"), Labeled("app", "web"), Selects(Zone, "z1")))
	s.Virtual = buffer.Pods(named("b"), template, 2)
	_, room := plan(t, s)
	var zones []string
	for i := range room.Launches {
		zones = append(zones, room.Launches[i].Offering.Zone)
	}
	slices.Sort(zones)
	if !slices.Equal(zones, []string{"z2", "z3"}) {
		t.Errorf("launched in %v, want in the zones without a pod", zones)
	}
}

func TestMessage(t *testing.T) {
	for _, c := range []struct {
		o    buffer.Outcome
		want string
	}{
		{buffer.Outcome{OnExisting: 3}, "fit on existing nodes: 3 of 3 pods"},
		{buffer.Outcome{OnExisting: 1, NeedNew: 2}, "fit on existing nodes: 1 of 3 pods; need new nodes: 2"},
		{
			buffer.Outcome{NeedNew: 1, Unschedulable: 2, Why: "limits"},
			"fit on existing nodes: 0 of 3 pods; need new nodes: 1; cannot be scheduled: 2 (limits)",
		},
	} {
		if got := c.o.Message(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
