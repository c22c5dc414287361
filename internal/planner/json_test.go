package planner_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// The lists of a plan are written without encoding/json. They have the form that it would give them, whatever the
// names.
func TestListsAreWrittenAsEncodingJSONDoes(t *testing.T) {
	pool := enginetest.Pool("general", nil).NodePool
	types := []*catalog.InstanceType{
		enginetest.Type("m.large", 1), enginetest.Type(`quo"te\`, 2), enginetest.Type("a<b>&é\u2028\n", 3), enginetest.Type("m.small", 1),
	}
	other := slices.Clone(types)
	other[2] = types[3]
	launch := func(types []*catalog.InstanceType, pods ...*corev1.Pod) schedule.Launch {
		return schedule.Launch{Pool: pool, InstanceTypes: types, Offering: types[0].Offerings[0], Requests: enginetest.Resources("cpu", "1"), Pods: pods}
	}
	a, b := enginetest.Pod("a"), enginetest.Pod("b")
	b.Namespace = "shop"
	report := planner.Report{Plan: schedule.Plan{
		Launches:   []schedule.Launch{launch(types, a, b, a), launch(other), launch(types), launch(types[:1])},
		Placements: []schedule.Placement{{Node: "n", Pods: []*corev1.Pod{b}}, {Node: "empty"}},
	}}
	var out bytes.Buffer
	if err := report.JSON(&out); err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		Claims []struct {
			InstanceTypes, Pods []string
		}
		Existing []struct{ Pods []string }
	}
	if err := json.Unmarshal(out.Bytes(), &decoded); err != nil {
		t.Fatalf("%v in\n%s", err, &out)
	}
	for i, l := range report.Plan.Launches {
		var want []string
		for _, it := range l.InstanceTypes {
			want = append(want, it.Name)
		}
		if got := decoded.Claims[i].InstanceTypes; !slices.Equal(got, want) {
			t.Errorf("claim %d: instance types %q, want %q", i, got, want)
		}
	}
	if got := decoded.Claims[0].Pods; !slices.Equal(got, []string{"default/a", "shop/b", "default/a"}) {
		t.Errorf("pods %q", got)
	}
	if e := decoded.Existing; len(e) != 2 || !slices.Equal(e[0].Pods, []string{"shop/b"}) || e[1].Pods == nil {
		t.Errorf("existing nodes %+v", e)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, out.Bytes(), "", "  "); err != nil || indented.String() != out.String() {
		t.Errorf("not indented by two: %v\n%s", err, &out)
	}
}
