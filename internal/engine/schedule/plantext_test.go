package schedule_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	. "github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/schedule"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/engine/validate"
)

var numbered = regexp.MustCompile(`-\d{3}$`)

// podGroups counts pods by their name without the number: "db, web x3".
func podGroups(pods []*corev1.Pod) string {
	counts := map[string]int{}
	var names []string
	for _, p := range pods {
		n := numbered.ReplaceAllString(p.Name, "")
		if counts[n]++; counts[n] == 1 {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for i, n := range names {
		if counts[n] > 1 {
			names[i] = fmt.Sprintf("%s x%d", n, counts[n])
		}
	}
	return strings.Join(names, ", ")
}

// describe prints a plan, a line per node, sorted; rejected pods come with the codes of their reasons.
func describe(p schedule.Plan) string {
	var lines []string
	for _, pl := range p.Placements {
		lines = append(lines, fmt.Sprintf("on %s: %s", pl.Node, podGroups(pl.Pods)))
	}
	for i := range p.Launches {
		l := &p.Launches[i]
		where := l.Pool.Name + " " + l.InstanceTypes[0].Name
		if zone, ok := l.Requirements.Get(Zone).Single(); ok {
			where += " " + zone
		}
		if ids := l.Requirements.Get(ReservationID).Values(); len(ids) > 0 {
			where += " in " + strings.Join(ids, "+")
		}
		if l.MinValuesRelaxed {
			where += " relaxed"
		}
		lines = append(lines, where+": "+podGroups(l.Pods))
	}
	rejected := map[string][]*corev1.Pod{}
	for _, r := range p.Rejected {
		var codes []string
		for _, reason := range r.Reasons {
			codes = append(codes, string(reason.Code))
		}
		slices.Sort(codes)
		code := strings.Join(slices.Compact(codes), ",")
		rejected[code] = append(rejected[code], r.Pod)
	}
	for code, pods := range rejected {
		lines = append(lines, fmt.Sprintf("unschedulable (%s): %s", code, podGroups(pods)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// planCase is a snapshot and the plan that it must lead to.
type planCase struct {
	name  string
	world *snapshot.Snapshot
	want  []string
}

func checkPlans(t *testing.T, cases []planCase) {
	t.Helper()
	for _, s := range cases {
		t.Run(s.name, func(t *testing.T) {
			p := schedule.Solve(s.world, schedule.Budget{})
			want := slices.Clone(s.want)
			slices.Sort(want)
			if diff := cmp.Diff(strings.Join(want, "\n"), describe(p)); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
				for _, r := range p.Rejected {
					t.Logf("%s: %v", r.Pod.Name, r.Reasons)
				}
			}
			if err := validate.Plan(s.world, p); err != nil {
				t.Error(err)
			}
		})
	}
}

// pool is one pool over the common types.
func pool(edit ...func(*np)) []snapshot.Pool {
	return []snapshot.Pool{Pool("general", Types(), edit...)}
}

// world is a snapshot with one pool over the common types, and pods.
func world(pods ...*corev1.Pod) *snapshot.Snapshot { return World(pool(), pods...) }

// singlePool is one pool over the given types.
func singlePool(types ...*catalog.InstanceType) []snapshot.Pool {
	return []snapshot.Pool{Pool("general", types)}
}

func with(s *snapshot.Snapshot, edit func(*snapshot.Snapshot)) *snapshot.Snapshot {
	edit(s)
	return s
}

func withNodes(s *snapshot.Snapshot, nodes ...snapshot.Node) *snapshot.Snapshot {
	s.Nodes = append(s.Nodes, nodes...)
	return s
}

func join(lists ...[]*corev1.Pod) []*corev1.Pod { return slices.Concat(lists...) }
