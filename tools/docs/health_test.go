package docs

import (
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	bufferv1 "github.com/dovetail-k8s/dovetail/api/autoscaling/v1beta1"
	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	v1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/api/karpenter/v1alpha1"
)

// The health of Argo CD.
const (
	healthy     = "Healthy"
	degraded    = "Degraded"
	progressing = "Progressing"
	suspended   = "Suspended"
)

// state is an object in one of its states, and what its health is then.
type state struct {
	name    string
	gvk     schema.GroupVersionKind
	of      metav1.Object
	deleted bool
	want    string
}

// object is what Argo CD hands to the check.
func (s state) object(t *testing.T) map[string]any {
	t.Helper()
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.of)
	if err != nil {
		t.Fatal(err)
	}
	if status, ok := out["status"].(map[string]any); ok && len(status) == 0 {
		delete(out, "status")
	}
	return out
}

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// states are our objects in all states that their conditions can be in.
func states() (out []state) {
	out = append(out, rooted(v1.GroupVersion.WithKind("NodePool"), func() object { return &v1.NodePool{} })...)
	out = append(out, rooted(v1.GroupVersion.WithKind("NodeClaim"), func() object { return &v1.NodeClaim{} })...)
	out = append(out, rooted(awsv1.GroupVersion.WithKind("EC2NodeClass"), func() object { return &awsv1.EC2NodeClass{} })...)
	out = append(out, rooted(v1alpha1.GroupVersion.WithKind("NodeOverlay"), func() object { return &v1alpha1.NodeOverlay{} })...)
	claim := &v1.NodeClaim{}
	ready(claim)
	condition.SetTrueWithReason(claim, v1.ConditionDisruptionReason, condition.Because("Drifted", "replaced as drifted"), now)
	out = append(out, state{name: "disrupted", gvk: v1.GroupVersion.WithKind("NodeClaim"), of: claim, want: suspended})
	return append(out, buffers()...)
}

// object is an object with a root condition.
type object interface {
	metav1.Object
	condition.Object
}

func ready(o object) {
	for _, typ := range o.ConditionTypes().Dependents {
		condition.SetTrue(o, typ, now)
	}
}

// rooted are the states of an object with a root condition.
func rooted(gvk schema.GroupVersionKind, empty func() object) (out []state) {
	add := func(name, want string, change func(object)) {
		o := empty()
		o.SetName("default")
		o.SetGeneration(1)
		change(o)
		out = append(out, state{name: gvk.Kind + " " + name, gvk: gvk, of: o, want: want, deleted: o.GetDeletionTimestamp() != nil})
	}
	types := empty().ConditionTypes()
	why := condition.Because("Broken", "it is broken")
	add("new", progressing, func(object) {})
	add("seen", progressing, func(o object) { condition.Initialize(o) })
	add("ready", healthy, ready)
	add("deleted", progressing, func(o object) { ready(o); o.SetDeletionTimestamp(&metav1.Time{Time: now}) })
	if gvk.Kind != "NodeClaim" { // nobody can change its spec
		add("changed since it was ready", progressing, func(o object) { ready(o); o.SetGeneration(2) })
	}
	for _, typ := range append(append(types.Dependents, types.Optional...), types.Vetoes...) {
		add(typ+" is False", degraded, func(o object) { ready(o); condition.SetFalse(o, typ, why, now) })
	}
	for _, typ := range types.Dependents {
		add(typ+" is Unknown", progressing, func(o object) { ready(o); condition.SetUnknown(o, typ, why, now) })
	}
	for _, typ := range types.Vetoes {
		add(typ+" is Unknown", healthy, func(o object) { ready(o); condition.SetUnknown(o, typ, why, now) })
	}
	return out
}

// buffers are the states of a CapacityBuffer. It has no root condition.
func buffers() (out []state) {
	add := func(name, want string, conditions ...metav1.Condition) *bufferv1.CapacityBuffer {
		b := &bufferv1.CapacityBuffer{}
		b.Name, b.Generation, b.Status.Conditions = "spare", 1, conditions
		out = append(out, state{name: "CapacityBuffer " + name, gvk: bufferv1.GroupVersion.WithKind("CapacityBuffer"), of: b, want: want})
		return b
	}
	is := func(typ string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: typ, Status: status, Reason: "R", Message: "m", ObservedGeneration: 1}
	}
	add("new", progressing)
	add("resolved", healthy, is(bufferv1.ConditionReadyForProvisioning, metav1.ConditionTrue))
	add("without capacity yet", healthy,
		is(bufferv1.ConditionReadyForProvisioning, metav1.ConditionTrue), is(bufferv1.ConditionProvisioning, metav1.ConditionFalse))
	add("refers to nothing", degraded, is(bufferv1.ConditionReadyForProvisioning, metav1.ConditionFalse))
	deleted := add("deleted", progressing, is(bufferv1.ConditionReadyForProvisioning, metav1.ConditionTrue))
	deleted.DeletionTimestamp, out[len(out)-1].deleted = &metav1.Time{Time: now}, true
	return out
}

// luaValue is a JSON value as a value of Lua.
func luaValue(l *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	case []any:
		table := l.NewTable()
		for _, item := range value {
			table.Append(luaValue(l, item))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for name, item := range value {
			table.RawSetString(name, luaValue(l, item))
		}
		return table
	}
	return lua.LNil
}

// health runs a check as Argo CD does.
func health(t *testing.T, script string, obj map[string]any) (status, message string) {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	l.SetGlobal("obj", luaValue(l, obj))
	if err := l.DoString(script); err != nil {
		t.Fatalf("%v\n%s", err, script)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the check returns a %s", l.Get(-1).Type())
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

// The checks of the example judge each of our objects in each state. A node class is degraded while its nodes cannot join.
func TestHealthInArgoCD(t *testing.T) {
	all := documents(t, "argocd/argocd-cm.yaml")
	config := strictly[struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   objectMeta        `json:"metadata"`
		Data       map[string]string `json:"data"`
	}](t, all[0])
	if config.Kind != "ConfigMap" || config.Metadata.Name != "argocd-cm" {
		t.Errorf("%s %s", config.Kind, config.Metadata.Name)
	}
	used := map[string]int{}
	for _, s := range states() {
		key := "resource.customizations.health." + s.gvk.Group + "_" + s.gvk.Kind
		script, ok := config.Data[key]
		if !ok {
			t.Fatalf("no %s", key)
		}
		used[key]++
		status, message := health(t, script, s.object(t))
		if status != s.want {
			t.Errorf("%s: %s (%s), want %s", s.name, status, message, s.want)
		}
		if status == degraded && (message == "" || message == "waiting for the condition Ready") {
			t.Errorf("%s: the message does not state why", s.name)
		}
	}
	for key := range config.Data {
		if used[key] < 5 {
			t.Errorf("%s is checked with %d objects", key, used[key])
		}
	}
}
