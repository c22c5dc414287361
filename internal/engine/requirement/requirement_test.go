package requirement_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

func parse(t *testing.T, op corev1.NodeSelectorOperator, values ...string) requirement.Requirement {
	t.Helper()
	r, err := requirement.New("k", op, values...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestIntersect(t *testing.T) {
	const gt, lt = corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt
	nothing := parse(t, gt, strconv.Itoa(math.MaxInt64))
	if nothing.Operator() != corev1.NodeSelectorOpDoesNotExist || nothing.AllowsAbsent() || !nothing.Impossible() {
		t.Errorf("%v: allows absence %v, impossible %v", nothing, nothing.AllowsAbsent(), nothing.Impossible())
	}
	for _, c := range []struct {
		name string
		a, b requirement.Requirement
		want requirement.Requirement
	}{
		{"bounds that contradict leave nothing", parse(t, gt, "10"), parse(t, lt, "5"), nothing},
		{"values outside bounds or not integers go", parse(t, gt, "0"), requirement.In("k", "a", "3"), requirement.In("k", "3")},
		{"bounds vanish once values are listed", requirement.In("k", "1", "9"), parse(t, gt, "4"), requirement.In("k", "9")},
		{"exclusions add up", requirement.NotIn("k", "a"), requirement.NotIn("k", "b"), requirement.NotIn("k", "b", "a")},
		{"exists and does not", requirement.Exists("k"), requirement.DoesNotExist("k"), nothing},
		{"one value and none", requirement.In("k", "a"), requirement.DoesNotExist("k"), nothing},
		{"different values", requirement.In("k", "a"), requirement.In("k", "b"), nothing},
		{"absence twice", requirement.DoesNotExist("k"), requirement.NotIn("k", "a"), requirement.DoesNotExist("k")},
		{"more minValues win", requirement.In("k", "a").WithMinValues(2), requirement.Exists("k").WithMinValues(3), requirement.In("k",
			"a").WithMinValues(3)},
		{"minValues survive a contradiction", parse(t, gt, "10").WithMinValues(2), parse(t, lt, "5"), nothing.WithMinValues(2)},
		{"greater than the greatest", parse(t, gt, strconv.Itoa(math.MaxInt64)), requirement.Exists("k"), nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, got := range []requirement.Requirement{c.a.Intersect(c.b), c.b.Intersect(c.a)} {
				if !got.Equal(c.want) {
					t.Errorf("got %v, want %v", got, c.want)
				}
			}
		})
	}
}

func TestOperatorOfCanonicalForm(t *testing.T) {
	for want, r := range map[corev1.NodeSelectorOperator]requirement.Requirement{
		corev1.NodeSelectorOpIn:           requirement.In("k", "a"),
		corev1.NodeSelectorOpNotIn:        requirement.NotIn("k", "a"),
		corev1.NodeSelectorOpExists:       requirement.AtLeast("k", 1).Intersect(requirement.AtMost("k", 9)),
		corev1.NodeSelectorOpDoesNotExist: requirement.In("k"),
	} {
		if r.Operator() != want {
			t.Errorf("%v has operator %s, want %s", r, r.Operator(), want)
		}
	}
}

func TestNewRejects(t *testing.T) {
	for _, c := range []struct {
		op     corev1.NodeSelectorOperator
		values []string
	}{
		{corev1.NodeSelectorOpIn, nil},
		{corev1.NodeSelectorOpNotIn, nil},
		{corev1.NodeSelectorOpGt, nil},
		{corev1.NodeSelectorOpLt, []string{"1", "2"}},
		{karpv1.OperatorGte, []string{"many"}},
		{"Near", []string{"a"}},
	} {
		if r, err := requirement.New("k", c.op, c.values...); err == nil {
			t.Errorf("%s %v: accepted as %v", c.op, c.values, r)
		}
	}
}

func TestCompatible(t *testing.T) {
	in, notIn := requirement.In("k", "a"), requirement.NotIn("k", "a")
	exists, absent := requirement.Exists("k"), requirement.DoesNotExist("k")
	for _, c := range []struct {
		name               string
		existing, incoming requirement.Requirement
		want               bool
	}{
		{"exists, absent", absent, exists, false},
		{"in, absent", absent, in, false},
		{"not in, absent", absent, notIn, true},
		{"absent, absent", absent, absent, true},
		{"absent, not in", notIn, absent, true},
		{"not in, not in", notIn, requirement.NotIn("k", "b"), true},
		{"absent, in", in, absent, false},
		{"absent, exists", exists, absent, false},
		{"not in, same value", in, notIn, false},
		{"not in, other value", in, requirement.NotIn("k", "b"), true},
		{"in, same value", in, in, true},
		{"in, other value", in, requirement.In("k", "b"), false},
		{"exists, in", in, exists, true},
		{"exists but not a, absent", absent, exists.Intersect(notIn), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := requirement.NewSet(c.existing).Compatible(requirement.NewSet(c.incoming), nil); got != c.want {
				t.Errorf("%v against %v: %v", c.incoming, c.existing, got)
			}
		})
	}
}

func TestUndefinedKeys(t *testing.T) {
	known := map[string]bool{"topology.kubernetes.io/zone": true}
	for _, c := range []struct {
		name     string
		incoming requirement.Requirement
		want     bool
	}{
		{"in", requirement.In("team", "a"), false},
		{"exists", requirement.Exists("team"), false},
		{"greater", requirement.AtLeast("team", 1), false},
		{"not in", requirement.NotIn("team", "a"), true},
		{"does not exist", requirement.DoesNotExist("team"), true},
		{"exists but not a", requirement.Exists("team").Intersect(requirement.NotIn("team", "a")), false},
		{"well-known", requirement.In("topology.kubernetes.io/zone", "z1"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := (requirement.Set{}).Compatible(requirement.NewSet(c.incoming), known); got != c.want {
				t.Errorf("%v: %v", c.incoming, got)
			}
		})
	}
}

func TestClaimRequirements(t *testing.T) {
	n := 2
	set := requirement.NewSet(
		requirement.Exists("z"),
		requirement.AtLeast("cpu", 3).Intersect(requirement.AtMost("cpu", 8)).WithMinValues(n),
		requirement.In("arch", "b", "a"),
		requirement.Exists("team").Intersect(requirement.NotIn("team", "x")),
		requirement.DoesNotExist("gpu"),
	)
	want := []karpv1.Requirement{
		{Key: "arch", Operator: "In", Values: []string{"a", "b"}},
		{Key: "cpu", Operator: "Gte", Values: []string{"3"}, MinValues: &n}, // both bounds
		{Key: "cpu", Operator: "Lte", Values: []string{"8"}, MinValues: &n},
		{Key: "gpu", Operator: "DoesNotExist"},
		{Key: "team", Operator: "Exists"},
		{Key: "team", Operator: "NotIn", Values: []string{"x"}},
		{Key: "z", Operator: "Exists"},
	}
	got := set.API()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	back, err := requirement.CoreLabels().FromAPI(got)
	if err != nil || !back.Equal(set) {
		t.Errorf("read back as %v, %v", back, err)
	}
}

func TestConflict(t *testing.T) {
	set := requirement.NewSet(requirement.In("arch", "amd64"))
	for _, tt := range []struct {
		name      string
		incoming  requirement.Requirement
		want      bool
		undefined bool
	}{
		{"another value", requirement.In("arch", "arm64"), true, false},
		{"the same value", requirement.In("arch", "amd64"), false, false},
		{"a label that nobody has", requirement.In("team", "x"), true, true},
		{"a label that the node may still get", requirement.In("zone", "z1"), false, false},
		{"a label that need not be there", requirement.NotIn("team", "x"), false, false},
	} {
		c, found := set.Conflict(requirement.NewSet(tt.incoming), map[string]bool{"zone": true})
		if found != tt.want || c.Undefined != tt.undefined || (found && !c.Incoming.Equal(tt.incoming)) {
			t.Errorf("%s: %+v, %t", tt.name, c, found)
		}
	}
}

func TestAliases(t *testing.T) {
	labels := requirement.CoreLabels()
	got, err := labels.Parse("beta.kubernetes.io/arch", corev1.NodeSelectorOpIn, "arm64")
	if err != nil || !got.Equal(requirement.In("kubernetes.io/arch", "arm64")) {
		t.Errorf("got %v, %v", got, err)
	}
	set := labels.FromLabels(map[string]string{"beta.kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"})
	want := requirement.NewSet(requirement.In("kubernetes.io/arch", "amd64"), requirement.In("kubernetes.io/os", "linux"))
	if !set.Equal(want) {
		t.Errorf("got %v, want %v", set, want)
	}
}

func TestFromPodOrdersPreferencesByWeight(t *testing.T) {
	term := func(zone string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone},
		}}}
	}
	spec := &corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{term("z1"), {}, term("z2")},
		},
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
			{Weight: 1, Preference: term("a")},
			{Weight: 50, Preference: term("b")},
			{Weight: 50, Preference: term("c")},
		},
	}}}
	pod, err := requirement.CoreLabels().FromPod(spec)
	if err != nil {
		t.Fatal(err)
	}
	zones := func(sets []requirement.Set) (out []string) {
		for _, s := range sets {
			out = append(out, s.Get(corev1.LabelTopologyZone).Values()...)
		}
		return out
	}
	if got := zones(pod.Required); !slices.Equal(got, []string{"z1", "z2"}) {
		t.Errorf("required terms %v: an empty term matches nothing", got)
	}
	if got := zones(pod.Preferred); !slices.Equal(got, []string{"b", "c", "a"}) {
		t.Errorf("preferred terms %v", got)
	}
}

// universe holds what the oracle tries; together with the values drawn below it distinguishes any two requirements.
// No label value begins with a minus.
var universe = []string{"a", "b", "c", "0", "1", "2", "3", "4", "5", "6", "7"}

// rule is the oracle for a requirement: a predicate on "the label has this value" and on its absence.
type rule struct {
	has    func(string) bool
	absent bool
}

func drawRule(t *rapid.T, name string) (requirement.Requirement, rule) {
	op := rapid.SampledFrom(
		[]corev1.NodeSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"},
	).Draw(
		t,
		name+" op",
	)
	var values []string
	want := rule{}
	number := func(cmp func(v, n int) bool) func(string) bool {
		n := rapid.IntRange(0, 6).Draw(t, name+" n")
		values = []string{strconv.Itoa(n)}
		return func(v string) bool {
			i, err := strconv.Atoi(v)
			return err == nil && cmp(i, n)
		}
	}
	switch op {
	case "In", "NotIn":
		values = rapid.SliceOfN(rapid.SampledFrom(universe[:8]), 1, 4).Draw(t, name+" values")
		want.has = func(v string) bool { return slices.Contains(values, v) == (op == "In") }
		want.absent = op == "NotIn"
	case "Exists", "DoesNotExist":
		want.has = func(string) bool { return op == "Exists" }
		want.absent = op == "DoesNotExist"
	case "Gt":
		want.has = number(func(v, n int) bool { return v > n })
	case "Lt":
		want.has = number(func(v, n int) bool { return v < n })
	case "Gte":
		want.has = number(func(v, n int) bool { return v >= n })
	case "Lte":
		want.has = number(func(v, n int) bool { return v <= n })
	}
	r, err := requirement.New("k", op, values...)
	if err != nil {
		t.Fatal(err)
	}
	return r, want
}

func TestIntersectAgreesWithOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "n")
		got, first := drawRule(t, "0")
		rules := []rule{first}
		for i := range n - 1 {
			r, o := drawRule(t, strconv.Itoa(i+1))
			rules = append(rules, o)
			before := got
			got = got.Intersect(r)
			if swapped := r.Intersect(before); !swapped.Equal(got) {
				t.Fatalf("%v ∧ %v: %v, the other way round %v", before, r, got, swapped)
			}
		}
		for _, v := range universe {
			want := !slices.ContainsFunc(rules, func(o rule) bool { return !o.has(v) })
			if got.Has(v) != want {
				t.Fatalf("%v: Has(%q) = %v", got, v, got.Has(v))
			}
		}
		// Absence: all must allow it.
		allAbsent := !slices.ContainsFunc(rules, func(o rule) bool { return !o.absent })
		if got.AllowsAbsent() != allAbsent {
			t.Fatalf("%v: AllowsAbsent() = %v", got, got.AllowsAbsent())
		}
		if _, some := got.Example(); got.Impossible() && (some || allAbsent) {
			t.Fatalf("%v is called impossible", got)
		}
		if v, ok := got.Example(); ok && !got.Has(v) {
			t.Fatalf("%v: example %q does not satisfy it", got, v)
		}
		if again := got.Intersect(got); !again.Equal(got) {
			t.Fatalf("%v with itself: %v", got, again)
		}
	})
}

func TestOverlapsAgreesWithOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, ruleA := drawRule(t, "a")
		b, ruleB := drawRule(t, "b")
		common := slices.ContainsFunc(universe, func(v string) bool { return ruleA.has(v) && ruleB.has(v) })
		if got := a.Overlaps(b); got != common || b.Overlaps(a) != common {
			t.Fatalf("%v, %v: overlap %v, oracle %v", a, b, got, common)
		}
		want := common || (ruleA.absent && ruleB.absent)
		if got := requirement.NewSet(a).Compatible(requirement.NewSet(b), nil); got != want {
			t.Fatalf("%v, %v: compatible %v, oracle %v", a, b, got, want)
		}
		if got := requirement.NewSet(a).Overlaps(requirement.NewSet(b)); got != want {
			t.Fatalf("%v, %v: sets overlap %v, oracle %v", a, b, got, want)
		}
	})
}

func TestSetOperationsDoNotChangeOperands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) requirement.Set {
			keys := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 5).Draw(t, name)
			var reqs []requirement.Requirement
			for i, k := range keys {
				reqs = append(reqs, requirement.NotIn(k, rapid.SampledFrom(universe).Draw(t, name+strconv.Itoa(i))))
			}
			return requirement.NewSet(reqs...)
		}
		a, b := draw("a"), draw("b")
		before := a.String() + b.String()
		ab, ba := a.Intersect(b), b.Intersect(a)
		if !ab.Equal(ba) || !ab.Equal(a.With(b.All()...)) {
			t.Fatalf("%v, %v: %v, %v", a, b, ab, ba)
		}
		if !slices.IsSorted(ab.Keys()) {
			t.Fatalf("keys %v", ab.Keys())
		}
		if a.String()+b.String() != before {
			t.Fatal("an operand changed")
		}
	})
}

func terms(values map[string][]string, op corev1.NodeSelectorOperator) corev1.NodeSelectorTerm {
	var out corev1.NodeSelectorTerm
	for k, v := range values {
		out.MatchExpressions = append(out.MatchExpressions, corev1.NodeSelectorRequirement{Key: k, Operator: op, Values: v})
	}
	return out
}

// The API server accepts all of these as preferred terms, and many on pods created before it validated them.
func TestUnmatchableTermsAreReported(t *testing.T) {
	const in, gt, lt = corev1.NodeSelectorOpIn, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt
	good := terms(map[string][]string{"example.com/team": {"a"}}, in)
	for _, c := range []struct {
		name string
		term corev1.NodeSelectorTerm
		want string // in what is stated
	}{
		{
			"a space", terms(map[string][]string{"example.com/team": {"team a"}}, in),
			`label "example.com/team": no node can have the value "team a"`,
		},
		{
			"one of several", terms(map[string][]string{"example.com/team": {"a", "b c"}}, corev1.NodeSelectorOpNotIn),
			`no node can have the value "b c"`,
		},
		{"a long value", terms(map[string][]string{"example.com/team": {strings.Repeat("x", 64)}}, in), "no more than 63"},
		{"a negative bound", terms(map[string][]string{"karpenter.k8s.aws/instance-cpu": {"-5"}}, gt), `no node can have the value "-5"`},
		{"a bound that is no number", terms(map[string][]string{"karpenter.k8s.aws/instance-cpu": {"many"}}, lt), `needs an integer, has "many"`},
		{
			"a bound that is too large", terms(map[string][]string{"karpenter.k8s.aws/instance-cpu": {"9223372036854775808"}}, gt),
			`needs an integer, has "9223372036854775808"`,
		},
		{"a key with a space", terms(map[string][]string{"my team": {"a"}}, in), `label "my team" is no valid label key`},
		{"a key that no NodeClaim can name", terms(map[string][]string{strings.Repeat(strings.Repeat("x", 62)+".",
			4) + "y/" + strings.Repeat("z", 63): {"a"}}, in), "longer than the 316 characters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			read := func(required, preferred []corev1.NodeSelectorTerm) (requirement.Pod, error) {
				a := &corev1.NodeAffinity{}
				if len(required) > 0 {
					a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: required}
				}
				for _, p := range preferred {
					a.PreferredDuringSchedulingIgnoredDuringExecution = append(
						a.PreferredDuringSchedulingIgnoredDuringExecution,
						corev1.PreferredSchedulingTerm{Weight: 1, Preference: p},
					)
				}
				return requirement.CoreLabels().FromPod(&corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: a}})
			}
			pod, err := read(nil, []corev1.NodeSelectorTerm{c.term, good})
			if err != nil || len(pod.Preferred) != 1 || len(pod.Ignored) != 1 ||
				!strings.Contains(pod.Ignored[0], "preferred node affinity term 0: ") ||
				!strings.Contains(pod.Ignored[0], c.want) {
				t.Errorf("preferred: %+v, %v", pod, err)
			}
			pod, err = read([]corev1.NodeSelectorTerm{good, c.term}, nil)
			if err != nil || len(pod.Required) != 1 || len(pod.Ignored) != 1 ||
				!strings.Contains(pod.Ignored[0], "required node affinity term 1: ") {
				t.Errorf("one of two required terms: %+v, %v", pod, err)
			}
			_, err = read([]corev1.NodeSelectorTerm{c.term}, nil)
			if err == nil || !strings.Contains(err.Error(), "required node affinity term 0: ") || !strings.Contains(err.Error(), c.want) ||
				len(err.Error()) > 900 {
				t.Errorf("required: %v", err)
			}
		})
	}
	_, err := requirement.CoreLabels().FromPod(&corev1.PodSpec{NodeSelector: map[string]string{"example.com/team": "team a"}})
	if err == nil || !strings.Contains(err.Error(), `nodeSelector: label "example.com/team": no node can have the value "team a"`) {
		t.Errorf("nodeSelector: %v", err)
	}
}

// Each is equivalent, for the scheduler, to what the NodeClaim states, which may have no negative number.
func TestBoundsInClaims(t *testing.T) {
	for _, c := range []struct {
		r    requirement.Requirement
		want string // empty: nothing satisfies it
	}{
		{requirement.AtLeast("k", -4), "Gte [0]"},
		{requirement.AtLeast("k", math.MinInt64), "Gte [0]"},
		{requirement.AtMost("k", -1), ""},
		{parse(t, corev1.NodeSelectorOpLt, "0"), ""},
		{parse(t, corev1.NodeSelectorOpLt, "1"), "Lte [0]"},
		{parse(t, corev1.NodeSelectorOpGt, "0"), "Gte [1]"},
		{parse(t, corev1.NodeSelectorOpGt, strconv.Itoa(math.MaxInt64-1)), "Gte [9223372036854775807]"},
		{parse(t, corev1.NodeSelectorOpGt, strconv.Itoa(math.MaxInt64-1)).Intersect(requirement.NotIn("k", strconv.Itoa(math.MaxInt64))), ""},
		{
			parse(t, corev1.NodeSelectorOpGt, "5").Intersect(parse(t, corev1.NodeSelectorOpLt, "8")).Intersect(requirement.NotIn("k", "6", "7")),
			"",
		},
		{parse(t, corev1.NodeSelectorOpLt, "2").Intersect(requirement.NotIn("k", "0", "1")), ""},
	} {
		if c.want == "" {
			if !c.r.Impossible() {
				t.Errorf("%v is not impossible", c.r)
			}
			continue
		}
		api := c.r.API()
		if got := fmt.Sprintf("%s %v", api[0].Operator, api[0].Values); len(api) != 1 || got != c.want {
			t.Errorf("%v reaches a claim as %v, want %s", c.r, api, c.want)
		}
		if v, ok := c.r.Example(); !ok || !c.r.Has(v) {
			t.Errorf("%v: example %q", c.r, v)
		}
	}
}

// Intersecting one after the other would copy a growing list every time.
func TestManyExclusionsAreParsedQuickly(t *testing.T) {
	const n = 40_000
	reqs := make([]requirement.Requirement, 0, n)
	for i := range n {
		reqs = append(reqs, requirement.NotIn("team", fmt.Sprintf("t%05d", i)))
	}
	start := time.Now()
	got := requirement.NewSet(reqs...).Get("team")
	if len(got.Values()) != n || got.Has("t00007") || !got.Has("other") {
		t.Errorf("%d values", len(got.Values()))
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}
