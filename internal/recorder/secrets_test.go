package recorder

import (
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/cluster/dynamicresources"
)

// plant fills every string below v with its own path, so that a leak names the field. Lists and maps get one element.
func plant(v reflect.Value, path string, depth int) {
	if depth > 24 {
		return
	}
	switch v.Interface().(type) {
	case metav1.Time, metav1.MicroTime, resource.Quantity:
		return
	case intstr.IntOrString:
		v.Set(reflect.ValueOf(intstr.FromInt32(1)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("planted:" + path + ":")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		plant(v.Elem(), path, depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(fmt.Sprintf(`{"x":"planted:%s:"}`, path)))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), path, depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		plant(value, path, depth+1)
		if key.Kind() == reflect.String {
			key.SetString("example.com/x")
		}
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				plant(v.Field(i), path+"."+f.Name, depth+1)
			}
		}
	}
}

// planted is an object of a kind in which every string is its path.
func planted[T any](name string) *T {
	o := new(T)
	plant(reflect.ValueOf(o).Elem(), name, 0)
	return o
}

// everyKind is a cluster with one object of each kind, all planted.
func everyKind() (cluster.Objects, []*awsv1.EC2NodeClass) {
	replicas := int32(1)
	buffer := cluster.Buffer{CapacityBuffer: planted[bufferv1.CapacityBuffer]("CapacityBuffer")}
	buffer.Status.Replicas = &replicas
	buffer.Template = planted[corev1.PodTemplateSpec]("PodTemplate")
	o := cluster.Objects{
		Pools:                  []cluster.Pool{{NodePool: planted[karpv1.NodePool]("NodePool")}},
		NodeClaims:             []*karpv1.NodeClaim{planted[karpv1.NodeClaim]("NodeClaim")},
		Nodes:                  []*corev1.Node{planted[corev1.Node]("Node")},
		CSINodes:               []*storagev1.CSINode{planted[storagev1.CSINode]("CSINode")},
		CSIDrivers:             []*storagev1.CSIDriver{planted[storagev1.CSIDriver]("CSIDriver")},
		CSIStorageCapacities:   []*storagev1.CSIStorageCapacity{planted[storagev1.CSIStorageCapacity]("CSIStorageCapacity")},
		VolumeAttachments:      []*storagev1.VolumeAttachment{planted[storagev1.VolumeAttachment]("VolumeAttachment")},
		Pods:                   []*corev1.Pod{planted[corev1.Pod]("Pod")},
		DaemonSets:             []*appsv1.DaemonSet{planted[appsv1.DaemonSet]("DaemonSet")},
		PersistentVolumeClaims: []*corev1.PersistentVolumeClaim{planted[corev1.PersistentVolumeClaim]("PersistentVolumeClaim")},
		PersistentVolumes:      []*corev1.PersistentVolume{planted[corev1.PersistentVolume]("PersistentVolume")},
		StorageClasses:         []*storagev1.StorageClass{planted[storagev1.StorageClass]("StorageClass")},
		PDBs:                   []*policyv1.PodDisruptionBudget{planted[policyv1.PodDisruptionBudget]("PodDisruptionBudget")},
		Namespaces:             []*corev1.Namespace{planted[corev1.Namespace]("Namespace")},
		Buffers:                []cluster.Buffer{buffer},
		PodGroups:              &cluster.PodGroups{Groups: []*schedulingv1beta1.PodGroup{planted[schedulingv1beta1.PodGroup]("PodGroup")}},
		Devices: &cluster.Devices{
			Expressions: dynamicresources.NewExpressions(),
			Claims:      []*resourcev1.ResourceClaim{planted[resourcev1.ResourceClaim]("ResourceClaim")},
			Slices:      []*resourcev1.ResourceSlice{planted[resourcev1.ResourceSlice]("ResourceSlice")},
			Classes:     []*resourcev1.DeviceClass{planted[resourcev1.DeviceClass]("DeviceClass")},
			TaintRules:  []*resourcev1.DeviceTaintRule{planted[resourcev1.DeviceTaintRule]("DeviceTaintRule")},
		},
	}
	o.Services = []*corev1.Service{planted[corev1.Service]("Service")}
	o.ReplicationControllers = []*corev1.ReplicationController{planted[corev1.ReplicationController]("ReplicationController")}
	o.ReplicaSets = []*appsv1.ReplicaSet{planted[appsv1.ReplicaSet]("ReplicaSet")}
	o.StatefulSets = []*appsv1.StatefulSet{planted[appsv1.StatefulSet]("StatefulSet")}
	return o, []*awsv1.EC2NodeClass{planted[awsv1.EC2NodeClass]("EC2NodeClass")}
}

// text is everything in a recording, decompressed.
func text(t *testing.T, path string) string {
	t.Helper()
	rec, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	var out strings.Builder
	for i := range rec.frames {
		data, err := payload(rec.file, rec.frames[i])
		if err != nil {
			t.Fatal(err)
		}
		if kind := rec.frames[i].kind; kind == kindSteps || kind == kindDeletions {
			out.Write(data)
			continue
		}
		if err := rec.zstd.Reset(strings.NewReader(string(data))); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&out, rec.zstd); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

var (
	plantedText = regexp.MustCompile(`planted:([A-Za-z0-9.]+):`)
	// forbidden are the fields that may hold secrets: environment, commands, probes, files, configuration, and annotations.
	forbidden = regexp.MustCompile(`(?i)\.(env|envfrom|command|args|lifecycle|livenessprobe|readinessprobe|startupprobe|exec|httpget|` +
		`imagepullsecrets|secret|secretname|configmap|projected|downwardapi|annotations|managedfields|parameters|userdata|volumeattributes|` +
		`nodestagesecretref|nodepublishsecretref|controllerpublishsecretref|nodeexpandsecretref|controllerexpandsecretref|config|opaque|raw|` +
		`securitycontext|hostaliases|dnsconfig|data|configsource)(\.|$)`)
)

// harmless are the annotations that a NodePool gives its nodes, the kubelet settings of a node class, and the name of a ConfigMap.
var harmless = regexp.MustCompile(`^(NodePool.Spec.Template.ObjectMeta.Annotations|EC2NodeClass.Spec.Kubelet.Raw|` +
	`Node.Spec.ConfigSource.ConfigMap.[A-Za-z]+)$`)

// Every string of every object holds its own path. What is in the recording must be none of the fields that may be secret, and of
// containers no more than names, images, ports and resources.
func TestNoFieldThatMayBeSecretIsRecorded(t *testing.T) {
	cfg := testConfig(t, MinSize)
	objects, classes := everyKind()
	cfg.NodeClasses = func() []*awsv1.EC2NodeClass { return classes }
	before := string(mustJSON(objects.Pods)) + string(mustJSON(objects.ReplicaSets)) + string(mustJSON(classes))
	r, w := newTestRecorder(t, cfg), newTestWorld(1, 1, 0)
	facts := w.facts
	s := cluster.BuildSnapshot(w.objects, facts)
	r.Saw(s, &objects, &facts)
	p := r.Begin(Provisioning, s, s)
	p.Call(CallSolve, SolveInput{}, PlanRecord{})
	p.Decide(Decision{ID: p.ID() + "-0", What: "launch"})
	p.Flush()
	r.Step(Step{Decision: p.ID() + "-0", What: StepLaunched})
	r.settle()
	r.Close()
	recorded := map[string]bool{}
	for _, m := range plantedText.FindAllStringSubmatch(text(t, cfg.Path), -1) {
		recorded[m[1]] = true
	}
	kinds := map[string]bool{}
	for path := range recorded {
		kind, _, _ := strings.Cut(path, ".")
		kinds[kind] = true
		if forbidden.MatchString(path) && !harmless.MatchString(path) {
			t.Errorf("recorded: %s", path)
		}
		if _, field, inContainer := strings.Cut(path, "ontainers."); inContainer && !containerField.MatchString(field) {
			t.Errorf("recorded of a container: %s", path)
		}
	}
	if len(kinds) != 26 {
		t.Errorf("%d kinds are recorded: %v", len(kinds), slices.Sorted(maps.Keys(kinds)))
	}
	if after := string(mustJSON(objects.Pods)) + string(mustJSON(objects.ReplicaSets)) + string(mustJSON(classes)); after != before {
		t.Error("recording has changed the objects")
	}
}

var containerField = regexp.MustCompile(`^((Name|Image|Ports|Resources|ResizePolicy|RestartPolicy)(\.|$)|RestartPolicyRules\.Action$|VolumeMounts\.(Name|BindMountOptions)$)`)
